// Hints under errors, the cards of %tpu_explain and the options that Tab offers, as a person sees them.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab, text } from './lab.mjs';

let lab;

before(async () => {
  lab = await Lab.start();
  await lab.openCells('explain.ipynb',
    'import os, torch\nweights, batch = torch.ones(3, 3, device="tpu"), torch.ones(4, 3)',
    'scores = batch @ weights',
    '%tpu_explain',
    '%tpu_explain torch.cuda',
    'os.environ["TPU_LAUNCH_BLOCKING"] = "1"',
    '%%tpu_eager --mode fu');
  for (const index of [0, 1, 2, 3, 4]) await lab.run(index);
}, { timeout: 300_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

test('an error says what to do below its traceback', async () => {
  const shown = lab.page.locator('.jp-Notebook .jp-OutputArea-output', { hasText: 'expected tensor to be on tpu' }).first();
  assert.match(await shown.innerText(), /Hint: `batch` is on the CPU, `weights` on the TPU\.\nAn operation works in one place; move it:\n {4}batch = batch\.to\("tpu"\)\s*$/);
});

test('a variable that nobody reads has a hint', async () => {
  assert.match(text(await lab.outputs(4)), /^Hint: nothing reads `TPU_LAUNCH_BLOCKING`\./);
});

test('the cards follow the theme and have no script', async () => {
  const card = lab.page.locator('.jp-Notebook .jp-RenderedHTMLCommon', { hasText: 'known error' }).first();
  const seen = [];
  for (const theme of ['JupyterLab Light', 'JupyterLab Dark']) {
    await lab.theme(theme);
    const word = theme.split(' ')[1].toLowerCase();
    await lab.scrollTo(1);
    await lab.screenshot(`explain-${word}`);
    seen.push(await card.locator('code').first().evaluate(element => getComputedStyle(element).color));
    await lab.scrollTo(3);
    await lab.screenshot(`explain-names-${word}`);
  }
  assert.notEqual(seen[0], seen[1], 'the card does not follow the theme');
  assert.match(await card.innerText(), /known error\s*RuntimeError\s+line 1: scores = batch @ weights/);
  assert.equal(await lab.page.locator('.jp-RenderedHTMLCommon script').count(), 0);
});

test('Tab completes the value of an option', async () => {
  await lab.scrollTo(5);
  const editor = lab.page.locator('.jp-Notebook .jp-CodeCell .cm-content', { hasText: 'tpu_eager' }).first();
  await editor.click();
  await lab.page.keyboard.press('Control+End');
  await lab.page.keyboard.press('Tab');
  const offered = lab.page.locator('.jp-Completer .jp-Completer-item');
  await offered.first().waitFor();
  await lab.screenshot('explain-options');
  assert.deepEqual(await offered.locator('.jp-Completer-match').allInnerTexts(), ['fused']);
  await lab.page.keyboard.press('Enter');
  await lab.page.waitForFunction(() => (
    window.panel.content.model.sharedModel.cells[5].source === '%%tpu_eager --mode fused'
  ));
});

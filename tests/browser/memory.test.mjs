// Who holds HBM, the card of a full device and the line under a cell, as a person sees them in both themes.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab } from './lab.mjs';

let lab;

before(async () => {
  lab = await Lab.start();
  await lab.openCells('memory.ipynb',
    'import torch\nfrom torch import nn\n' +
    'model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 16)).to("tpu")\n' +
    'opt = torch.optim.AdamW(model.parameters())\n' +
    'X = torch.randn(128, 64).to("tpu")\nmodel(X).sum().backward(); opt.step(); loss = model(X).sum()',
    '%tpu_mem',
    '%tpu_mem --by module',
    '%tpu_free loss',
    '%tpu_free --all',
    '%tpu_limit 148MiB\n%tpu_watch on\n' +
    'x = torch.randn(512, 1024).to("tpu"); W = torch.randn(20000, 1024).to("tpu")\nweights = torch.ones(14 << 20).to("tpu")',
    'logits = x @ W.T',
    'y = x * 2; y.sum().item()');
  for (let index = 0; index < 8; index += 1) await lab.run(index);
}, { timeout: 300_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

test('the cards are read in both themes, in words as well as in colour', async () => {
  for (const theme of ['JupyterLab Light', 'JupyterLab Dark']) {
    await lab.theme(theme);
    for (const [index, words] of [
      [1, /HBM[^]*in use[^]*optimizer state[^]*held by[^]*deleting it frees[^]*model[^]*nothing: also in[^]*bytes are in use/],
      [3, /freed[^]*loss[^]*reference cycles/],
      [4, /freed[^]*Deleted: [^]*model[^]*bytes are left/],
      [6, /out of HBM[^]*wanted 39.06 MiB[^]*logits = x @ W.T[^]*did not fit[^]*Would free 56.00 MiB: [^]*about \d+ would/],
    ]) {
      await lab.scrollTo(index);
      await lab.screenshot(`memory-${index}-${theme.split(' ')[1].toLowerCase()}`);
      const card = lab.page.locator('.jp-Notebook .jp-CodeCell', { hasText: (await lab.cells())[index].source }).locator('.tpuk').first();
      assert.match(await card.innerText(), words);
      const [least, where] = await card.evaluate(weakestContrast);
      assert.ok(least >= 4.5, `contrast ${least} of ${where} in ${theme}`);
    }
  }
});

test('a cell has one line about the device, at an error too', async () => {
  const lines = async index => (await lab.outputs(index))
    .map(output => [output.data?.['text/plain'] ?? ''].flat().join(''))
    .filter(shown => / · device busy /.test(shown));
  const [failed, ...more] = await lines(6);
  assert.match(failed, /^[\d.]+ m?s · device busy .* · HBM \+0 B, now 136 MiB, peak 136 MiB$/);
  assert.deepEqual(more, []);
  assert.match((await lines(7)).join('\n'), /^[\d.]+ m?s · .* · launched 2 · HBM \+2.00 MiB, now 138 MiB, peak 138 MiB$/);
});

/** The smallest contrast of text inside an element, and the text. */
function weakestContrast(root) {
  const parts = colour => colour.match(/[\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = colour.map(value => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  let worst = [99, ''];
  for (const element of root.querySelectorAll('*')) {
    const own = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.textContent).join('').trim();
    if (!own || element.tagName === 'STYLE' || element.offsetParent === null) continue;
    const back = behind(element);
    const [r, g, b, alpha = 1] = parts(getComputedStyle(element).color);
    const front = [r, g, b].map((value, index) => value * alpha + back[index] * (1 - alpha));
    const [high, low] = [light(front), light(back)].sort((one, other) => other - one);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < worst[0]) worst = [ratio, own];
  }
  return worst;
}

// Notebook 7: the page with one notebook that classic users know.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab, text } from './lab.mjs';

let lab;
before(async () => { lab = await Lab.start(); }, { timeout: 120_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

test('a notebook is opened, run, interrupted and restarted in Notebook 7', { timeout: 120_000 }, async () => {
  await lab.openCells('seven.ipynb', 'word = "kept"\nprint("hello")', 'print("begun")\nwhile True:\n    pass', 'print(word * 2)',
    'from tqdm.auto import tqdm\nimport ipywidgets\nfor n in tqdm(range(5), desc="steps"): pass\nipywidgets.IntSlider(value=4, description="depth")');
  await lab.openInNotebook('seven.ipynb');
  await lab.page.locator('.jp-NotebookKernelLogo img').first().waitFor();
  assert.equal(text(await lab.run(0)), 'hello\n');
  const { over } = lab.begin(1);
  await lab.waitOutput(1, 'begun');
  await lab.waitStatus('busy');
  await lab.interrupt();
  await over;
  assert.equal((await lab.outputs(1)).at(-1).ename, 'KeyboardInterrupt');
  assert.equal(text(await lab.run(2)), 'keptkept\n');
  await lab.run(3);
  await lab.page.locator('.widget-label', { hasText: 'depth' }).waitFor();
  await lab.page.locator('.progress-bar-success').waitFor();
  await lab.page.locator('.noUi-handle').focus();
  await lab.page.locator('.noUi-handle').press('ArrowRight');
  await lab.page.locator('.widget-readout', { hasText: '5' }).waitFor();
  await lab.screenshot('notebook7');
  await lab.restart();
  assert.equal(text(await lab.run(2)), "NameError: name 'word' is not defined");
});

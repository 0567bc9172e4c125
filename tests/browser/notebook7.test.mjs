// Notebook 7: the page with one notebook that classic users know.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab, sleep, text } from './lab.mjs';

let lab;
before(async () => { lab = await Lab.start(); }, { timeout: 120_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

test('a notebook is opened, run, interrupted and restarted in Notebook 7', { timeout: 300_000 }, async () => {
  await lab.openCells('seven.ipynb', 'word = "kept"\nprint("hello")', 'print("begun")\nwhile True:\n    pass', 'print(word * 2)',
    'from tqdm.auto import tqdm\nimport ipywidgets\nfor n in tqdm(range(5), desc="steps"): pass\nslider = ipywidgets.IntSlider(value=4, description="depth")\nslider',
    'print(slider.value)');
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
  // Notebook 7 has shortcuts on the arrow keys: by mouse
  await lab.page.locator('.noUi-target').click({ position: { x: 60, y: 2 } });
  const readout = lab.page.locator('.widget-readout');
  for (let tries = 0; tries < 100 && await readout.innerText() === '4'; tries += 1) await sleep(100);
  const shown = Number(await readout.innerText());
  assert.ok(shown > 30 && shown < 70, `the slider shows ${shown}`);
  assert.equal(text(await lab.run(4)), `${shown}\n`);
  await lab.screenshot('notebook7');
  await lab.restart();
  assert.equal(text(await lab.run(2)), "NameError: name 'word' is not defined");
});

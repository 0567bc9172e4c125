// What a person does with any kernel in JupyterLab, done with PyTorch (TPU).

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab, sleep, text } from './lab.mjs';

let lab;
before(async () => { lab = await Lab.start(); }, { timeout: 120_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

const limit = { timeout: 300_000 };

test('the launcher offers PyTorch (TPU) with its logo', limit, async () => {
  await lab.openLauncher();
  const card = lab.page.locator('.jp-LauncherCard[data-category="Notebook"]', { hasText: 'PyTorch (TPU)' });
  await card.waitFor();
  const image = card.locator('img');
  assert.match(await image.getAttribute('src'), /\/kernelspecs\/pytorch-tpu\/logo-svg\.svg/);
  assert.ok(await image.evaluate(element => element.complete && element.naturalWidth > 0), 'the logo did not load');
  await lab.screenshot('launcher');
});

test('the toolbar names the kernel, a cell answers, names stay', limit, async () => {
  await lab.openCells('plain.ipynb', 'word = "kept"\nprint("hello")', 'word * 2');
  await lab.page.locator('.jp-KernelName', { hasText: 'PyTorch (TPU)' }).waitFor();
  assert.equal(text(await lab.run(0)), 'hello\n');
  assert.equal(text(await lab.run(1)), "'keptkept'");
});

test('interrupting an endless loop leaves a usable kernel', limit, async () => {
  await lab.openCells('interrupt.ipynb', 'print("begun")\nwhile True:\n    pass', 'print("alive")');
  const { over } = lab.begin(0);
  await lab.waitOutput(0, 'begun');
  assert.equal(await lab.status(), 'busy');
  await lab.interrupt();
  await over;
  const error = (await lab.outputs(0)).at(-1);
  assert.equal(error.output_type, 'error');
  assert.equal(error.ename, 'KeyboardInterrupt');
  assert.equal(text(await lab.run(1)), 'alive\n');
});

test('an endless print leaves a page that can be used', limit, async () => {
  await lab.openCells('endless.ipynb', 'while True: print("x" * 200)', 'print("alive")');
  const { over } = lab.begin(0);
  await sleep(5000);
  const asked = Date.now();
  await lab.interrupt();
  await over;
  await lab.waitStatus('idle');
  // Of it, 0.3 s are the kernel's; the server and the page have megabytes to look at.
  assert.ok(Date.now() - asked < 20_000, `idle ${Date.now() - asked} ms after the interrupt`);
  assert.ok(text(await lab.outputs(0)).startsWith(`${'x'.repeat(200)}\nx`));
  assert.equal(text(await lab.run(1)), 'alive\n');
});

test('restarting gives an empty kernel', limit, async () => {
  await lab.openCells('restart.ipynb', 'leftover = 1', 'print(leftover)');
  await lab.run(0);
  await lab.restart();
  assert.equal(text(await lab.run(1)), "NameError: name 'leftover' is not defined");
});

test('restarting works while a cell runs', limit, async () => {
  await lab.openCells('restart-busy.ipynb', 'import time\nprint("begun")\ntime.sleep(600)', 'print("fresh")');
  lab.begin(0).over.catch(() => undefined);
  await lab.waitOutput(0, 'begun');
  await lab.restart();
  assert.equal(text(await lab.run(1)), 'fresh\n');
});

test('completion is answered while a cell runs', limit, async () => {
  await lab.openCells('complete.ipynb', 'import time\nprint("begun")\nwhile True:\n    time.sleep(0.01)');
  const { over } = lab.begin(0);
  await lab.waitOutput(0, 'begun');
  const completed = await lab.page.evaluate(async () => {
    const { kernel } = window.panel.sessionContext.session;
    const { content } = await kernel.requestComplete({ code: 'time.slee', cursor_pos: 9 });
    return content.matches.map(match => 'time.slee'.slice(0, content.cursor_start) + match);
  });
  assert.deepEqual(completed, ['time.sleep']);
  const running = await lab.page.evaluate(() => window.panel.content.model.sharedModel.cells[0].toJSON().execution_count);
  assert.equal(running, null, 'the cell ended before the completion came');
  await lab.interrupt();
  await over;
});

test('input() asks in the notebook and gets the answer', limit, async () => {
  await lab.openCells('input.ipynb', 'print(input("your name? ").upper())');
  const { over } = lab.begin(0);
  const box = lab.page.locator('.jp-Stdin-input');
  await box.waitFor();
  await box.fill('ada');
  await box.press('Enter');
  await over;
  assert.equal(text(await lab.outputs(0)), 'your name?  ada\nADA\n');
});

test('a page opened while a cell runs can talk to the kernel at once', limit, async () => {
  await lab.openCells('reload.ipynb', 'import time\nprint("begun")\ntime.sleep(600)');
  lab.begin(0).over.catch(() => undefined);
  await lab.waitOutput(0, 'begun');
  await lab.reload('reload.ipynb');
  await lab.waitStatus('busy');
  const answered = await lab.page.evaluate(async () => {
    const reply = await window.panel.sessionContext.session.kernel.requestKernelInfo();
    return reply.content.language_info.name;
  });
  assert.equal(answered, 'python');
  assert.equal(await lab.status(), 'busy');
  await lab.interrupt();
  await lab.waitStatus('idle');
});

// The TPU panel and its line in the status bar (JupyterLab) or the toolbar (Notebook 7): what they
// show of the kernel while it works, is restarted, dies, or is another one.

import assert from 'node:assert/strict';
import { readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { Lab, PYTHON, sleep } from './lab.mjs';

let lab;
const complaints = [];
const sent = [];
before(async () => {
  lab = await Lab.start();
  lab.page.on('console', message => {
    const { url } = message.location();
    if (['warning', 'error'].includes(message.type()) && (/pytorch-tpu-kernel/.test(url) || /\bcomm\b|tpu/i.test(message.text()))) {
      complaints.push(message.text());
    }
  });
  lab.page.on('pageerror', error => { if (/pytorch-tpu-kernel/.test(error.stack)) complaints.push(String(error)); });
  lab.page.on('websocket', socket => socket.on('framesent', ({ payload }) => { sent.push(String(payload)); }));
}, { timeout: 120_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

const limit = { timeout: 300_000 };
const panel = () => lab.page.locator('.tpu-Panel');
const item = () => lab.page.locator('.tpu-Status button:visible');
const state = () => panel().locator('.tpu-state');
const button = name => panel().getByRole('button', { name });

/** Waits until the panel shows `text`. */
async function shows(text) {
  await panel().filter({ hasText: text }).waitFor();
}

/** Seconds that the panel says its cell has run for. */
async function age() {
  const [, time] = /has run for ([\d.]+) s/.exec(await state().innerText()) ?? [];
  return Number(time);
}

/** Loads the page again; gives the milliseconds from the notebook being there to a panel that is live. */
async function reload(name) {
  await lab.reload(name);
  const there = Date.now();
  await lab.page.waitForFunction(() => document.querySelector('.tpu-Panel')?.dataset.link === 'live');
  return Date.now() - there;
}

/** The lowest contrast of a text of the panel with what is behind it, and which text that is. */
function contrast() {
  return panel().evaluate(root => {
    const channels = color => {
      const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
      .map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = node => {
      for (let at = node; at; at = at.parentElement) {
        const color = channels(getComputedStyle(at).backgroundColor);
        if (color[3] === 255) return color;
      }
      return [255, 255, 255];
    };
    let worst = { ratio: 21 };
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
      const [one, two] = [light(channels(getComputedStyle(node).color)), light(behind(node))];
      const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
      if (ratio < worst.ratio) worst = { ratio, text: walker.currentNode.data };
    }
    return worst;
  });
}

const SETUP = `import ctypes, os, time, torch
weights = torch.ones(1024, 1024, device="tpu")
def deep(x):
    for i in range(500): x = torch.sin(x @ x) + i * x
    return x`;
const TRAIN = 'for step in range(600):\n    product = weights @ weights\n    product.sum().item()\n    time.sleep(0.02)';
const COMPILE = 'torch.compile(deep)(torch.ones(64, 64, device="tpu")).sum().item()';
const HELD = 'print("held")\nctypes.PyDLL(None).sleep(120)';
const DIE = 'os.kill(os.getpid(), 9)';

test('the status line opens the panel, which follows a cell, a compile, held Python and a reload', limit, async () => {
  await lab.openCells('live.ipynb', SETUP, TRAIN, COMPILE, HELD, '%tpu_mode', TRAIN);
  await item().filter({ hasText: 'TPU: not in use yet' }).waitFor();
  assert.equal(await panel().isVisible(), false);
  assert.equal(await item().getAttribute('aria-expanded'), 'false');
  await item().click();
  await shows('Not in use yet');
  assert.equal(await item().getAttribute('aria-expanded'), 'true');
  await lab.run(0);
  await shows('TPU v5e');
  await shows('4.00 MiB of 15.7 GiB');
  const row = panel().locator('tbody tr', { hasText: 'weights' });
  await row.waitFor();
  assert.equal(await row.innerText(), 'weights\n[1024, 1024] float32, cell [1]\t4.00 MiB');
  // Nothing happens, nothing is sent.
  await sleep(1000);
  const quiet = sent.length;
  await sleep(1500);
  assert.deepEqual(sent.slice(quiet).filter(frame => frame.includes('"comm_')), []);
  assert.equal(await button('Interrupt').getAttribute('aria-disabled'), 'true');

  const training = lab.begin(1).over;
  await shows('Cell [2] has run for');
  await lab.page.waitForFunction(() => /^([1-9]|\d\d|100)/.test(document.querySelectorAll('.tpu-headline')[1].innerText));
  await item().filter({ hasText: /^TPU v5e · HBM \d+\.\d\d MiB \/ 15\.7 GiB · busy \d+ %$/ }).waitFor();
  assert.match(await panel().locator('canvas').first().getAttribute('aria-label'), /^HBM over the last 2 minutes: now \d/);
  assert.equal(await button('Free unnamed memory').getAttribute('aria-disabled'), 'true');
  await lab.screenshot('panel-lab-light');
  const light = await contrast();
  assert.ok(light.ratio >= 4.5, JSON.stringify(light));
  await button('Interrupt').click();
  await training;
  await panel().getByRole('log').getByText('Interrupted', { exact: true }).waitFor();

  const compiling = lab.begin(2).over;
  const compile = panel().locator('.tpu-work', { hasText: /Compiling tt_jit_\S*deep\S* for [\d.]+ s/ });
  await compile.waitFor();
  const seconds = async () => Number(/for ([\d.]+) s/.exec(await compile.innerText())?.[1]);
  const before = await seconds();
  await lab.page.waitForFunction(start => Number(/for ([\d.]+) s/.exec(document.querySelector('.tpu-work')?.innerText ?? '')?.[1]) > start + 1, before);
  await item().filter({ hasText: /compiling for [\d.]+ s$/ }).waitFor();
  await lab.theme('JupyterLab Dark');
  await lab.screenshot('panel-lab-dark-compile');
  const dark = await contrast();
  assert.ok(dark.ratio >= 4.5, JSON.stringify(dark));
  await compiling;
  await shows('Idle');

  lab.begin(3).over.catch(() => undefined);
  await lab.waitOutput(3, 'held');
  await shows('Cell [4] has run for');
  const young = await age();
  assert.ok(await reload('live.ipynb') < 30_000);
  await shows('Cell [4] has run for');
  assert.ok(await age() > young);
  assert.ok(await panel().isVisible());
  await shows('4.00 MiB');
  await button('Interrupt').click();
  await lab.waitStatus('idle');
});

test('the buttons change how cells run and free memory; the keyboard reads the time line', limit, async () => {
  const mode = panel().getByRole('combobox', { name: 'How cells run' });
  await mode.selectOption('compiled');
  await panel().getByRole('status').filter({ hasText: 'compiled' }).waitFor();
  assert.match([(await lab.run(4))[0].text].flat().join(''), /^compiled/);
  await mode.selectOption('strict');
  await panel().getByRole('status').filter({ hasText: 'strict' }).waitFor();
  await button('Free unnamed memory').click();
  await panel().getByRole('status').filter({ hasText: /free|nothing/i }).waitFor();
  const line = panel().getByRole('img', { name: /^HBM/ });
  await line.focus();
  await lab.page.keyboard.press('End');
  const reading = panel().locator('.tpu-reading').first();
  assert.match(await reading.innerText(), /^\d\d:\d\d:\d\d.*: [48]\.\d\d MiB$/);
  await lab.page.keyboard.press('Home');
  assert.match(await reading.innerText(), /: not known$/);
  // Every control can be reached, and has a name.
  const nameless = await panel().evaluate(root => [...root.querySelectorAll('button, select, canvas, section, table')]
    .filter(node => !(node.getAttribute('aria-label') ?? document.getElementById(node.getAttribute('aria-labelledby'))?.innerText ?? node.innerText)?.trim()).length);
  assert.equal(nameless, 0);
  await lab.page.setViewportSize({ width: 700, height: 860 });
  await lab.screenshot('panel-lab-narrow');
  assert.equal(await panel().evaluate(root => root.scrollWidth <= root.clientWidth), true);
  await lab.page.setViewportSize({ width: 1280, height: 860 });
});

test('Notebook 7 has the line in its toolbar, and the panel is open again after a reload', limit, async () => {
  await lab.page.evaluate(() => sessionStorage.clear());
  await lab.openInNotebook('live.ipynb');
  await item().filter({ hasText: /TPU v5e · HBM \d.* · idle/ }).waitFor();
  assert.equal(await panel().isVisible(), false);
  await item().click();
  lab.begin(5).over.catch(() => undefined);
  await shows(/Cell \[\d+\] has run for/);
  await lab.screenshot('panel-notebook');
  assert.ok(await reload('live.ipynb') < 30_000);
  assert.ok(await panel().isVisible());
  await shows(/Cell \[\d+\] has run for/);
  await lab.interrupt();
  await lab.waitStatus('idle');
});

test('a restarted kernel and one that died are shown again, and nobody is asked when the page is hidden', limit, async () => {
  await lab.openCells('restart.ipynb', `import os, time\n${DIE}`, 'time.sleep(0)');
  await shows('Idle');
  await lab.restart();
  await panel().getByRole('log').getByText('Its memory is empty.').waitFor();
  await shows('Idle');
  lab.begin(0).over.catch(() => undefined);
  await panel().getByRole('log').getByText('It had died, and was started again.').waitFor();
  await lab.page.locator('.jp-Dialog .jp-mod-accept').click();
  await shows('Idle');
  assert.equal(await panel().getAttribute('data-link'), 'live');
  await lab.screenshot('panel-lab-died');

  const hide = hidden => lab.page.evaluate(value => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  sent.length = 0;
  await hide(true);
  const kinds = () => sent.map(frame => /"msg_type":"(comm_\w+)"/.exec(frame)?.[1]).filter(Boolean);
  for (let tries = 0; tries < 300 && kinds().length < 1; tries += 1) await sleep(100);
  assert.deepEqual(kinds(), ['comm_close']);
  await hide(false);
  await lab.page.waitForFunction(() => document.querySelector('.tpu-Panel').dataset.link === 'live');
  assert.deepEqual(kinds(), ['comm_close', 'comm_open']);
});

test('another kernel has no panel, and hears nothing of it', limit, async () => {
  await lab.openCells('other.ipynb', 'print(1)');
  await shows('Idle');
  const change = name => lab.page.evaluate(kernel => window.panel.sessionContext.changeKernel({ name: kernel }).then(() => undefined), name);
  await change('python3');
  await panel().waitFor({ state: 'detached' });
  assert.equal(await item().count(), 0);
  assert.equal(await lab.page.evaluate(() => window.jupyterapp.commands.isVisible('tpu-stats:toggle')), false);
  await lab.waitStatus('idle');
  sent.length = 0;
  await lab.run(0);
  assert.deepEqual(sent.filter(frame => frame.includes('tpu.stats')), []);
  await change('pytorch-tpu');
  await shows('Idle');
  assert.equal(await item().count(), 1);
});

test('a console goes on with the figures when the notebook that shares its kernel is closed', limit, async () => {
  await lab.openCells('shared.ipynb', 'held = 1');
  await item().waitFor();
  if (!await panel().isVisible()) await item().click();
  await shows('Idle');
  await lab.page.evaluate(async () => {
    const { id } = window.panel.sessionContext.session.kernel;
    const { sessionContext } = await window.jupyterapp.commands.execute('console:create', { kernelPreference: { id }, activate: true });
    await sessionContext.ready;
  });
  await shows('Console');
  sent.length = 0;
  await lab.page.evaluate(() => window.panel.dispose());
  for (let tries = 0; tries < 300 && !sent.some(frame => frame.includes('comm_open')); tries += 1) await sleep(100);
  await lab.page.waitForFunction(() => document.querySelector('.tpu-Panel')?.dataset.link === 'live');
  await shows('Idle');
  assert.equal(sent.filter(frame => frame.includes('comm_open')).length, 1);
});

test('the settings open the panel with a page and say how often figures come', limit, async () => {
  const set = raw => lab.page.evaluate(text => window.jupyterapp.serviceManager.settings.save('pytorch-tpu-kernel:panel', text), raw);
  await lab.openLauncher();
  await set('{ "panelOnStart": true, "interval": 2000 }');
  try {
    sent.length = 0;
    // A new page: one that is loaded again opens what it had open.
    await lab.openCells('settings.ipynb', SETUP, TRAIN);
    await panel().waitFor();
    await lab.run(0);
    lab.begin(1).over.catch(() => undefined);
    await shows('Cell [2] has run');
    assert.ok(sent.some(frame => frame.includes('tpu.stats') && /"interval_ms": ?2000/.test(frame)), sent.filter(frame => frame.includes('comm')).join());
    await lab.interrupt();
    await lab.waitStatus('idle');
  } finally {
    await set('{}');
  }
});

test('the scripts are small', async () => {
  const folder = join(dirname(PYTHON), '../share/jupyter/labextensions/pytorch-tpu-kernel/static');
  const sizes = (await readdir(folder)).filter(name => name.endsWith('.js')).map(async name => (await stat(join(folder, name))).size);
  const size = (await Promise.all(sizes)).reduce((sum, each) => sum + each, 0);
  assert.ok(size > 10_000 && size <= 40_960, `${size} bytes`);
});

test('the console has no word of complaint about the panel', () => {
  assert.deepEqual(complaints, []);
});

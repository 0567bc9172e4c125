// Who holds HBM, the card of a full device and the line under a cell, as a person sees them in all themes,
// in VS Code's colours and in a narrow window.

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

test('the cards are read in all themes, in words as well as in colour', async () => {
  for (const theme of ['JupyterLab Light', 'JupyterLab Dark', 'JupyterLab Dark High Contrast']) {
    await lab.theme(theme);
    for (const [index, words] of [
      [1, /HBM[^]*in use[^]*optimizer state[^]*held by[^]*deleting it frees[^]*model[^]*nothing: also in[^]*bytes are in use/],
      [3, /freed[^]*loss[^]*reference cycles/],
      [4, /freed[^]*Deleted: [^]*model[^]*bytes are left/],
      [6, /out of HBM[^]*wanted 39.06 MiB[^]*logits = x @ W.T[^]*did not fit[^]*Would free 56.00 MiB: [^]*about \d+ would/],
    ]) {
      await lab.scrollTo(index);
      await lab.screenshot(`memory-${index}-${theme.toLowerCase().replaceAll(' ', '-')}`);
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
  assert.match(failed, /^[\d.]+ m?s · device busy .*\n {2}HBM \+0 B, now 136 MiB, peak 136 MiB$/);
  assert.deepEqual(more, []);
  assert.match((await lines(7)).join('\n'), /^[\d.]+ m?s · .* · launched 2(?: · |\n {2})HBM \+2.00 MiB, now 138 MiB, peak 138 MiB$/);
});

// VS Code's page of outputs: its variables in three of its themes, and what it says of every table and code.
const VSCODE = {
  light: ['#ffffff', '#3b3b3b', '#3b3b3b', '--vscode-textBlockQuote-background:#f8f8f8;'],
  dark: ['#1f1f1f', '#cccccc', '#9d9d9d', '--vscode-textBlockQuote-background:#2b2b2b;'],
  contrast: ['#000000', '#ffffff', 'rgba(255,255,255,.7)', ''],
};
const VSCODE_RULES = `table,thead,tr,th,td,tbody{border:none!important;border-spacing:0;border-collapse:collapse}
  table{width:100%}table,th,tr{text-align:left!important}th,td{padding:4px 8px}
  tr:nth-child(even){background-color:rgba(130,130,130,.08)}code{background-color:#8888;padding:1px 3px}`;

const NUMBERS = '.n, .n2 :is(td,th):nth-child(n+2), .n3 :is(td,th):nth-child(n+3)';

test('the cards are read in VS Code, in a narrow window too', async () => {
  const cards = [];
  for (const index of [1, 2, 3, 4, 6]) {
    cards.push([(await lab.outputs(index)).find(output => output.data?.['text/html'])?.data['text/html']].flat().join(''));
  }
  const page = await lab.browser.newPage();
  for (const [name, [background, text, muted, soft]] of Object.entries(VSCODE)) {
    for (const width of [360, 760]) {
      await page.setViewportSize({ width, height: 800 });
      await page.setContent(`<style>:root{--vscode-foreground:${text};--vscode-descriptionForeground:${muted};${soft}}
        body{background:${background}}${VSCODE_RULES}</style><body>${cards.join('')}</body>`);
      assert.equal(await page.locator('.tpuk').count(), cards.length);
      for (const card of await page.locator('.tpuk').all()) {
        const [least, where] = await card.evaluate(weakestContrast);
        assert.ok(least >= 4.5, `contrast ${least} of ${where} in ${name}`);
        const [needed, there, right] = await card.evaluate(element => [
          element.scrollWidth, element.clientWidth, element.getBoundingClientRect().right,
        ]);
        assert.ok(needed <= there && right <= width, `${needed} of ${there} in ${width}: ${await card.innerText()}`);
      }
      // numbers stand below each other, their headings too
      const aligned = await page.locator(NUMBERS).evaluateAll(cells => cells.map(cell => getComputedStyle(cell).textAlign));
      assert.deepEqual([...new Set(aligned)], ['right']);
    }
  }
  await page.close();
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

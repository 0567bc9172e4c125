// Lesson 1, run from top to bottom in JupyterLab, and what a person sees then.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Lab, ROOT, text } from './lab.mjs';

let lab;
let cells;

before(async () => {
  lab = await Lab.start();
  await lab.open('01-first-steps.ipynb', JSON.parse(await readFile(join(ROOT, 'notebooks/01-first-steps.ipynb'), 'utf8')));
  await lab.runAll();
  cells = (await lab.cells()).filter(cell => cell.cell_type === 'code');
}, { timeout: 300_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

/** The one code cell whose source holds `words`. */
function cellWith(words) {
  const found = cells.filter(cell => cell.source.includes(words));
  assert.equal(found.length, 1, `${found.length} cells with ${words}`);
  return found[0];
}

test('every cell ran, and only those that show an error have one', () => {
  assert.deepEqual(cells.map(cell => cell.execution_count), cells.map((_, i) => i + 1));
  const failed = cells.filter(cell => cell.outputs.some(output => output.output_type === 'error'));
  const meant = cells.filter(cell => cell.metadata.tags?.includes('raises-exception'));
  assert.deepEqual(failed.map(cell => cell.source), meant.map(cell => cell.source));
  assert.ok(meant.length >= 1);
});

test('nothing is written to stderr', () => {
  const noise = cells.flatMap(cell => cell.outputs).filter(output => output.name === 'stderr');
  assert.deepEqual(noise, []);
});

test('both trainings reach 95 % and the lesson says so', () => {
  const line = text(cells.at(-1).outputs);
  const [, eager, compiled] = line.match(/^All checks passed: ([\d.]+)% eager, ([\d.]+)% compiled\.\n$/);
  assert.ok(Number(eager) >= 95, line);
  assert.ok(Number(compiled) >= 95, line);
});

test('the compiled cell shows a card with what was measured', async () => {
  const { outputs } = cellWith('%%tpu_compile\nnetwork');
  const cards = outputs.filter(output => output.data?.['text/html']);
  assert.equal(cards.length, 1);
  const plain = [cards[0].data['text/plain']].flat().join('');
  const counted = name => Number(plain.match(new RegExp(`${name}\\s+([\\d,]+)`))[1].replace(',', ''));
  // Whoever ran the lesson before has left its programs in the cache.
  assert.ok(counted('programs compiled') + counted('cache hits') >= 1, plain);
  // 20 epochs of 10 batches: one program a step.
  assert.ok(counted('programs executed') >= 200, plain);
  assert.ok(counted('programs executed') < 400, plain);
});

test('the cards are on the page, in both themes, without a script', async () => {
  const index = (await lab.cells()).findIndex(cell => cell.source.startsWith('%%tpu_compile\nnetwork'));
  await lab.scrollTo(index);
  const card = lab.page.locator('.jp-Notebook .jp-RenderedHTMLCommon', { hasText: 'programs executed' }).first();
  await card.waitFor();
  const seen = [];
  for (const theme of ['JupyterLab Light', 'JupyterLab Dark']) {
    await lab.theme(theme);
    await lab.screenshot(`lesson-${theme.split(' ')[1].toLowerCase()}`);
    seen.push(await card.locator(':text("programs executed")').first().evaluate(element => getComputedStyle(element).color));
  }
  assert.notEqual(seen[0], seen[1], 'the card does not follow the theme');
  assert.equal(await card.locator('script').count(), 0);
});

test('%tpu_stats shows the memory of the chip', () => {
  const { outputs } = cellWith('%tpu_stats');
  assert.match(text(outputs), /^TPU v5e \(emulated\)\n {2}HBM in use {3}\d/);
  assert.equal(outputs.filter(output => output.data?.['text/html']).length, 1);
});

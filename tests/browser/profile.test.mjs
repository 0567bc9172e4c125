// The card of %%tpu_profile as it is shown: in both themes, and in a notebook that is not trusted.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Lab } from './lab.mjs';

const SETUP = `import time, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to("tpu")
x = torch.randn(32, 64).to("tpu")
opt = torch.optim.SGD(model.parameters(), lr=0.1)`;
const CELL = `%%tpu_profile
for _ in range(20):
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    loss.item()
time.sleep(0.2)
big = torch.randn(500, 500).to("tpu")
for _ in range(20): big = big @ big / 500
print(loss.item() > 0)`;

let lab;

before(async () => {
  lab = await Lab.start();
  await lab.openCells('profile.ipynb', SETUP, CELL);
  await lab.run(0);
  await lab.run(1);
  await lab.waitOutput(1, 'tpu_profile-2.json');
}, { timeout: 240_000 });

after(() => lab?.stop());

const card = () => lab.page.locator('.jp-OutputArea .tpuk').first();

async function reads() {
  const shown = await card().innerText();
  for (const words of ['profile', 'In[2], device busy', 'TPU v5e (emulated)', 'waits for Python', 'Python at line',
    'line or before', 'tpu_profile-2.json']) {
    assert.ok(shown.includes(words), `${words} is not in\n${shown}`);
  }
  const lanes = card().locator('img');
  assert.equal(await lanes.count(), 3);
  for (const lane of await lanes.all()) {
    const { width, height } = await lane.boundingBox();
    assert.ok(width > 300 && height >= 10 && height <= 14, `${width} × ${height}`);
    assert.match(await lane.getAttribute('alt'), /^(device busy|compiling|transfers): \d+ % of the time$/);
    assert.ok(await lane.evaluate(image => image.complete && image.naturalWidth === 240));
  }
}

for (const theme of ['JupyterLab Light', 'JupyterLab Dark']) {
  test(`the card is read in ${theme}`, async () => {
    await lab.theme(theme);
    await lab.scrollTo(1);
    await reads();
    await lab.screenshot(`profile-${theme.split(' ')[1].toLowerCase()}`);
  });
}

test('the file it names is there and is one Perfetto reads', async () => {
  const trace = JSON.parse(await readFile(join(lab.files, 'tpu_profile-2.json'), 'utf8'));
  assert.ok(trace.traceEvents.some(event => event.ph === 'X' && event.cat === 'execute'));
});

test('in a notebook that is not trusted it still has its words and its picture', async () => {
  const content = (await lab.rest('GET', 'contents/profile.ipynb')).content;
  content.cells = await lab.cells();
  content.cells.forEach(cell => { cell.metadata.trusted = false; });
  // Another text than what the server signed.
  content.metadata.changed = 'elsewhere';
  await lab.open('elsewhere.ipynb', content);
  const shown = lab.page.locator('.jp-OutputArea-output').filter({ hasText: 'device busy' }).first();
  await shown.waitFor();
  const words = await shown.innerText();
  for (const wanted of ['waits for Python', 'line or before', 'tpu_profile-2.json']) {
    assert.ok(words.includes(wanted), `${wanted} is not in\n${words}`);
  }
  assert.equal(await shown.locator('style').count(), 0);
  const box = await shown.locator('img').first().boundingBox();
  assert.ok(box.width > 300 && box.height >= 10 && box.height <= 14, `${box.width} × ${box.height}`);
  await shown.scrollIntoViewIfNeeded();
  await lab.screenshot('profile-untrusted');
});

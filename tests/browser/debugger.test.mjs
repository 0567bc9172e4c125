// JupyterLab's debugger panel: the bug is switched on, a breakpoint is clicked into the gutter, the
// cell stops there, its variables are shown, it steps, and it goes on.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab, text } from './lab.mjs';

const CELL = `def double(number):
    result = number * 2
    return result
total = 0
for each in range(3):
    total += double(each)
print("total", total)`;

let lab;
before(async () => { lab = await Lab.start(); });
after(async () => { await lab?.stop(); });

const panel = () => lab.page.locator('.jp-DebuggerSidebar');
const variables = async () => (await panel().locator('.jp-DebuggerVariables').innerText()).replace(/\s+/g, ' ');
const standsAt = (name, line) => panel().locator('.jp-DebuggerCallstackFrame.selected', { hasText: new RegExp(`^${name}Cell .*:${line}$`) });

async function press(command) {
  await panel().locator(`[data-command="debugger:${command}"]`).click();
}

test('a cell stops at a breakpoint of the gutter, shows its variables, steps and goes on', { timeout: 120_000 }, async () => {
  await lab.openCells('debugger.ipynb', CELL, '1 + 1');
  await lab.page.locator('.jp-DebuggerBugButton').first().click();
  await lab.page.locator('.jp-DebuggerBugButton[aria-pressed="true"]').first().waitFor();
  await panel().waitFor();
  // Nothing but what the notebook has: it is empty.
  assert.equal(await variables(), '');
  // The first of its elements only measures.
  const line = lab.page.locator('.jp-Notebook .jp-Cell').first().locator('.cm-breakpoint-gutter .cm-gutterElement').nth(2);
  await line.click();
  await panel().locator('.jp-DebuggerBreakpoint').waitFor();
  const { over } = lab.begin(0);
  await standsAt('double', 2).waitFor();
  await lab.screenshot('debugger-stopped');
  assert.match(await variables(), /number:? ?0/);

  await press('next');
  await standsAt('double', 3).waitFor();
  await lab.page.waitForFunction(() => /result:? ?0/.test(document.querySelector('.jp-DebuggerVariables').innerText.replace(/\s+/g, ' ')));
  await press('continue');
  await standsAt('double', 2).waitFor();
  await lab.page.waitForFunction(() => /number:? ?1/.test(document.querySelector('.jp-DebuggerVariables').innerText.replace(/\s+/g, ' ')));
  await lab.screenshot('debugger-second-stop');

  await panel().locator('.jp-DebuggerBreakpoint').first().waitFor();
  await line.click();
  await panel().locator('.jp-DebuggerBreakpoint').waitFor({ state: 'detached' });
  await press('continue');
  await over;
  assert.equal(text(await lab.outputs(0)), 'total 6\n');
  await lab.screenshot('debugger-over');
});

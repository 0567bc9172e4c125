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
// They are asked for, and shown, after the stack is.
const shows = (name, value) => lab.page.waitForFunction(([shownName, shownValue]) => {
  const items = [...document.querySelectorAll('.jp-DebuggerVariables .jp-TreeItem')];
  return items.some(item => item.querySelector('.jp-DebuggerVariables-name')?.textContent === shownName
    && item.querySelector('.jp-DebuggerVariables-detail')?.textContent === shownValue);
}, [name, value]);
const standsAt = (name, line) => panel().locator('.jp-DebuggerCallstackFrame.selected', { hasText: new RegExp(`^${name}Cell .*:${line}$`) });

// A click does nothing until Lab knows that the kernel can be debugged, and the button does not show when.
async function switchOn() {
  const button = lab.page.locator('.jp-DebuggerBugButton').first();
  const pressed = lab.page.locator('.jp-DebuggerBugButton[aria-pressed="true"]').first();
  for (let tries = 1; !await pressed.isVisible(); tries += 1) {
    await button.click();
    await pressed.waitFor({ timeout: 10_000 }).catch(error => { if (tries === 5) throw error; });
  }
}

async function press(command) {
  await panel().locator(`[data-command="debugger:${command}"]`).click();
}

test('a cell stops at a breakpoint of the gutter, shows its variables, steps and goes on', { timeout: 300_000 }, async () => {
  await lab.openCells('debugger.ipynb', CELL, '1 + 1');
  await switchOn();
  // Lab opens the sidebar by itself only when another panel of it is open.
  const tab = lab.page.locator('.jp-SideBar [data-id="jp-debugger-sidebar"]');
  if (!await panel().isVisible()) await tab.click();
  await panel().waitFor();
  // Nothing but what the notebook has: it is empty.
  assert.equal(await panel().locator('.jp-DebuggerVariables .jp-TreeItem').count(), 0);
  // The first of its elements only measures.
  const line = lab.page.locator('.jp-Notebook .jp-Cell').first().locator('.cm-breakpoint-gutter .cm-gutterElement').nth(2);
  await line.click();
  await panel().locator('.jp-DebuggerBreakpoint').waitFor();
  const { over } = lab.begin(0);
  await standsAt('double', 2).waitFor();
  await shows('number', '0');
  await lab.screenshot('debugger-stopped');

  await press('next');
  await standsAt('double', 3).waitFor();
  await shows('result', '0');
  await press('continue');
  await standsAt('double', 2).waitFor();
  await shows('number', '1');
  await lab.screenshot('debugger-second-stop');

  await panel().locator('.jp-DebuggerBreakpoint').first().waitFor();
  await line.click();
  await panel().locator('.jp-DebuggerBreakpoint').waitFor({ state: 'detached' });
  await press('continue');
  await over;
  assert.equal(text(await lab.outputs(0)), 'total 6\n');
  await lab.screenshot('debugger-over');
});

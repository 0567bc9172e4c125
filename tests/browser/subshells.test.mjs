// What JupyterLab does beside a running cell: comms and consoles in subshells, the usage panel.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab, sleep, text } from './lab.mjs';

let lab;
const warnings = [];
before(async () => {
  lab = await Lab.start();
  lab.page.on('console', message => {
    if (['warning', 'error'].includes(message.type())) warnings.push(message.text());
  });
}, { timeout: 120_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

const limit = { timeout: 300_000 };
const BUSY = 'import time\nprint("begun")\ntime.sleep(600)';
const ECHO = `import comm, threading
def opened(channel, message):
    channel.on_msg(lambda heard: channel.send(heard["content"]["data"] | {"main": threading.current_thread() is threading.main_thread()}))
comm.get_comm_manager().register_target("echo", opened)
print("ready")`;

/** Opens a comm as an extension does, and gives what comes back over it. */
function echo() {
  return lab.page.evaluate(async () => {
    const { kernel } = window.panel.sessionContext.session;
    await kernel.info;
    const channel = kernel.createComm('echo');
    await channel.subshellStarted;
    const answer = new Promise(heard => { channel.onMsg = message => heard(message.content.data); });
    channel.open({});
    channel.send({ word: 'hello' });
    const data = await answer;
    // Not waited for: JupyterLab deletes the comm's subshell at the same time, over another socket. When that
    // comes first the close is left to the main shell, which is busy.
    channel.close().done.catch(() => undefined);
    return data;
  });
}

/** The `idle` of what was answered beside the cell is followed at once by the cell's `busy`. */
async function staysBusy() {
  await lab.waitStatus('busy', 5_000);
  await sleep(500);
  assert.equal(await lab.status(), 'busy');
}

test('an extension hears from the kernel while a cell runs, also after a reload and a restart', limit, async () => {
  await lab.openCells('comms.ipynb', ECHO, BUSY);
  await lab.run(0);
  assert.deepEqual(await echo(), { word: 'hello', main: false });
  for (const again of [false, true]) {
    if (again) {
      await lab.restart();
      await lab.run(0);
    }
    lab.begin(1).over.catch(() => undefined);
    await lab.waitOutput(1, 'begun');
    assert.deepEqual(await echo(), { word: 'hello', main: false });
    await staysBusy();
    await lab.reload('comms.ipynb');
    await lab.waitStatus('busy');
    assert.deepEqual(await echo(), { word: 'hello', main: false });
    await staysBusy();
  }
  await lab.restart();
  assert.equal(text(await lab.run(0)), 'ready\n');
  assert.deepEqual(await echo(), { word: 'hello', main: false });
  assert.deepEqual(warnings.filter(line => /subshell/i.test(line)), []);
});

test('a subshell console runs beside a busy cell, and says so when the kernel was restarted', limit, async () => {
  await lab.openCells('console.ipynb', BUSY);
  lab.begin(0).over.catch(() => undefined);
  await lab.waitOutput(0, 'begun');
  await lab.command('notebook:create-subshell-console');
  await lab.page.waitForFunction(() => {
    const found = [...window.jupyterapp.shell.widgets('main')].find(widget => widget.console);
    window.beside = found?.console;
    return Boolean(found?.console.sessionContext.session?.kernel?.subshellId);
  });
  // Not waited for: JupyterLab forgets what it was asked while a kernel restarts.
  const inject = code => lab.page.evaluate(line => { void window.beside.inject(line).catch(() => undefined); }, code);
  const shown = lab.page.locator('.jp-CodeConsole-content');
  await inject('print("beside", time.time() > 0)');
  await shown.getByText('beside True').waitFor();
  assert.equal(await lab.status(), 'busy');
  await lab.screenshot('subshell-console');
  await lab.restart();
  await lab.page.waitForFunction(() => window.beside.sessionContext.session.kernel.connectionStatus === 'connected');
  for (let tries = 1; ; tries += 1) {
    await inject('print("again")');
    try {
      await shown.getByText('there is no subshell').first().waitFor({ timeout: 8_000 });
      break;
    } catch (error) {
      if (tries === 4) throw error;
    }
  }
});

test('the usage panel shows the kernel while a cell runs', limit, async () => {
  await lab.openCells('usage.ipynb', BUSY);
  lab.begin(0).over.catch(() => undefined);
  await lab.waitOutput(0, 'begun');
  await lab.page.evaluate(() => window.jupyterapp.shell.activateById('kernelusage-panel-id'));
  const panel = lab.page.locator('.jp-KernelUsage-content');
  await panel.getByText(/^Memory: \d+\.\d\d MB$/).waitFor();
  await panel.getByText(/^CPU: \d/).waitFor();
  await panel.getByText(/^Process ID: \d+$/).waitFor();
  await panel.getByText(/^Available: \d+\.\d\d GB$/).waitFor();
  assert.equal(await lab.status(), 'busy');
  await lab.screenshot('usage');
  await lab.interrupt();
  await lab.waitStatus('idle');
});

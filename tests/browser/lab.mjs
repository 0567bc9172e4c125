// JupyterLab in headless Chromium, as a person would use it: a server on a free port with
// folders of its own, one page, and the few things the tests do there.
//
// A cell is over when the promise of Lab's own command is; what it printed is read from the
// notebook's model, since the cells on screen lag behind it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const HERE = dirname(fileURLToPath(import.meta.url));
export const ROOT = resolve(HERE, '../..');
export const PYTHON = process.env.TPU_KERNEL_TEST_PYTHON ?? join(ROOT, '.venv/bin/python');
export const KERNEL = process.env.TPU_KERNEL_TEST_KERNEL ?? 'pytorch-tpu';
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** Milliseconds that anything may take on a busy machine. What never comes fails then; nothing waits so long. */
export const PATIENCE = 90_000;
const TOKEN = 'browser-tests';
const SHOTS = join(HERE, 'screenshots');
const QUIET = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export class Lab {
  /** A server with an empty folder, and a browser. */
  static async start() {
    const lab = new Lab();
    lab.folder = await mkdtemp(join(tmpdir(), 'lab-'));
    lab.files = join(lab.folder, 'files');
    await mkdir(lab.files);
    try {
      await lab.#startServer();
      lab.browser = await chromium.launch({ executablePath: CHROMIUM, args: QUIET });
      const context = await lab.browser.newContext({ viewport: { width: 1280, height: 860 } });
      context.setDefaultTimeout(PATIENCE);
      lab.page = await context.newPage();
      lab.errors = [];
      lab.page.on('pageerror', error => lab.errors.push(String(error)));
      lab.page.on('requestfailed', request => lab.errors.push(`${request.failure()?.errorText} ${request.url()}`));
    } catch (error) {
      await lab.stop();
      throw error;
    }
    return lab;
  }

  async #startServer() {
    const at = name => join(this.folder, name);
    this.shared = basename(this.folder);
    const settings = at('settings/@jupyterlab/apputils-extension');
    await mkdir(settings, { recursive: true });
    // Its toast covers a corner of every screenshot, and would ask the network.
    await writeFile(join(settings, 'notification.jupyterlab-settings'), '{"fetchNews": "false"}');
    const env = {
      ...process.env,
      JUPYTER_CONFIG_DIR: at('config'), JUPYTER_DATA_DIR: at('data'), JUPYTER_RUNTIME_DIR: at('runtime'),
      JUPYTERLAB_SETTINGS_DIR: at('settings'), JUPYTERLAB_WORKSPACES_DIR: at('workspaces'),
      IPYTHONDIR: at('ipython'),
      // Programs compiled by an earlier kernel are not there yet.
      TPU_KERNEL_CACHE: at('cache'), TORCH_TPU_TIER2_COMPILATION_CACHE: this.shared,
    };
    delete env.PYTHONDONTWRITEBYTECODE;
    const port = await freePort();
    this.url = `http://127.0.0.1:${port}`;
    this.log = '';
    this.server = spawn(PYTHON, ['-m', 'jupyterlab', '--no-browser', '--allow-root', '--ServerApp.ip=127.0.0.1',
      `--ServerApp.port=${port}`, '--ServerApp.port_retries=0', `--IdentityProvider.token=${TOKEN}`,
      `--ServerApp.root_dir=${this.files}`, '--LabApp.expose_app_in_browser=True',
      '--JupyterNotebookApp.expose_app_in_browser=True'],
    { env, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.server.stdout, this.server.stderr]) {
      stream.on('data', text => { this.log += text; });
    }
    for (let tries = 0; tries < PATIENCE / 200; tries += 1) {
      if (this.server.exitCode !== null) throw new Error(`JupyterLab ended at its start:\n${this.log}`);
      try {
        if ((await fetch(`${this.url}/api?token=${TOKEN}`)).ok) return;
      } catch { /* not listening yet */ }
      await sleep(200);
    }
    throw new Error(`JupyterLab did not answer:\n${this.log}`);
  }

  async stop() {
    await this.browser?.close();
    if (this.server && this.server.exitCode === null) {
      this.server.kill('SIGTERM');
      const patience = setTimeout(() => this.server.kill('SIGKILL'), 20_000);
      if (this.server.exitCode === null) await once(this.server, 'exit');
      clearTimeout(patience);
    }
    await rm(join('/dev/shm/torch_tpu_cache', this.shared), { recursive: true, force: true });
    await rm(this.folder, { recursive: true, force: true });
  }

  /** The server's REST interface. */
  async rest(method, path, body) {
    const answer = await fetch(`${this.url}/api/${path}`, {
      method, headers: { Authorization: `token ${TOKEN}` }, body: body && JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer.status === 204 ? undefined : answer.json();
  }

  /** Opens Lab without a file: the launcher. */
  async openLauncher() {
    await this.#visit('');
    await this.page.locator('.jp-LauncherCard').first().waitFor();
  }

  /** Writes `notebook` as `name` with the kernel under test, opens it, waits for an idle kernel. */
  async open(name, notebook) {
    const { kernelspecs } = await this.rest('GET', 'kernelspecs');
    const { display_name, language } = kernelspecs[KERNEL].spec;
    // With the kernel in the file Lab does not ask which one to use.
    notebook.metadata.kernelspec = { name: KERNEL, display_name, language };
    await this.rest('PUT', `contents/${name}`, { type: 'notebook', format: 'json', content: notebook });
    await this.#visit(`/tree/${name}`);
    await this.#waitForKernel(name);
  }

  /** Opens a notebook, with the kernel it has, in Notebook 7. */
  async openInNotebook(name) {
    await this.page.goto(`${this.url}/notebooks/${name}?token=${TOKEN}`);
    await this.#waitForKernel(name);
  }

  /** Loads the page again and waits until it shows the notebook again; the kernel may be busy. */
  async reload(name) {
    await this.page.reload();
    await this.#waitForKernel(name, 'connectionStatus', 'connected');
  }

  async #waitForKernel(name, state = 'status', wanted = 'idle') {
    try {
      await this.page.waitForFunction(([path, key, value]) => {
        for (const widget of window.jupyterapp?.shell.widgets('main') ?? []) {
          if (widget.context?.path === path && widget.sessionContext?.session?.kernel?.[key] === value) {
            window.panel = widget;
            return true;
          }
        }
        return false;
      }, [name, state, wanted]);
    } catch (error) {
      throw new Error(`${error.message}\n${await this.#situation()}`);
    }
  }

  /** What a failure far from here needs to be understood: what the page shows, and the server's last words. */
  async #situation() {
    await this.screenshot('failure');
    const shown = await this.page.evaluate(() => ({
      address: location.href,
      application: window.jupyterapp?.name,
      dialogs: [...document.querySelectorAll('.jp-Dialog-content')].map(dialog => dialog.innerText),
      open: [...window.jupyterapp?.shell.widgets('main') ?? []].map(({ context, sessionContext: session }) => ({
        path: context?.path, ready: context?.isReady, session: session?.isReady, kernel: session?.session?.kernel?.status,
        connection: session?.session?.kernel?.connectionStatus,
      })),
    }));
    return `${JSON.stringify(shown)}\n${this.errors.join('\n')}\n${this.log.split('\n').slice(-30).join('\n')}`;
  }

  async #visit(path) {
    const workspace = `w${Math.random().toString(36).slice(2)}`;
    await this.page.goto(`${this.url}/lab/workspaces/${workspace}${path}?reset&token=${TOKEN}`);
    await this.page.waitForFunction(() => Boolean(window.jupyterapp));
    await this.page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
  }

  /** Opens an untitled notebook with these code cells. */
  async openCells(name, ...cells) {
    await this.open(name, { nbformat: 4, nbformat_minor: 5, metadata: {}, cells: cells.map((source, i) => (
      { cell_type: 'code', id: `cell-${i}`, metadata: {}, source, outputs: [], execution_count: null }
    )) });
  }

  /** Runs one of Lab's commands to its end. */
  command(id) {
    return this.page.evaluate(name => window.jupyterapp.commands.execute(name).then(() => undefined), id);
  }

  /** Starts a cell; `await` the result's `over` for its end. */
  begin(index) {
    const over = this.page.evaluate(i => {
      window.panel.content.activeCellIndex = i;
      return window.jupyterapp.commands.execute('notebook:run-cell').then(() => undefined);
    }, index);
    return { over };
  }

  async run(index) {
    await this.begin(index).over;
    return this.outputs(index);
  }

  /** Runs all cells. Lab's own promise ends at the first error, even at one that is meant. */
  async runAll(timeout = 240_000) {
    await this.command('notebook:run-all-cells');
    await this.page.waitForFunction(() => {
      const cells = window.panel.content.model.sharedModel.cells.filter(cell => cell.cell_type === 'code');
      return cells.every(cell => cell.execution_count !== null) && window.panel.sessionContext.session?.kernel?.status === 'idle';
    }, undefined, { timeout });
  }

  /** What every cell of the open notebook holds now. */
  cells() {
    return this.page.evaluate(() => window.panel.content.model.sharedModel.cells.map(cell => cell.toJSON()));
  }

  async outputs(index) {
    return (await this.cells())[index].outputs;
  }

  /** Waits until the text of a cell's outputs holds `text`. */
  async waitOutput(index, text) {
    await this.page.waitForFunction(([i, wanted]) => {
      const { outputs } = window.panel.content.model.sharedModel.cells[i].toJSON();
      return outputs.some(output => [output.text ?? output.data?.['text/plain'] ?? ''].flat().join('').includes(wanted));
    }, [index, text]);
  }

  /** Lab's word for the kernel's state: idle, busy, restarting, ... */
  status() {
    return this.page.evaluate(() => window.panel.sessionContext.session.kernel.status);
  }

  async waitStatus(status) {
    await this.page.waitForFunction(wanted => window.panel.sessionContext.session?.kernel?.status === wanted, status);
  }

  interrupt() {
    return this.command('notebook:interrupt-kernel');
  }

  /** Restarts the kernel through Lab's dialog. */
  async restart() {
    const over = this.command('notebook:restart-kernel');
    await this.page.locator('.jp-Dialog .jp-mod-accept').click();
    await over;
    await this.waitStatus('idle');
  }

  /** Brings a cell to the top of the page. */
  async scrollTo(index) {
    await this.page.evaluate(async i => {
      const { content } = window.panel;
      content.activeCellIndex = i;
      await content.scrollToItem(i, 'start');
    }, index);
    await sleep(500);
  }

  async theme(name) {
    await this.page.evaluate(theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme }).then(() => undefined), name);
    await this.page.waitForFunction(theme => document.body.dataset.jpThemeName === theme, name);
    await sleep(500);
  }

  async screenshot(name) {
    await mkdir(SHOTS, { recursive: true });
    await this.page.screenshot({ path: join(SHOTS, `${name}.png`) });
  }
}

/** The text of outputs, one after the other: what was printed, shown or raised. */
export function text(outputs) {
  return outputs.map(output => {
    if (output.output_type === 'error') return `${output.ename}: ${output.evalue}`;
    return [output.text ?? output.data['text/plain'] ?? ''].flat().join('');
  }).join('');
}

export function sleep(milliseconds) {
  return new Promise(done => { setTimeout(done, milliseconds); });
}

async function freePort() {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

// Widgets and what draws with them, in JupyterLab: what a person moves arrives in the kernel, what
// the kernel moves is seen at once, and a page that is loaded anew shows all of it again.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Lab, sleep, text } from './lab.mjs';

let lab;
before(async () => { lab = await Lab.start(); }, { timeout: 120_000 });
after(async () => { await lab?.stop(); }, { timeout: 60_000 });

const limit = { timeout: 300_000 };

/** The output area of a cell on the page. */
function area(index) {
  return lab.page.locator('.jp-NotebookPanel:visible .jp-CodeCell').nth(index).locator('.jp-Cell-outputArea');
}

test('a slider that is moved changes its value in the kernel, and the kernel moves the slider', limit, async () => {
  await lab.openCells('slider.ipynb',
    'import ipywidgets as widgets\nslider = widgets.IntSlider(value=5, max=30, description="depth")\nslider',
    'print(slider.value)', 'slider.value = 21');
  await lab.run(0);
  const handle = area(0).locator('.noUi-handle');
  await handle.focus();
  for (let i = 0; i < 3; i += 1) await handle.press('ArrowRight');
  await area(0).locator('.widget-readout', { hasText: '8' }).waitFor();
  // The page sends the last value once the kernel has answered to the one before: a cell may come first.
  let value = text(await lab.run(1));
  for (let i = 0; i < 20 && value !== '8\n'; i += 1) value = text(await lab.run(1));
  assert.equal(value, '8\n');
  await lab.run(2);
  await area(0).locator('.widget-readout', { hasText: '21' }).waitFor();
});

test('interact runs its function again with each value', limit, async () => {
  await lab.openCells('interact.ipynb',
    'from ipywidgets import interact\n@interact(n=(0, 10))\ndef square(n=4):\n    print(f"{n} squared is {n * n}")');
  await lab.run(0);
  await area(0).getByText('4 squared is 16').waitFor();
  const handle = area(0).locator('.noUi-handle');
  await handle.focus();
  await handle.press('ArrowRight');
  await handle.press('ArrowRight');
  await area(0).getByText('6 squared is 36').waitFor();
  assert.equal(await area(0).getByText('squared').count(), 1);
});

test('a bar moves while its cell runs, is there again after a reload, and moves on', limit, async () => {
  await lab.openCells('bar.ipynb',
    'import time\nimport ipywidgets as widgets\nfrom tqdm.auto import tqdm\nslider = widgets.IntSlider(value=7, description="kept")\nslider',
    'for epoch in tqdm(range(200), desc="epochs"):\n    time.sleep(0.3)');
  await lab.run(0);
  lab.begin(1).over.catch(() => undefined);
  const percent = () => area(1).locator('.progress-bar').evaluate(element => Number.parseFloat(element.style.width));
  /** Waits until the bar is further than `before`. */
  const moved = async before => {
    for (let tries = 0; tries < 300; tries += 1) {
      const now = await percent();
      if (now > before) return now;
      await sleep(100);
    }
    throw new Error(`the bar stood still at ${before} %`);
  };
  await area(1).getByText('epochs').waitFor();
  await lab.screenshot('widgets-bar-busy');
  await lab.command('docmanager:save'); // a page shows again what was saved
  const before = await moved(await percent());
  await lab.reload('bar.ipynb');
  await area(0).getByText('kept').waitFor();
  await area(1).getByText('epochs').waitFor();
  assert.equal(await lab.status(), 'busy');
  await moved(await moved(before));
  assert.equal(await lab.status(), 'busy');
  await lab.screenshot('widgets-bar-reloaded');
  await lab.interrupt();
  await lab.waitStatus('idle');
  await area(1).locator('.progress-bar-danger').waitFor();
});

test('widgets are there again after a reload between cells, and a restarted kernel makes new ones', limit, async () => {
  await lab.openCells('reload-idle.ipynb',
    'import ipywidgets as widgets\nslider = widgets.IntSlider(value=4, description="again")\nslider',
    'print(slider.value)');
  await lab.run(0);
  await area(0).getByText('again').waitFor();
  await lab.command('docmanager:save');
  await lab.reload('reload-idle.ipynb');
  const handle = area(0).locator('.noUi-handle');
  await handle.waitFor();
  await handle.focus();
  await handle.press('ArrowRight');
  await area(0).locator('.widget-readout', { hasText: '5' }).waitFor();
  assert.equal(text(await lab.run(1)), '5\n');
  await lab.restart();
  assert.equal(text(await lab.run(1)), "NameError: name 'slider' is not defined");
  await lab.run(0);
  await handle.waitFor();
  assert.equal(text(await lab.run(1)), '4\n');
});

test('a callback prints into its Output widget, and what it raises is in the log', limit, async () => {
  await lab.openCells('button.ipynb', [
    'import threading', 'import ipywidgets as widgets', 'out = widgets.Output()',
    'def fail(button):', '    raise ValueError("the button is broken")',
    'def work():', '    with out:', '        print("from a thread")',
    'def start(button):', '    with out:', '        print("pressed")', '    threading.Thread(target=work).start()',
    'good, bad = widgets.Button(description="start"), widgets.Button(description="fail")',
    'good.on_click(start)', 'bad.on_click(fail)', 'widgets.VBox([widgets.HBox([good, bad]), out])'].join('\n'));
  await lab.run(0);
  await lab.command('logconsole:open');
  await area(0).getByRole('button', { name: 'start' }).click();
  await area(0).getByText('from a thread').waitFor();
  assert.deepEqual((await area(0).locator('.jp-OutputArea-output pre').allInnerTexts()).join('').trim().split('\n'),
    ['pressed', 'from a thread']);
  await area(0).getByRole('button', { name: 'fail' }).click();
  await lab.page.locator('.jp-LogConsolePanel').getByText('ValueError: the button is broken').waitFor();
  await lab.screenshot('widgets-callback-error');
});

const GALLERY = {
  controls: ['import ipywidgets as w, matplotlib.pyplot as plt, numpy as np, pandas as pd',
    'tabs = w.Tab([w.HBox([w.Dropdown(options=["sgd", "adam"], description="optimizer"), w.FloatLogSlider(description="lr"),',
    '    w.ToggleButtons(options=["eager", "compiled"])]), w.Textarea("notes")], titles=["train", "notes"])',
    'w.VBox([tabs, w.HBox([w.Checkbox(description="shuffle"), w.DatePicker(description="from"), w.ColorPicker(value="#4285f4"), w.FileUpload()])])'],
  bars: ['from tqdm.auto import tqdm', 'from tqdm.contrib import tenumerate',
    'for epoch in tqdm(range(3), desc="epochs"):', '    for step in tqdm(range(40), desc="steps", leave=epoch == 2): pass',
    'try:', '    for n in tqdm(range(10), desc="fails"):', '        if n == 6: raise KeyError(n)', 'except KeyError: pass'],
  rich: ['from rich.console import Console', 'from rich.progress import track', 'from rich.table import Table',
    'table = Table("layer", "shape", title="[bold]model[/]")', 'table.add_row("conv1", "[green]3x64x7x7[/]")',
    'table.add_row("fc", "[red]512x10[/]")', 'Console().print(table)', 'for _ in track(range(20), description="steps"): pass'],
  pandas: ['pd.DataFrame(np.arange(12).reshape(3, 4), columns=list("abcd")).style.background_gradient().set_caption("styled")'],
  inline: ['fig, axes = plt.subplots(figsize=(5, 2))', 'axes.plot(np.sin(np.arange(60) / 5))', 'axes.set_title("inline");'],
  ipympl: ['%matplotlib widget', 'fig, axes = plt.subplots(figsize=(5, 2))', 'axes.plot([1, 3, 2])', 'plt.show()'],
  plotly: ['import plotly.graph_objects as go', 'go.Figure(go.Bar(y=[2, 3, 1]), layout=dict(height=220, title="plotly figure"))'],
  figurewidget: ['live = go.FigureWidget(go.Scatter(y=[2, 3, 1]), layout=dict(height=220, title="before"))', 'live'],
  panel: ['import panel as pn', 'pn.extension(inline=True)', 'size = pn.widgets.IntSlider(name="size", start=0, end=10, value=3)',
    'pn.Column(size, pn.pane.Markdown(pn.bind(lambda n: f"size is **{n}**", size)))'],
  anywidget: ['import anywidget, traitlets', 'class Counter(anywidget.AnyWidget):', '    _esm = """', 'function render({ model, el }) {',
    '  const button = document.createElement("button");', '  const show = () => { button.textContent = `count is ${model.get("count")}`; };',
    '  button.onclick = () => {', '    model.set("count", model.get("count") + 1);',
    '    model.set("raw", new DataView(new Uint8Array(1 << 20).fill(7).buffer));', '    model.save_changes();', '  };',
    '  model.on("change:count", show);', '  show();', '  el.appendChild(button);', '}', 'export default { render };', '"""',
    '    count = traitlets.Int(0).tag(sync=True)', '    raw = traitlets.Any(b"").tag(sync=True)', 'counter = Counter()', 'counter'],
  update: ['live.layout.title.text = "after"'],
  answers: ['print(size.value, counter.count, len(counter.raw), set(bytes(counter.raw)))'],
};

test('a Bokeh plot is drawn, and changed by push_notebook', limit, async () => {
  await lab.openCells('bokeh.ipynb', [
    'from bokeh.io import output_notebook, push_notebook', 'from bokeh.plotting import figure, show', 'from bokeh.resources import INLINE',
    'output_notebook(INLINE, hide_banner=True)', 'plot = figure(height=200, width=400, title="before")', 'plot.line([1, 2, 3], [3, 1, 2])',
    'handle = show(plot, notebook_handle=True)'].join('\n'), 'plot.title.text = "after"\npush_notebook(handle=handle)');
  await lab.run(0);
  await area(0).locator('.bk-Figure canvas').first().waitFor();
  await lab.run(1);
  await lab.page.waitForFunction(() => window.Bokeh.documents.some(
    document => document.roots().some(root => root.title?.text === 'after')));
  await lab.screenshot('widgets-bokeh');
});

test('a gallery of libraries, in both themes', { timeout: 400_000 }, async () => {
  const names = Object.keys(GALLERY);
  const cell = name => area(names.indexOf(name));
  const show = async name => {
    await lab.scrollTo(names.indexOf(name));
    return cell(name);
  };
  await lab.page.setViewportSize({ width: 1280, height: 1400 });
  await lab.openCells('gallery.ipynb', ...names.map(name => GALLERY[name].join('\n')));
  for (const name of names.slice(0, -2)) {
    const outputs = await lab.run(names.indexOf(name));
    assert.deepEqual(outputs.filter(output => output.output_type === 'error'), [], name);
  }
  await (await show('controls')).getByText('optimizer').waitFor();
  await cell('bars').locator('.progress-bar-danger').waitFor();
  await (await show('pandas')).getByText('styled').waitFor();
  await (await show('inline')).locator('img').waitFor();
  await (await show('ipympl')).locator('.jupyter-matplotlib-canvas-container canvas').first().waitFor();
  await (await show('plotly')).locator('.gtitle', { hasText: 'plotly figure' }).waitFor();
  await (await show('figurewidget')).locator('.gtitle', { hasText: 'before' }).waitFor();
  const slider = (await show('panel')).locator('.noUi-handle');
  await cell('panel').getByText('size is 3').waitFor();
  await slider.focus();
  await slider.press('ArrowRight');
  await cell('panel').getByText('size is 4').waitFor();
  const button = (await show('anywidget')).getByRole('button', { name: 'count is 0' });
  await button.click();
  await cell('anywidget').getByRole('button', { name: 'count is 1' }).waitFor();
  await lab.run(names.indexOf('update'));
  await (await show('figurewidget')).locator('.gtitle', { hasText: 'after' }).waitFor();
  assert.equal(text(await lab.run(names.indexOf('answers'))), '4 1 1048576 {7}\n');
  for (const theme of ['JupyterLab Light', 'JupyterLab Dark']) {
    await lab.theme(theme);
    for (const name of ['controls', 'inline', 'panel']) {
      await show(name);
      await lab.screenshot(`gallery-${name}-${theme.split(' ')[1].toLowerCase()}`);
    }
  }
  await lab.theme('JupyterLab Light');
});

// Live figures of PyTorch (TPU) kernels, in JupyterLab and Notebook 7.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { element } from './dom';
import type { Mode } from './sample';
import { StatusItem } from './status';
import { View, type Place } from './view';

/** Where the scripts and what is shipped beside them are; the bundler fills it in. */
declare const __webpack_public_path__: string;

const ID = 'pytorch-tpu-kernel:panel';

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Shows live what a PyTorch (TPU) kernel and its chip do',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [IConsoleTracker, IStatusBar, ICommandPalette, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    consoles: IConsoleTracker | null,
    bar: IStatusBar | null,
    palette: ICommandPalette | null,
    settings: ISettingRegistry | null,
  ) => {
    document.head.append(element('link', { rel: 'stylesheet', href: `${__webpack_public_path__}panel.css` }));
    const view = new View(app);
    addCommands(app, view, palette);
    const open = () => view.toggle();

    if (bar) {
      const item = new StatusItem(open);
      bar.registerStatusItem(ID, {
        item,
        align: 'left',
        rank: 50,
        isActive: () => item.isActive,
        activeStateChanged: item.activeChanged,
      });
      view.addItem(item);
    } else {
      // Notebook 7 has no status bar, and one notebook on a page.
      notebooks.widgetAdded.connect((_, panel: NotebookPanel) => {
        const item = new StatusItem(open);
        panel.toolbar.addItem('tpu-stats', item);
        view.addItem(item);
      });
    }

    let last: Place | null = null;
    const look = () => {
      const front = app.shell.currentWidget;
      // A text file in front: the notebook beside it is still the one that is worked with.
      if (front && (notebooks.has(front) || consoles?.has(front))) last = front as Place;
      else if (!last || last.isDisposed) last = notebooks.currentWidget ?? consoles?.currentWidget ?? null;
      view.look(last);
    };
    app.shell.currentChanged?.connect(look);
    for (const tracker of [notebooks, consoles]) {
      tracker?.currentChanged.connect(look);
      // It may be in front before it is known to be a notebook.
      tracker?.widgetAdded.connect(look);
    }

    const configure = (chosen?: ISettingRegistry.ISettings) => {
      if (chosen) view.rate = Number(chosen.composite['interval'] ?? view.interval);
    };
    void Promise.all([settings?.load(ID).catch(() => undefined), app.restored]).then(([chosen]) => {
      configure(chosen);
      chosen?.changed.connect(configure);
      view.startWith(chosen?.composite['panelOnStart'] === true);
      look();
    });
  },
};

function addCommands(app: JupyterFrontEnd, view: View, palette: ICommandPalette | null): void {
  const ours = () => view.current !== null;
  const add = (name: string, label: string, execute: () => void) => {
    const command = `tpu-stats:${name}`;
    app.commands.addCommand(command, { label, isEnabled: ours, isVisible: ours, execute });
    palette?.addItem({ command, category: 'TPU' });
  };
  add('toggle', 'Show or Hide the TPU Panel', () => view.toggle());
  add('free', 'Free Device Memory without a Name', () => view.current?.ask({ do: 'free' }));
  const modes: [Mode, string][] = [
    ['strict', 'Run Cells Eagerly'],
    ['fused', 'Run Cells Eagerly, Fused'],
    ['debug', 'Run Cells Eagerly, Waiting for Each Line'],
    ['compiled', 'Run Cells Compiled'],
  ];
  for (const [mode, label] of modes) {
    add(`mode-${mode}`, label, () => view.current?.ask({ do: 'mode', mode }));
  }
}

export default plugin;

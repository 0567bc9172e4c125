// The item in the status bar (JupyterLab) or the notebook's toolbar (Notebook 7): one line, which
// opens the panel.

import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { element, say, set } from './dom';
import type { Feed } from './feed';
import { chipIcon } from './icon';
import { situation, summary } from './words';

export class StatusItem extends Widget {
  readonly activeChanged = new Signal<this, void>(this);
  private feed: Feed | null = null;
  private text = element('span');
  private button = element('button', { type: 'button', title: 'Show or hide the TPU panel' });

  constructor(open: () => void) {
    super();
    this.addClass('tpu-Status');
    chipIcon.element({ container: this.button, stylesheet: 'statusBar' });
    this.button.append(this.text);
    this.button.addEventListener('click', open);
    this.node.append(this.button);
    this.hide();
  }

  get isActive(): boolean {
    return this.feed !== null;
  }

  follow(feed: Feed | null): void {
    this.feed?.changed.disconnect(this.refresh, this);
    this.feed = feed;
    feed?.changed.connect(this.refresh, this);
    this.setHidden(feed === null);
    this.activeChanged.emit();
    this.refresh();
  }

  set pressed(open: boolean) {
    set(this.button, 'aria-expanded', String(open));
  }

  private refresh(): void {
    if (!this.feed) return;
    say(this.text, summary(this.feed));
    set(this.button, 'data-kind', situation(this.feed).kind);
  }
}

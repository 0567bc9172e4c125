// Which kernel is looked at, how often its figures are needed, and whether the panel has a place on
// the page: it has none beside a kernel that is not ours.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import type { Widget } from '@lumino/widgets';
import { Feed } from './feed';
import { StatsPanel } from './panel';
import type { StatusItem } from './status';

/** Milliseconds between figures when only the status item shows them. */
const SLOW = 2000;
const OPEN = 'pytorch-tpu-kernel:open';

/** What a person sees a kernel in: a notebook or a console. */
export interface Place extends Widget {
  sessionContext: ISessionContext;
}

/** What both shells can do and their interface does not say. */
interface Sides {
  collapseRight?(): void;
}

export class View {
  /** Milliseconds between figures while the panel is open. */
  interval = 500;

  readonly panel = new StatsPanel();
  private feeds = new Map<string, Feed>();
  private items: StatusItem[] = [];
  private place: Place | null = null;
  private feed: Feed | null = null;
  private leaving = false;

  constructor(private app: JupyterFrontEnd) {
    this.panel.opened.connect((_, open) => {
      if (!this.leaving) sessionStorage.setItem(OPEN, open ? 'yes' : 'no');
      this.adjust();
    });
    document.addEventListener('visibilitychange', () => this.adjust());
    // The kernel cannot see that a page has gone.
    window.addEventListener('pagehide', () => this.feeds.forEach(feed => feed.close()));
  }

  get current(): Feed | null {
    return this.feed;
  }

  addItem(item: StatusItem): void {
    this.items.push(item);
    item.disposed.connect(() => {
      this.items = this.items.filter(each => each !== item);
    });
    item.follow(this.feed);
    item.pressed = this.panel.isVisible;
  }

  /** Opens the panel unless a person closed it on this page, or opens it again after a reload. */
  startWith(open: boolean): void {
    if (open && sessionStorage.getItem(OPEN) === null) sessionStorage.setItem(OPEN, 'yes');
    this.settle();
  }

  toggle(): void {
    if (this.panel.isVisible) (this.app.shell as Sides).collapseRight?.();
    else if (this.panel.isAttached) this.app.shell.activateById(this.panel.id);
  }

  /** Looks at the kernel of `place`, and at whatever kernel it gets later. */
  look(place: Place | null): void {
    if (place === this.place) return;
    this.place?.sessionContext.kernelChanged.disconnect(this.onKernel, this);
    this.place = place;
    place?.sessionContext.kernelChanged.connect(this.onKernel, this);
    place?.disposed.connect(this.onGone, this);
    void this.choose();
    // It may come to have none.
    void place?.sessionContext.ready.then(() => this.choose());
  }

  private onKernel(): void {
    void this.choose();
  }

  private onGone(place: Widget): void {
    if (this.place === place) this.look(null);
  }

  private async choose(): Promise<void> {
    const { place } = this;
    const kernel = place?.sessionContext.session?.kernel;
    // What is shown stays until it is known what comes: a kernel that ended, too.
    if (place && !kernel && (this.feed?.link === 'dead' || !place.sessionContext.isReady)) return;
    const ours = kernel ? await this.isOurs(kernel) : false;
    if (place !== this.place || kernel !== place?.sessionContext.session?.kernel) return;
    this.take(kernel && ours ? this.feedOf(kernel) : null);
  }

  /** Known before the kernel says anything, so that no other kernel ever hears of us. */
  private async isOurs(kernel: Kernel.IKernelConnection): Promise<boolean> {
    const { kernelspecs } = this.app.serviceManager;
    await kernelspecs.ready;
    return Boolean(kernelspecs.specs?.kernelspecs[kernel.name]?.metadata?.['tpu_stats']);
  }

  private feedOf(kernel: Kernel.IKernelConnection): Feed {
    const known = this.feeds.get(kernel.id);
    if (known && known.link !== 'dead') return known;
    const feed = new Feed(kernel);
    this.feeds.set(kernel.id, feed);
    kernel.disposed.connect(() => {
      if (this.feeds.get(kernel.id) === feed) this.feeds.delete(kernel.id);
      // What is looked at may have a connection of its own to this kernel: a console of a closed notebook.
      const other = this.place?.sessionContext.session?.kernel;
      if (this.feed === feed && other && other !== kernel && !other.isDisposed) void this.choose();
    });
    return feed;
  }

  private take(feed: Feed | null): void {
    if (feed !== this.feed) {
      this.feed?.want(null);
      this.feed = feed;
      this.items.forEach(item => item.follow(feed));
    }
    this.panel.follow(feed, this.place?.title.label ?? '');
    this.settle();
    this.adjust();
  }

  /** Gives the panel a place on the page, or takes it away. */
  private settle(): void {
    const { panel, app } = this;
    if (this.feed && !panel.isAttached) {
      app.shell.add(panel, 'right', { rank: 900, type: 'TPU' });
      if (sessionStorage.getItem(OPEN) === 'yes') this.unfold();
    } else if (!this.feed && panel.isAttached) {
      this.leaving = true;
      if (panel.isVisible) (app.shell as Sides).collapseRight?.();
      panel.parent = null;
      this.leaving = false;
    }
  }

  /** Opens the panel and leaves the keyboard where it is. */
  private unfold(): void {
    const focused = document.activeElement;
    this.app.shell.activateById(this.panel.id);
    if (focused instanceof HTMLElement) focused.focus();
  }

  /** Nobody looks, nothing is sent. */
  private adjust(): void {
    const open = this.panel.isVisible;
    this.items.forEach(item => {
      item.pressed = open;
    });
    if (document.hidden || !(open || this.items.length > 0)) this.feed?.want(null);
    else this.feed?.want({ interval_ms: open ? this.interval : SLOW, tensors: open });
  }

  /** The setting changed. */
  set rate(interval: number) {
    this.interval = interval;
    this.adjust();
  }
}

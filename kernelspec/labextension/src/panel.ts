// The panel at the right: what the chip has, does and did, for the kernel of the notebook in front.

import { Widget } from '@lumino/widgets';
import { Signal } from '@lumino/signaling';
import { Chart } from './chart';
import { element, enable, list, say, set, show } from './dom';
import type { Feed } from './feed';
import { ago, bytes, clock, count, percent, seconds } from './format';
import { SPANS } from './history';
import { chipIcon } from './icon';
import type { Device, Happening, Mode, Row, Sample, Work } from './sample';
import { situation } from './words';

const MODES: [Mode, string][] = [
  ['strict', 'Eager'],
  ['fused', 'Eager: fused'],
  ['debug', 'Eager: debug'],
  ['compiled', 'Compiled'],
];
const SPAN_WORDS = ['2 minutes', '15 minutes', '2 hours'];
const KINDS: Record<string, string> = {
  oom: 'Out of memory',
  storm: 'Compiling again and again',
  cancelled: 'Cancelled',
  failure: 'Failed on the device',
  interrupted: 'Interrupted',
  limit: 'Memory limit',
  restart: 'Kernel restarted',
};
const SERIOUS = ['oom', 'failure', 'storm'];
const EVENTS_SHOWN = 12;

export class StatsPanel extends Widget {
  /** The panel was opened or closed. */
  readonly opened = new Signal<this, boolean>(this);

  private feed: Feed | null = null;
  private span = SPANS[0];
  private timer = 0;

  private device = element('h2', {});
  private real = element('span', { class: 'tpu-tag' });
  private place = element('p', { class: 'tpu-muted' });
  private note = element('p', { class: 'tpu-note' });
  private notebook = element('p', { class: 'tpu-muted tpu-notebook' });

  private state = element('p', { class: 'tpu-state' });
  private work = element('ul', { class: 'tpu-work' });
  private interrupt = button('Interrupt', () => void this.feed?.kernel.interrupt().catch(() => undefined));
  private mode = element('select', { 'aria-label': 'How cells run' });
  private answer = element('p', { class: 'tpu-answer', role: 'status' });

  private used = element('strong', {});
  private of = element('span', { class: 'tpu-muted' });
  private gauge = element('div', {
    class: 'tpu-gauge',
    role: 'meter',
    'aria-label': 'HBM in use',
    'aria-valuemin': '0',
  });
  private peak = element('p', { class: 'tpu-muted' });
  private hbm = new Chart('hbm');
  private share = element('strong', {});
  private busy = new Chart('busy');
  private axes = [0, 1].map(() => element('p', { class: 'tpu-axis' }, element('span'), element('span')));

  private counts = element('dl', { class: 'tpu-counts' });
  private age = element('p', { class: 'tpu-muted' });
  private rows = element('tbody', {});
  private table: HTMLElement;
  private free = button('Free unnamed memory', () => this.feed?.ask({ do: 'free' }));
  private unnamed = element('span', { class: 'tpu-muted' });
  private log = element('ol', { role: 'log', 'aria-label': 'Events, newest first' });
  private quiet = element('p', { class: 'tpu-muted' }, 'Nothing to report.');

  constructor() {
    super();
    this.id = 'tpu-stats';
    this.addClass('tpu-Panel');
    this.title.icon = chipIcon;
    this.title.caption = 'TPU';
    set(this.node, 'role', 'region');
    set(this.node, 'aria-label', 'TPU');
    this.node.tabIndex = -1;

    this.gauge.append(element('div', {}), element('i', {}));
    for (const [value, word] of MODES) this.mode.append(element('option', { value }, word));
    this.mode.addEventListener('change', () => {
      this.feed?.ask({ do: 'mode', mode: this.mode.value as Mode });
      this.refresh();
    });
    const spans = element('select', { 'aria-label': 'Time shown' });
    SPANS.forEach((span, i) => spans.append(element('option', { value: String(span) }, SPAN_WORDS[i])));
    spans.addEventListener('change', () => {
      this.span = Number(spans.value);
      this.refresh();
    });
    this.table = element(
      'table',
      { 'aria-label': 'Largest tensors on the device' },
      element(
        'thead',
        {},
        element(
          'tr',
          {},
          element('th', { scope: 'col' }, 'Variable'),
          element('th', { scope: 'col' }, 'Size'),
        ),
      ),
      this.rows,
    );
    this.node.append(
      element('header', {}, element('div', {}, this.device, this.real), this.place, this.note, this.notebook),
      section(
        'Now',
        this.state,
        this.work,
        element('div', { class: 'tpu-actions' }, this.interrupt, this.mode),
        this.answer,
      ),
      section(
        ['HBM', spans],
        element('p', { class: 'tpu-headline' }, this.used, this.of),
        this.gauge,
        this.peak,
        this.hbm.node,
        this.axes[0],
      ),
      section(
        'Device busy',
        element('p', { class: 'tpu-headline' }, this.share),
        this.busy.node,
        this.axes[1],
      ),
      section('Events', this.quiet, this.log),
      section(
        'Largest tensors',
        this.age,
        this.table,
        element('div', { class: 'tpu-actions' }, this.free, this.unnamed),
      ),
      section('Since the kernel started', this.counts),
    );
  }

  /** Shows another kernel, or none. `where` names the notebook or console it belongs to. */
  follow(feed: Feed | null, where: string): void {
    this.feed?.changed.disconnect(this.refresh, this);
    this.feed = feed;
    feed?.changed.connect(this.refresh, this);
    say(this.notebook, where);
    this.refresh();
  }

  protected onAfterShow(): void {
    this.timer = window.setInterval(() => this.tick(), 1000);
    this.opened.emit(true);
    this.refresh();
  }

  protected onAfterHide(): void {
    clearInterval(this.timer);
    this.opened.emit(false);
  }

  protected onBeforeDetach(): void {
    if (this.isVisible) this.onAfterHide();
  }

  /** Times go on between samples; nothing else does. */
  private tick(): void {
    if (!this.feed?.sample || document.hidden) return;
    this.showNow(this.feed, this.feed.sample);
    this.showAges(this.feed);
  }

  private refresh(): void {
    const { feed } = this;
    if (!feed || !this.isVisible) return;
    set(this.node, 'data-link', feed.link);
    const { sample } = feed;
    this.showDevice(sample);
    this.showNow(feed, sample);
    this.showMemory(feed, sample);
    this.showCounts(sample);
    this.showTensors(feed);
    this.showEvents(feed);
    this.showAges(feed);
  }

  private showDevice(sample: Sample | null): void {
    const device = sample?.device;
    say(this.device, device?.name ?? 'TPU');
    show(this.real, Boolean(device));
    // Before there is a device there is nothing to draw, but after a restart there is the past.
    set(this.node, 'data-empty', String(!device && !this.feed?.history.used));
    say(this.real, device?.emulated ? 'emulated' : 'real chip');
    say(this.place, device ? whereIs(device) : 'Not in use yet: the first tensor made on it takes it.');
    set(this.place, 'title', device?.runtime ?? '');
    show(this.note, Boolean(device?.note));
    say(this.note, device?.note ?? '');
  }

  private showNow(feed: Feed, sample: Sample | null): void {
    const running = feed.busy;
    const { word, kind } = situation(feed);
    set(this.state, 'data-kind', kind);
    say(this.state, word);
    // The sample's figures are as old as the sample.
    const older = sample ? feed.now - sample.t : 0;
    list(
      this.work,
      running ? (sample?.now ?? []) : [],
      () => element('li'),
      (item, work) => say(item, describe(work, older)),
    );
    show(this.work, this.work.childElementCount > 0);
    const live = feed.link === 'live';
    enable(this.interrupt, live && running ? '' : 'No cell is running');
    const why = !live
      ? 'The kernel cannot be reached'
      : running
        ? 'A cell is running: it is done between cells'
        : '';
    enable(this.free, why);
    this.mode.disabled = why !== '';
    set(this.mode, 'title', why);
    if (sample?.mode && document.activeElement !== this.mode) this.mode.value = sample.mode;
    show(this.answer, Boolean(feed.answer));
    say(this.answer, feed.answer?.text ?? '');
    set(this.answer, 'data-failed', String(feed.answer?.failed ?? false));
  }

  private showMemory(feed: Feed, sample: Sample | null): void {
    const { hbm_used: used = 0, hbm_peak: peak = 0, hbm_limit: limit = 0 } = sample ?? {};
    const share = limit > 0 ? used / limit : 0;
    say(this.used, bytes(used));
    say(this.of, limit > 0 ? ` of ${bytes(limit)}, ${percent(share)}` : '');
    say(this.peak, `Peak ${bytes(peak)}${share >= 0.9 ? '. Almost full' : ''}`);
    set(this.gauge, 'aria-valuemax', String(limit));
    set(this.gauge, 'aria-valuenow', String(used));
    set(this.gauge, 'aria-valuetext', `${bytes(used)} of ${bytes(limit)}, peak ${bytes(peak)}`);
    set(this.gauge, 'data-full', String(share >= 0.9));
    const [bar, tick] = this.gauge.children as unknown as HTMLElement[];
    bar.style.width = `${100 * Math.min(1, share)}%`;
    tick.style.left = `${limit > 0 ? 100 * Math.min(1, peak / limit) : 0}%`;

    const { history } = feed;
    const { span } = this;
    const end = feed.busy ? feed.now : history.end;
    const slots = history.read(span, end);
    const cells = history.cells.filter(cell => (cell.t1 ?? end) >= end - span);
    const common = { cells, end, span, clock };
    const values = slots.map(slot => slot && slot.used);
    const highest = values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
    const past = `over the last ${SPAN_WORDS[SPANS.indexOf(span)]}`;
    this.hbm.show({
      ...common,
      values,
      top: roundUp(highest * 1.1, limit),
      label: bytes,
      level: peak,
      words: `HBM ${past}: now ${bytes(used)}, highest ${bytes(highest)}.`,
    });
    const shares = slots.map(slot => slot && slot.busy);
    say(this.share, percent(feed.busy ? history.busy : 0));
    const known = shares.filter(value => value !== null);
    const mean = known.reduce((sum, value) => sum + value, 0) / (known.length || 1);
    this.busy.show({
      ...common,
      values: shares,
      top: 1,
      label: percent,
      words: `Share of the time in which the device was busy, ${past}: now ${percent(history.busy)}, mean ${percent(mean)}.`,
    });
    for (const { children } of this.axes) {
      say(children[0] as HTMLElement, end ? clock(end - span) : '');
      say(children[1] as HTMLElement, end ? (feed.busy ? 'now' : clock(end)) : '');
    }
  }

  private showCounts(sample: Sample | null): void {
    const some = sample ?? ({} as Partial<Sample>);
    const compiles = some.compiles ?? 0;
    const hits = some.cache_hits ?? 0;
    const facts: [string, string][] = [
      [
        'Programs compiled',
        compiles ? `${count(compiles)} in ${seconds((some.compile_ns ?? 0) / 1e9)}` : '0',
      ],
      ['Found in the cache', hits ? `${count(hits)} (${percent(hits / (hits + compiles))})` : '0'],
      ['Programs run', count(some.executions ?? 0)],
      ['To the device', bytes(some.to_device_bytes ?? 0)],
      ['From the device', bytes(some.from_device_bytes ?? 0)],
    ];
    list(
      this.counts,
      facts,
      () => element('div', {}, element('dt'), element('dd')),
      (line, [name, value]) => {
        say(line.children[0] as HTMLElement, name);
        say(line.children[1] as HTMLElement, value);
      },
    );
  }

  private showTensors({ tensors, history }: Feed): void {
    const rows = tensors?.rows ?? [];
    const largest = rows[0]?.bytes ?? 1;
    show(this.table, rows.length > 0);
    list(this.rows, rows, makeRow, (line, row) => {
      const made = row.cell ? history.cells.findLast(cell => cell.id === row.cell)?.count : null;
      fillRow(line, row, row.bytes / largest, made ?? null);
    });
    const unnamed = tensors?.unnamed_bytes ?? 0;
    say(
      this.unnamed,
      unnamed ? `${bytes(unnamed)} without a name` : rows.length > 0 ? 'All of it has a name' : '',
    );
  }

  private showEvents({ events }: Feed): void {
    const newest = events.slice(-EVENTS_SHOWN).reverse();
    show(this.quiet, newest.length === 0);
    list(
      this.log,
      newest,
      () => element('li', {}, element('strong'), element('time'), element('p')),
      (item, event: Happening) => {
        const [kind, time, text] = item.children as unknown as HTMLElement[];
        set(item, 'data-serious', String(SERIOUS.includes(event.kind)));
        say(kind, KINDS[event.kind] ?? event.kind);
        say(time, clock(event.t));
        say(text, event.text);
      },
    );
  }

  private showAges({ tensors, now }: Feed): void {
    if (!tensors) return say(this.age, 'Resolved between cells; not yet done.');
    const shown = Math.min(tensors.rows.length, tensors.total);
    const all = tensors.total > shown ? `The ${shown} largest of ${count(tensors.total)}` : `All ${shown}`;
    const what = tensors.total === 0 ? 'None' : all;
    say(this.age, `${what}, as of ${ago(now - tensors.t)}`);
  }
}

function section(heading: string | [string, HTMLElement], ...children: Node[]): HTMLElement {
  const [title, beside] = typeof heading === 'string' ? [heading] : heading;
  const id = `tpu-${title.toLowerCase().replaceAll(' ', '-')}`;
  const line = element('div', { class: 'tpu-heading' }, element('h3', { id }, title));
  if (beside) line.append(beside);
  return element('section', { 'aria-labelledby': id }, line, ...children);
}

function button(text: string, act: () => void): HTMLButtonElement {
  const made = element('button', { type: 'button' }, text);
  made.addEventListener('click', () => {
    if (made.getAttribute('aria-disabled') !== 'true') act();
  });
  return made;
}

function makeRow(): HTMLTableRowElement {
  return element(
    'tr',
    {},
    element('th', { scope: 'row' }, element('code'), element('span', { class: 'tpu-muted' })),
    element('td', {}, element('span'), element('i')),
  );
}

/** `made`: the number of the cell that made the memory, where it is known. */
function fillRow(line: HTMLElement, row: Row, share: number, made: number | null): void {
  const [name, kind] = line.children[0].children as unknown as HTMLElement[];
  const [size, bar] = line.children[1].children as unknown as HTMLElement[];
  say(name, row.name || '(no name)');
  say(kind, `${row.shape} ${row.dtype}${made === null ? '' : `, cell [${made}]`}`);
  say(size, bytes(row.bytes));
  const width = `${Math.max(2, 100 * share)}%`;
  if (bar.style.width !== width) bar.style.width = width;
}

function whereIs({ emulated, runtime }: Device): string {
  const file = (runtime ?? '').split('/').at(-1);
  return `${emulated ? "On this machine's processor" : 'In this machine'}${file ? `, through ${file}` : ''}`;
}

function describe(work: Work, older: number): string {
  const time = seconds(work.elapsed_ns / 1e9 + older);
  const name = work.name ? ` ${work.name}` : '';
  if (work.kind === 'compile') return `Compiling${name} for ${time}`;
  if (work.kind === 'execute') return `Running${name} for ${time}`;
  if (work.kind !== 'transfer') return `${work.kind}${name} for ${time}`;
  return `Moving ${bytes(work.bytes ?? 0)} ${work.direction === 'from_device' ? 'from' : 'to'} the device for ${time}`;
}

/** A round number of bytes at or above `value`, not above the limit. */
function roundUp(value: number, limit: number): number {
  const unit = 2 ** Math.max(10, Math.floor(Math.log2(Math.max(1, value))));
  const top = [1, 1.25, 1.5, 2].map(step => step * unit).find(each => each >= value) ?? value;
  return limit > 0 ? Math.min(top, limit) : top;
}

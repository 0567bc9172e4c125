// The past of one kernel, for the time lines: a few spans of time, each in the same number of
// slots, so that it costs the same to keep and to draw whatever the kernel did.

import type { Cell, Sample } from './sample';

const SLOTS = 240;
/** Seconds that can be looked at. */
export const SPANS = [120, 900, 7200];
const CELLS_KEPT = 400;
/** Longer without a sample, and the time between is not known: the line has a gap. */
const UNKNOWN_AFTER = 30;

export interface Slot {
  /** Highest bytes in HBM. */
  used: number;
  /** Share of the time in which the device was busy, 0 to 1. */
  busy: number;
}

interface Kept extends Slot {
  at: number;
  /** Seconds that `busy` is the mean of. */
  weight: number;
}

export class History {
  cells: Cell[] = [];
  /** Seconds (unix) of the newest sample. */
  end = 0;
  /** Whether there ever was something on the device. */
  used = false;
  /** The share of busy time between the two newest samples; 0 when nothing runs. */
  busy = 0;

  private lines = SPANS.map(span => new Line(span / SLOTS));
  private last: Sample | null = null;

  add(sample: Sample): void {
    const { last } = this;
    // A smaller count means another process: the kernel was restarted.
    const again = last !== null && sample.busy_ns < last.busy_ns;
    const known = last !== null && !again && (last.state !== 'busy' || sample.t - last.t < UNKNOWN_AFTER);
    const passed = last ? sample.t - last.t : 0;
    const busy = known && passed > 0 ? Math.min(1, (sample.busy_ns - last.busy_ns) / 1e9 / passed) : 0;
    for (const line of this.lines) {
      if (last && known) line.fill(last.t, sample.t, last.hbm_used, busy);
      line.add(sample.t, sample.hbm_used, busy, passed);
    }
    this.busy = sample.state === 'busy' ? busy : 0;
    for (const cell of sample.cells ?? []) this.mark(cell);
    if (sample.cell && this.cells.at(-1)?.id !== sample.cell.id) {
      this.mark({ id: sample.cell.id, count: sample.cell.count, t0: sample.cell.started });
    }
    this.used ||= sample.hbm_peak > 0;
    this.last = sample;
    this.end = Math.max(this.end, sample.t);
  }

  /** The slots of the `span` that ends at `end`, oldest first; `null` where nothing is known. */
  read(span: number, end: number): (Slot | null)[] {
    return this.lines[Math.max(0, SPANS.indexOf(span))].read(end);
  }

  private mark(cell: Cell): void {
    const known = this.cells.findLast(each => each.id === cell.id && each.t0 === cell.t0);
    if (known) Object.assign(known, cell);
    else this.cells.push({ ...cell });
    if (this.cells.length > CELLS_KEPT) this.cells.shift();
  }
}

class Line {
  private slots = new Array<Kept | undefined>(SLOTS);

  constructor(private width: number) {}

  add(t: number, used: number, busy: number, passed: number): void {
    const at = Math.floor(t / this.width);
    const slot = this.slots[at % SLOTS];
    const weight = Math.min(passed, this.width);
    if (slot?.at === at) {
      slot.used = Math.max(slot.used, used);
      if (weight > 0) slot.busy += ((busy - slot.busy) * weight) / (slot.weight + weight);
      slot.weight += weight;
    } else {
      this.slots[at % SLOTS] = { at, used, busy, weight };
    }
  }

  /** Between two samples HBM was as before, and the work was spread evenly, as far as is known. */
  fill(from: number, to: number, used: number, busy: number): void {
    const end = Math.floor(to / this.width);
    for (let at = Math.max(Math.floor(from / this.width) + 1, end - SLOTS); at < end; at += 1) {
      this.slots[at % SLOTS] = { at, used, busy, weight: this.width };
    }
  }

  read(end: number): (Slot | null)[] {
    const last = Math.floor(end / this.width);
    return Array.from({ length: SLOTS }, (_, i) => {
      const at = last - SLOTS + 1 + i;
      const slot = this.slots[at % SLOTS];
      return slot?.at === at ? slot : null;
    });
  }
}

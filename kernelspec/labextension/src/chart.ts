// One time line on a canvas, drawn by hand: a curve, the cells it belongs to, and a reading of it for
// pointer, keyboard and screen reader.

import { element, say, set } from './dom';
import type { Cell } from './sample';

const HEIGHT = 92;
/** Room above the curve for the numbers of the cells. */
const LANE = 14;

export interface Picture {
  /** Oldest first, `null` where nothing is known. */
  values: (number | null)[];
  /** The value at the top. */
  top: number;
  label: (value: number) => string;
  /** A dashed line. */
  level?: number;
  cells: Cell[];
  /** Seconds (unix) of the right edge, and how many are shown. */
  end: number;
  span: number;
  /** What the whole picture says, in words. */
  words: string;
  /** A time, for the reading. */
  clock: (time: number) => string;
}

export class Chart {
  readonly node: HTMLElement;
  private canvas = element('canvas', { role: 'img', tabindex: '0' });
  private reading = element('p', { class: 'tpu-reading', 'aria-live': 'polite' });
  private picture: Picture | null = null;
  private cursor: number | null = null;
  private theme = '';
  private colors: Record<'line' | 'grid' | 'text' | 'face' | 'size', string> | null = null;

  constructor(kind: string) {
    this.node = element('div', { class: `tpu-chart tpu-chart-${kind}` }, this.canvas, this.reading);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener('pointermove', event => {
      const { left, width } = this.canvas.getBoundingClientRect();
      this.point(Math.floor(((event.clientX - left) / width) * this.slots));
    });
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('blur', () => this.point(null));
    this.canvas.addEventListener('keydown', event => this.onKey(event));
  }

  show(picture: Picture): void {
    this.picture = picture;
    // Said when somebody comes to it, not at each change.
    set(this.canvas, 'aria-label', `${picture.words} Arrow keys read it.`);
    this.draw();
    this.read();
  }

  private get slots(): number {
    return this.picture?.values.length ?? 1;
  }

  private onKey(event: KeyboardEvent): void {
    const at = this.cursor ?? this.slots;
    const to = { ArrowLeft: at - 4, ArrowRight: at + 4, Home: 0, End: this.slots - 1, Escape: null }[
      event.key
    ];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.point(to);
  }

  private point(slot: number | null): void {
    this.cursor = slot === null ? null : Math.max(0, Math.min(this.slots - 1, slot));
    this.draw();
    this.read();
  }

  private timeOf(slot: number): number {
    const { end = 0, span = 0 } = this.picture ?? {};
    return end - span + ((slot + 1) * span) / this.slots;
  }

  private read(): void {
    const { picture, cursor } = this;
    if (!picture || cursor === null) return say(this.reading, '');
    const value = picture.values[cursor];
    const time = this.timeOf(cursor);
    const cell = picture.cells.findLast(each => each.t0 <= time && time <= (each.t1 ?? Infinity));
    const where = cell ? `, cell [${cell.count ?? ' '}]` : '';
    say(
      this.reading,
      `${picture.clock(time)}${where}: ${value === null ? 'not known' : picture.label(value)}`,
    );
  }

  /** A style is computed again only for another theme, or when the style sheet was not there yet. */
  private palette(): NonNullable<Chart['colors']> {
    const theme = document.body.dataset.jpThemeName ?? '';
    if (!this.colors?.line || theme !== this.theme) {
      this.theme = theme;
      const style = getComputedStyle(this.node);
      const of = (name: string) => style.getPropertyValue(name).trim();
      this.colors = {
        line: of('--tpu-line'),
        grid: of('--tpu-grid'),
        text: style.color,
        face: style.fontFamily,
        size: style.fontSize,
      };
    }
    return this.colors;
  }

  private draw(): void {
    const { canvas, picture } = this;
    const pen = canvas.getContext('2d');
    const width = canvas.clientWidth;
    if (!picture || !pen || width === 0) return;
    const scale = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(HEIGHT * scale);
    }
    const color = this.palette();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, HEIGHT);
    pen.font = `10px ${color.face}`;
    pen.textBaseline = 'middle';
    const base = HEIGHT - 1.5;
    const x = (time: number) => width - ((picture.end - time) * width) / picture.span;
    const y = (value: number) =>
      base - (Math.min(value, picture.top) / (picture.top || 1)) * (base - LANE - 2);

    pen.fillStyle = color.text;
    const top = picture.label(picture.top);
    pen.fillText(top, 0, LANE / 2);
    this.drawCells(pen, picture, x, width, pen.measureText(top).width + 6);
    pen.strokeStyle = color.grid;
    pen.lineWidth = 1;
    for (const share of [0, 0.5, 1]) {
      const at = Math.round(y(picture.top * share)) + 0.5;
      path(pen, [
        [0, at],
        [width, at],
      ]);
    }
    this.drawCurve(pen, picture, y, width, base);
    const { level } = picture;
    if (level && level <= picture.top) {
      pen.strokeStyle = color.text;
      pen.setLineDash([3, 3]);
      const at = Math.round(y(level)) + 0.5;
      path(pen, [
        [0, at],
        [width, at],
      ]);
      pen.setLineDash([]);
    }
    if (this.cursor !== null) {
      const at = Math.round(((this.cursor + 0.5) * width) / this.slots) + 0.5;
      pen.strokeStyle = color.text;
      path(pen, [
        [at, LANE],
        [at, base],
      ]);
    }
  }

  /** Where a cell ran is shaded; its number stands above where there is room, the newest first. */
  private drawCells(
    pen: CanvasRenderingContext2D,
    picture: Picture,
    x: (time: number) => number,
    width: number,
    left: number,
  ): void {
    let free = width;
    for (const cell of picture.cells.toReversed()) {
      const from = Math.max(0, x(cell.t0));
      const to = Math.min(width, x(cell.t1 ?? picture.end));
      if (to < 0 || from > width) continue;
      pen.globalAlpha = 0.13;
      pen.fillRect(from, LANE, Math.max(1, to - from), HEIGHT - LANE);
      pen.globalAlpha = 0.55;
      if (x(cell.t0) >= 0) pen.fillRect(from, LANE - 3, 1, HEIGHT - LANE + 3);
      pen.globalAlpha = 1;
      const text = `[${cell.count ?? ' '}]`;
      const room = pen.measureText(text).width;
      const at = Math.min(from, width - room);
      if (at + room <= free && at >= left) {
        pen.fillText(text, at, LANE / 2);
        free = at - 4;
      }
    }
  }

  private drawCurve(
    pen: CanvasRenderingContext2D,
    picture: Picture,
    y: (value: number) => number,
    width: number,
    base: number,
  ): void {
    const { line } = this.palette();
    const step = width / this.slots;
    pen.lineWidth = 1.5;
    pen.strokeStyle = pen.fillStyle = line;
    let run: [number, number][] = [];
    const end = () => {
      if (run.length > 0) {
        path(pen, run);
        pen.globalAlpha = 0.2;
        pen.lineTo(run[run.length - 1][0], base);
        pen.lineTo(run[0][0], base);
        pen.fill();
        pen.globalAlpha = 1;
      }
      run = [];
    };
    picture.values.forEach((value, i) => {
      if (value === null) return end();
      if (run.length === 0) run.push([i * step, y(value)]);
      run.push([(i + 1) * step, y(value)]);
    });
    end();
  }
}

function path(pen: CanvasRenderingContext2D, points: [number, number][]): void {
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x, y);
  pen.stroke();
}

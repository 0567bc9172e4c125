// Numbers as a person reads them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `4.56 GiB`; three digits are enough to see a change. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${digits(value, unit)} ${UNITS[unit]}`;
}

/** `4.6 / 15.7 GiB`: two amounts in the unit of the second. */
export function bytesOf(count: number, whole: number): string {
  const unit = whole > 0 ? Math.min(UNITS.length - 1, Math.floor(Math.log2(whole) / 10)) : 0;
  const short = (value: number) => (value / 1024 ** unit).toFixed(unit ? 1 : 0);
  // Something is not nothing.
  const few = count > 0 && short(count) === '0.0';
  return few ? `${bytes(count)} / ${bytes(whole)}` : `${short(count)} / ${short(whole)} ${UNITS[unit]}`;
}

function digits(value: number, unit: number): string {
  if (unit === 0) return String(Math.round(value));
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

/** `0.42 s`, `12.4 s`, `3 min 07 s`, `2 h 05 min`. */
export function seconds(time: number): string {
  if (time < 0.995) return `${Math.max(0, time).toFixed(2)} s`;
  if (time < 59.95) return `${time.toFixed(1)} s`;
  const whole = Math.round(time);
  const two = (value: number) => String(value).padStart(2, '0');
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

/** How long ago, coarse: `just now`, `12 s ago`, `3 min ago`. */
export function ago(time: number): string {
  if (time < 2) return 'just now';
  if (time < 60) return `${Math.floor(time)} s ago`;
  if (time < 3600) return `${Math.floor(time / 60)} min ago`;
  return `${Math.floor(time / 3600)} h ago`;
}

export function percent(share: number): string {
  const value = 100 * share;
  return `${value > 0 && value < 1 ? '<1' : Math.round(value)} %`;
}

export function count(value: number): string {
  return value.toLocaleString('en-US').replaceAll(',', '\u202f');
}

/** `12:41:05` */
export function clock(time: number): string {
  return new Date(time * 1000).toLocaleTimeString('en-GB');
}

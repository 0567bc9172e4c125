// What travels over the comm `tpu.stats`, version 1. docs/feed.md says what each field means.

export const TARGET = 'tpu.stats';
export const VERSION = 1;

export type Mode = 'strict' | 'fused' | 'debug' | 'compiled';

export interface Device {
  name: string;
  emulated: boolean;
  runtime?: string | null;
  note?: string | null;
}

export interface Work {
  kind: string;
  name?: string;
  bytes?: number;
  direction?: 'to_device' | 'from_device';
  elapsed_ns: number;
}

export interface Cell {
  id: string;
  count: number | null;
  t0: number;
  t1?: number | null;
}

export interface Happening {
  seq: number;
  t: number;
  kind: string;
  text: string;
  cell?: string | null;
}

export interface Row {
  name: string;
  shape: string;
  dtype: string;
  bytes: number;
  cell?: string | null;
}

export interface Tensors {
  t: number;
  total: number;
  unnamed_bytes: number;
  rows: Row[];
}

export interface Sample {
  v: number;
  t: number;
  device: Device | null;
  state: 'busy' | 'idle' | 'starting';
  cell: { id: string; count: number | null; started: number } | null;
  /** Empty until Python has said. */
  mode: Mode | '';
  hbm_used: number;
  hbm_peak: number;
  hbm_limit: number;
  busy_ns: number;
  compiles: number;
  compile_ns: number;
  cache_hits: number;
  memory_hits: number;
  executions: number;
  to_device_bytes: number;
  from_device_bytes: number;
  now?: Work[];
  cells?: Cell[];
  events?: Happening[];
  tensors?: Tensors;
  said?: string;
  error?: string;
}

/** What the front end says after it opened the comm. */
export type Request =
  | { interval_ms: number; tensors: boolean }
  | { pause: true }
  | { resume: true }
  | { do: 'free' }
  | { do: 'mode'; mode: Mode };

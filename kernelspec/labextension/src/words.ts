// What the kernel does now, in a few words: for the panel, the status item and screen readers.

import type { Feed } from './feed';
import { bytesOf, percent, seconds } from './format';

export interface Situation {
  word: string;
  /** What its colour follows: `busy`, `idle`, `waiting` or `bad`. */
  kind: 'busy' | 'idle' | 'waiting' | 'bad';
}

export function situation(feed: Feed): Situation {
  const { sample } = feed;
  switch (feed.link) {
    case 'dead':
      return { word: 'The kernel has ended', kind: 'bad' };
    case 'offline':
      return { word: 'No connection to the kernel', kind: 'bad' };
    case 'silent':
      return { word: 'This kernel sends no live figures', kind: 'bad' };
    case 'restarting':
      return { word: 'The kernel is starting again', kind: 'waiting' };
    case 'live':
      break;
    default:
      return { word: 'Asking the kernel', kind: 'waiting' };
  }
  if (sample?.state === 'starting') return { word: 'The kernel is starting', kind: 'waiting' };
  if (sample?.state !== 'busy') return { word: 'Idle', kind: 'idle' };
  const { cell } = sample;
  if (!cell) return { word: 'Busy', kind: 'busy' };
  const number = cell.count === null ? '' : ` [${cell.count}]`;
  return { word: `Cell${number} has run for ${seconds(feed.now - cell.started)}`, kind: 'busy' };
}

/** One line for the status bar. */
export function summary(feed: Feed): string {
  const { sample } = feed;
  if (!sample || feed.link !== 'live') return `TPU: ${situation(feed).word.toLowerCase()}`;
  if (!sample.device) return 'TPU: not in use yet';
  const parts = [sample.device.name, `HBM ${bytesOf(sample.hbm_used, sample.hbm_limit)}`];
  if (sample.hbm_limit > 0 && sample.hbm_used >= 0.9 * sample.hbm_limit) parts.push('almost full');
  const compile = sample.now?.find(work => work.kind === 'compile');
  if (compile && feed.busy) parts.push(`compiling for ${seconds(compile.elapsed_ns / 1e9)}`);
  else parts.push(feed.busy ? `busy ${percent(feed.history.busy)}` : 'idle');
  return parts.join(' · ');
}

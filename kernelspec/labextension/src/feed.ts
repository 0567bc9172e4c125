// The live feed of one kernel: one comm, shared by every view that shows this kernel, open only
// while somebody looks.
//
// The comm's messages are sent as they are on the wire and not through `createComm`: that works only
// in the first connection to a kernel, waits for kernel_info, and asks the kernel for a subshell.

import { KernelMessage, type Kernel } from '@jupyterlab/services';
import { UUID, type JSONObject } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';
import { History } from './history';
import { TARGET, VERSION, type Happening, type Request, type Sample, type Tensors } from './sample';

/** Whether samples arrive, and if not why. `silent`: the kernel was asked and does not answer. */
export type Link = 'closed' | 'opening' | 'live' | 'restarting' | 'offline' | 'silent' | 'dead';

/** What the views that are open need of a feed. */
export interface Demand {
  interval_ms: number;
  tensors: boolean;
}

const EVENTS_KEPT = 50;
/** Milliseconds after which a kernel that was asked has not heard it: a comm_open is lost when the
 * kernel dies under it. */
const PATIENCE = 3000;
/** More would keep an idle kernel from being culled. */
const TRIES = 5;

export class Feed {
  readonly changed = new Signal<this, void>(this);
  readonly history = new History();
  link: Link = 'closed';
  sample: Sample | null = null;
  tensors: Tensors | null = null;
  /** Oldest first. */
  events: Happening[] = [];
  /** The kernel's answer to the last button. */
  answer: { text: string; failed: boolean } | null = null;

  private comm: string | null = null;
  /** The session of the process that sends. */
  private process = '';
  private demand: Demand | null = null;
  private arrived = 0;
  /** Of the newest event. */
  private seq = -1;
  private tries = 0;
  private timer = 0;

  constructor(readonly kernel: Kernel.IKernelConnection) {
    kernel.iopubMessage.connect(this.onMessage, this);
    kernel.statusChanged.connect(this.onStatus, this);
    kernel.connectionStatusChanged.connect(this.onConnection, this);
    kernel.disposed.connect(this.onEnd, this);
    if (kernel.isDisposed) this.link = 'dead';
  }

  /** The kernel's clock, seconds (unix). */
  get now(): number {
    return this.sample ? this.sample.t + (Date.now() - this.arrived) / 1000 : Date.now() / 1000;
  }

  get busy(): boolean {
    return this.link === 'live' && this.sample?.state === 'busy';
  }

  /** Opens, changes or (with `null`) closes the subscription. */
  want(demand: Demand | null): void {
    const before = this.demand;
    if (JSON.stringify(before) === JSON.stringify(demand)) return;
    this.demand = demand;
    if (!demand) this.close();
    else if (before && this.comm) this.send({ ...demand });
    else if (this.link !== 'dead') this.reopen();
  }

  /** Asks the kernel to do something; what it says arrives in `answer`. */
  ask(request: Request): void {
    this.answer = null;
    this.send(request);
    this.changed.emit();
  }

  close(): void {
    clearTimeout(this.timer);
    if (this.comm) this.post('comm_close', {});
    this.comm = null;
    if (this.link !== 'dead') this.link = 'closed';
  }

  private reopen(): void {
    this.tries = 0;
    this.open();
  }

  private open(): void {
    const { kernel, demand } = this;
    clearTimeout(this.timer);
    if (!demand || kernel.isDisposed) return;
    if (kernel.connectionStatus !== 'connected') {
      if (this.link !== 'restarting') this.turn('offline');
      return;
    }
    // Never two for one client: the kernel would have to close the first.
    if (this.comm) this.post('comm_close', {});
    this.comm = UUID.uuid4();
    if (this.link !== 'live') this.turn('opening');
    this.post('comm_open', { v: VERSION, ...demand });
    this.watch();
  }

  /** Opens again when the first figures, which come at once, have not come. */
  private watch(): void {
    clearTimeout(this.timer);
    if (!this.demand) return;
    this.timer = window.setTimeout(() => {
      this.tries += 1;
      if (this.tries > TRIES) return this.turn('silent');
      // After an automatic restart the page may hear nothing until it asks.
      this.kernel.requestKernelInfo().catch(() => undefined);
      this.open();
    }, PATIENCE);
  }

  private onMessage(_: unknown, message: KernelMessage.IIOPubMessage): void {
    if (KernelMessage.isStatusMsg(message)) this.onProcess(message);
    if (!this.comm || (message.content as { comm_id?: unknown }).comm_id !== this.comm) return;
    if (KernelMessage.isCommMsgMsg(message)) {
      this.process = message.header.session;
      this.take(message.content.data as unknown as Sample);
    } else if (KernelMessage.isCommCloseMsg(message)) {
      this.comm = null;
      clearTimeout(this.timer);
      this.turn('silent');
    }
  }

  /** Somebody else may have restarted the kernel: then another process speaks. */
  private onProcess({ header, content }: KernelMessage.IStatusMsg): void {
    if (this.link !== 'live' || header.session === this.process || content.execution_state === 'restarting')
      return;
    this.forget();
    this.turn('restarting');
    this.reopen();
  }

  private take(sample: Sample): void {
    if (typeof sample.t !== 'number') return;
    this.sample = sample;
    this.arrived = Date.now();
    this.history.add(sample);
    if (sample.tensors) this.tensors = sample.tensors;
    for (const event of sample.events ?? []) {
      if (event.seq > this.seq) this.note(event);
    }
    if (sample.error) this.answer = { text: sample.error, failed: true };
    else if (sample.said) this.answer = { text: sample.said, failed: false };
    clearTimeout(this.timer);
    this.turn('live');
  }

  private note(event: Happening): void {
    this.seq = event.seq;
    this.events.push(event);
    if (this.events.length > EVENTS_KEPT) this.events.shift();
  }

  private onStatus(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting') {
      this.forget();
      this.turn('restarting');
      this.watch();
    } else if (status === 'autorestarting') {
      // Follows a `restarting` that nobody asked for.
      const event = this.events.at(-1);
      if (event?.kind === 'restart') event.text = 'It had died, and was started again.';
      this.changed.emit();
    } else if (this.link === 'restarting' && ['starting', 'idle', 'busy'].includes(status)) {
      this.reopen();
    }
  }

  /** What was said of a process that is gone. */
  private forget(): void {
    this.comm = null;
    this.tensors = null;
    this.answer = null;
    this.note({ seq: -1, t: Date.now() / 1000, kind: 'restart', text: 'Its memory is empty.' });
    if (this.sample) {
      this.sample = {
        ...this.sample,
        ...{ state: 'starting', device: null, cell: null, now: [], hbm_used: 0, hbm_peak: 0, busy_ns: 0 },
        ...{ compiles: 0, compile_ns: 0, cache_hits: 0, memory_hits: 0, executions: 0 },
        ...{ to_device_bytes: 0, from_device_bytes: 0 },
      };
    }
  }

  private onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    if (this.link === 'dead') return;
    if (status === 'connected') this.reopen();
    else if (this.demand && this.link !== 'restarting') this.turn('offline');
  }

  private onEnd(): void {
    clearTimeout(this.timer);
    this.comm = null;
    this.turn('dead');
  }

  private turn(link: Link): void {
    this.link = link;
    this.changed.emit();
  }

  private send(request: Request): void {
    if (this.comm) this.post('comm_msg', request);
  }

  private post(type: 'comm_open' | 'comm_msg' | 'comm_close', data: object): void {
    const { kernel } = this;
    if (kernel.isDisposed || kernel.status === 'dead') return;
    const target = type === 'comm_open' ? { target_name: TARGET } : {};
    kernel.sendShellMessage(
      KernelMessage.createMessage<KernelMessage.ICommMsgMsg<'shell'>>({
        // The three types differ in nothing else that is seen here.
        msgType: type as 'comm_msg',
        channel: 'shell',
        username: kernel.username,
        session: kernel.clientId,
        content: { comm_id: this.comm ?? '', data: data as JSONObject, ...target },
      }),
    );
  }
}

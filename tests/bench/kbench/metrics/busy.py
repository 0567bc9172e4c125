"""A kernel whose cell runs: what is answered meanwhile, and how it is interrupted."""

from __future__ import annotations

import time

import zmq

from ..client import Fail, Kernel, clock
from ..record import Recorder
from .metric import metric, ms


HOLDS = {
    "GIL held 3 s": "import ctypes\nprint('before')\n_ = ctypes.PyDLL(None).usleep(3_000_000)",
    "Python loop 3 s": "import time\nprint('before')\ne = time.monotonic() + 3\nwhile time.monotonic() < e: pass",
}


@metric("busy", reps=2)
def busy(k: Kernel, rec: Recorder) -> None:
    """Control channel, heartbeat and earlier output while a cell holds the GIL or loops."""
    for name, code in HOLDS.items():
        with rec.guard(f"busy, {name}: control [ms]"):
            control, beats, printed, idle_at = probe_while_busy(k, code)
            rec(f"busy, {name}: control [ms]", max(control))
            rec(f"busy, {name}: heartbeat [ms]", max(beats))
            row = f"busy, {name}: earlier print seen after [ms]"
            if printed is None:
                rec.fail(row, "never seen")
            elif printed > 2.9:
                rec.fail(row, f"only when the cell ended ({printed:.1f} s)")
            else:
                rec(row, ms(printed))


def probe_while_busy(k: Kernel, code: str):
    """Worst round trips of probes sent between 0.3 s and 2.7 s into a 3 s cell."""
    socks = {c: k.socks[c] for c in ("shell", "iopub", "control", "hb")}
    poller = zmq.Poller()
    for s in socks.values():
        poller.register(s, zmq.POLLIN)
    while socks["hb"].poll(0):
        socks["hb"].recv_multipart()
    start = clock()
    cell = k.send("shell", "execute_request", k.execute_content(code)).encode()
    waiting: dict[str, float] = {}
    control, beats, printed, idle_at, replied = [], [], None, None, False
    next_probe = start + 0.3
    while not (idle_at and replied and not waiting):
        now = clock()
        if now - start > 15:
            for c, t in waiting.items():
                raise Fail(f"{c} not answered in {now - t:.0f} s")
            raise Fail("no idle in 15 s")
        if now >= next_probe and now - start < 2.7:
            next_probe = now + 0.1
            if "control" not in waiting:
                k.send("control", "kernel_info_request", {})
                waiting["control"] = clock()
            if "hb" not in waiting:
                socks["hb"].send_multipart([b"", b"ping"])
                waiting["hb"] = clock()
        for s, _ in poller.poll(10):
            frames = s.recv_multipart()
            now = clock()
            if s is socks["control"]:
                control.append(ms(now - waiting.pop("control", now)))
            elif s is socks["hb"]:
                beats.append(ms(now - waiting.pop("hb", now)))
            elif s is socks["shell"]:
                replied = replied or cell in frames[-3]
            elif any(cell in f for f in frames):
                if any(b"before" in f and b'"text"' in f for f in frames) and printed is None:
                    printed = now - start
                if any(b'"idle"' in f for f in frames):
                    idle_at = now - start
    if not control or not beats:
        raise Fail("no probe was sent")
    if idle_at < 2.5:
        raise Fail(f"the cell took only {idle_at:.1f} s")
    return control, beats, printed, idle_at


LOOPS = {
    "while True: pass": "print('started', flush=True)\nwhile True: pass",
    "time.sleep(60)": "import time\nprint('started', flush=True)\ntime.sleep(60)",
    "numpy loop": "import numpy as np\na = np.random.rand(1000, 1000)\nprint('started', flush=True)\n"
                  "while True: a = a @ a; a /= a.max()",
    "input()": "print('started', flush=True)\ninput('? ')",
    "await asyncio.sleep(60)": "import asyncio\nprint('started', flush=True)\nawait asyncio.sleep(60)",
}


@metric("interrupt", reps=2, limit=150)
def interrupt(k: Kernel, rec: Recorder) -> None:
    """From km.interrupt_kernel() to idle; KeyboardInterrupt; the next cell runs."""
    for name, code in LOOPS.items():
        row = f"interrupt: {name} [ms]"
        with rec.guard(row):
            try:
                rec(row, interrupt_one(k, code))
            finally:
                if not k.healthy(5):
                    k.kill()
                    k.ensure()


def interrupt_one(k: Kernel, code: str) -> float:
    k.ensure()
    shell, iopub = k.socks["shell"], k.socks["iopub"]
    cell = k.send("shell", "execute_request", k.execute_content(code, allow_stdin="input(" in code))
    end = clock() + 10
    while True:
        msg = k.recv("iopub", end - clock())
        if msg is None:
            raise Fail("the cell did not start in 10 s")
        if msg.answers(cell) and msg.type == "stream":
            break
        if msg.answers(cell) and msg.type == "error":
            raise Fail(f"{msg.content['ename']}: {msg.content['evalue']}")
    time.sleep(0.3)
    t = clock()
    k.km.interrupt_kernel()
    idle_at, error, reply = None, None, None
    poller = zmq.Poller()
    poller.register(shell, zmq.POLLIN)
    poller.register(iopub, zmq.POLLIN)
    while not (idle_at and reply):
        if clock() - t > 8:
            raise Fail("not interrupted in 8 s" if not (idle_at or reply) else "no idle" if reply else "no reply")
        if not k.alive():
            raise Fail(k.death())
        for s, _ in poller.poll(200):
            msg = type(msg)(s.recv_multipart())
            if not msg.answers(cell):
                continue
            if s is shell:
                reply = msg
            elif msg.type == "error":
                error = msg.content["ename"]
            elif msg.is_idle():
                idle_at = msg.at
    took = ms(idle_at - t)
    ename = reply.content.get("ename")
    if reply.content.get("status") != "error" or "KeyboardInterrupt" not in (ename or "") + (error or ""):
        raise Fail(f"in {took:.1f} ms, but: reply {reply.content.get('status')} {ename}, error message {error}")
    try:
        after = k.run("print(6*7)", 5).ok()
    except Fail as e:
        raise Fail(f"interrupted, but then the next cell: {e}") from None
    if after.text().strip() != "42":
        raise Fail("interrupted, but the next cell printed " + repr(after.text()))
    return took

"""What requests take: cells, completion, inspection, comms."""

from __future__ import annotations

import os

import zmq

from ..client import Fail, Kernel, clock
from ..record import Recorder
from .metric import metric, ms


@metric("execute", reps=5, floor=True)
def execute(k: Kernel, rec: Recorder) -> None:
    """Round trip of `pass` one at a time, then 500 requests at once."""
    for _ in range(20):
        k.run("pass").ok()
    times, replies, cpu0, n = [], [], k.cpu(), 200
    for _ in range(n):
        run = k.run("pass")
        times.append(ms(max(run.idle, run.replied) - run.sent))
        replies.append(ms(run.replied - run.sent))
    rec("execute: `pass` until reply and idle, p50/p95/p99 [ms]", times)
    rec("execute: `pass` until reply, p50/p95/p99 [ms]", replies)
    rec("execute: kernel cpu per request [ms]", ms(k.cpu() - cpu0) / n)
    row = "execute: 500 pipelined, per request [ms]"
    try:
        rec(row, pipelined(k, 500))
    except Fail as e:
        rec.fail(row, e)
        k.kill()
        k.ensure()


def pipelined(k: Kernel, n: int, timeout: float = 30) -> float:
    shell, iopub = k.socks["shell"], k.socks["iopub"]
    poller = zmq.Poller()
    poller.register(shell, zmq.POLLIN)
    poller.register(iopub, zmq.POLLIN)
    k.drain()
    t = clock()
    ids = [k.send("shell", "execute_request", k.execute_content("pass")) for _ in range(n)]
    replies, idles, last = [], [], 0.0
    while len(replies) < n or len(idles) < n:
        if clock() - t > timeout:
            raise Fail(f"stuck after {len(replies)} replies and {len(idles)} idles of {n} ({timeout:g} s)")
        for s, _ in poller.poll(500):
            while True:
                try:
                    frames = s.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if s is shell:
                    replies.append(frames)
                elif b'"idle"' in frames[-1]:
                    idles.append(frames)
                    last = clock()
    dt = max(last, clock()) - t
    for what, got in (("replies", replies), ("idles", idles)):
        if not all(i.encode() in f[-3] for i, f in zip(ids, got)):
            raise Fail(f"{what} out of order")
    return ms(dt) / n


FRAME = """
import os
class Frame:
    pass
for _i in range(400):
    setattr(Frame, f'method_{_i}', lambda self: None)
    setattr(Frame, f'prop_{_i}', property(lambda self: {}))
frame = Frame()
try:
    import pandas as pd
    df = pd.DataFrame({'alpha': [1], 'beta': [2]})
except ImportError:
    df = None
"""


@metric("tools", reps=2)
def tools(k: Kernel, rec: Recorder) -> None:
    """Completion, inspection and is_complete."""
    k.run(FRAME, 30).ok()

    def timed(row: str, kind: str, content: dict, check, n: int = 20) -> None:
        with rec.guard(row):
            times = []
            for _ in range(n):
                t = clock()
                reply = k.request("shell", kind, content, 10).content
                times.append(ms(clock() - t))
                if reply.get("status") == "error":
                    raise Fail(f"{reply.get('ename')}: {reply.get('evalue')}")
                if problem := check(reply):
                    raise Fail(problem)
            rec(row, times)

    def has(*names):
        def check(r):
            got = r.get("matches", [])
            return next((f"{x} not in {len(got)} matches" for x in names
                         if not any(m.endswith(x) for m in got)), None)
        return check

    complete = lambda code: {"code": code, "cursor_pos": len(code)}  # noqa: E731
    inspect = lambda code: {"code": code, "cursor_pos": len(code), "detail_level": 0}  # noqa: E731
    found = lambda r: None if r.get("found") else "not found"  # noqa: E731
    timed("complete: os.pa [ms]", "complete_request", complete("import os; os.pa"), has("path"))
    timed("complete: 800 attributes [ms]", "complete_request", complete("frame."), has("method_7", "prop_9"))
    timed("complete: pandas df. [ms]", "complete_request", complete("df."), has("groupby", "alpha"), 10)
    timed("inspect: os.path.join [ms]", "inspect_request", inspect("os.path.join"), found)
    timed("inspect: pandas df [ms]", "inspect_request", inspect("df"), found, 5)
    timed("is_complete: incomplete [ms]", "is_complete_request", {"code": "for i in range(3):"},
          lambda r: None if r.get("status") == "incomplete" else f"said {r.get('status')}")
    timed("is_complete: complete [ms]", "is_complete_request", {"code": "a = 1"},
          lambda r: None if r.get("status") == "complete" else f"said {r.get('status')}")


COMM_TARGET = """
try:
    import comm
    _m = comm.get_comm_manager()
except Exception:
    _m = get_ipython().kernel.comm_manager
def _target(c, msg):
    def echo(m):
        c.send({'n': len(m['buffers'])}, buffers=m['buffers'])
    c.on_msg(echo)
    c.send({'opened': True})
_m.register_target('bench', _target)
"""


@metric("comm", reps=3, floor=True)
def comm(k: Kernel, rec: Recorder) -> None:
    """Echo of binary buffers through a comm."""
    comm_id = f"bench-{k._n}"
    if not k.is_floor:
        with rec.guard("comm: open [ms]"):
            k.run(COMM_TARGET, 10).ok()
            t = clock()
            k.send("shell", "comm_open", {"comm_id": comm_id, "target_name": "bench", "data": {}})
            comm_reply(k, 5)
            rec("comm: open [ms]", ms(clock() - t))
        if rec.results.failures("comm: open [ms]", k.name):
            return
    for name, buffers, n in (
        ("1 kB", [os.urandom(1000)], 50),
        ("1 MB", [os.urandom(1 << 20)], 10),
        ("32 MB", [os.urandom(32 << 20)], 2),
        ("50 x 1 MB", [os.urandom(1 << 20)] * 50, 1),
    ):
        row = f"comm: echo {name} [ms]"
        with rec.guard(row):
            times = []
            for _ in range(n):
                t = clock()
                k.send("shell", "comm_msg", {"comm_id": comm_id, "data": {}}, buffers)
                back = comm_reply(k, 20)
                times.append(ms(clock() - t))
                if back.buffers != buffers:
                    raise Fail(f"{sum(map(len, back.buffers))} of {sum(map(len, buffers))} bytes came back")
            rec(row, sorted(times)[len(times) // 2])


def comm_reply(k: Kernel, timeout: float):
    end = clock() + timeout
    while (left := end - clock()) > 0:
        msg = k.recv("iopub", min(left, 0.5))
        if msg is None:
            if not k.alive():
                raise Fail(k.death())
        elif msg.type == "comm_msg":
            return msg
        elif msg.type in ("comm_close", "error"):
            raise Fail(f"{msg.type}: {str(msg.content)[:100]}")
        elif msg.type == "stream" and "rror" in msg.content["text"]:
            raise Fail(msg.content["text"].strip().splitlines()[-1])
    raise Fail(f"no comm_msg back in {timeout:g} s")

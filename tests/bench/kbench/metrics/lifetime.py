"""A kernel's start, idleness and end."""

from __future__ import annotations

import contextlib
import os
import select
import time

import psutil

from ..client import Fail, Kernel, clock
from ..record import Recorder
from .metric import MB, metric, ms


@metric("startup", reps=7, floor=True, fresh=True)
def startup(k: Kernel, rec: Recorder) -> None:
    """Spawn to first kernel_info_reply and first result; first completion; memory and CPU at idle."""
    k.start()
    k.request("shell", "kernel_info_request", {}, 60)
    rec("startup: kernel_info [ms]", ms(clock() - k.spawned))
    # its idle may be lost: the subscription to iopub can still be on its way
    reply = k.request("shell", "execute_request", k.execute_content("1"), 60)
    rec("startup: first execute [ms]", ms(clock() - k.spawned))
    if reply.content["status"] != "ok":
        raise Fail(f"first cell ended with {reply.content['status']}")
    k.wait_ready()
    rec("startup: cpu until ready [ms]", ms(k.cpu()))
    if not k.is_floor:
        t = clock()
        code = "import os; os.pa"
        k.request("shell", "complete_request", {"code": code, "cursor_pos": len(code)}, 30)
        rec("complete: first ever [ms]", ms(clock() - t))


@metric("idle", reps=2, floor=True)
def idle(k: Kernel, rec: Recorder) -> None:
    """Memory of the process tree, and what an idle kernel still does."""
    time.sleep(0.3)
    before, cpu0, t0 = switches(k), k.cpu(), clock()
    time.sleep(2)
    dt = clock() - t0
    rec("idle: context switches [1/s]", (switches(k) - before) / dt)
    rec("idle: cpu [ms/s]", ms(k.cpu() - cpu0) / dt)
    full = [p.memory_full_info() for p in k.tree()]
    rec("idle: RSS of the tree [MB]", sum(m.rss for m in full) / MB)
    rec("idle: PSS of the tree [MB]", sum(m.pss for m in full) / MB)
    rec("idle: processes [n]", len(full))
    rec("idle: threads [n]", sum(p.num_threads() for p in k.tree()))


def switches(k: Kernel) -> int:
    total = 0
    for p in k.tree():
        # the process figure covers the main thread only, so look at each thread
        with contextlib.suppress(OSError, psutil.Error):
            for tid in os.listdir(f"/proc/{p.pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{p.pid}/task/{tid}/status") as f:
                    total += sum(int(x.split()[1]) for x in f if "ctxt_switches" in x)
    return total


@metric("shutdown", reps=4, floor=True, fresh=True)
def shutdown(k: Kernel, rec: Recorder) -> None:
    """shutdown_request to reply and to the end of the process; km.restart_kernel()."""
    row = "restart: restart_kernel() to kernel_info [ms]"
    k.start()
    k.wait_ready()
    with rec.guard(row):
        t = clock()
        k.restart()
        k.request("shell", "kernel_info_request", {}, 60)
        rec(row, ms(clock() - t))
    row = "shutdown: until the process ended [ms]"
    with rec.guard(row):
        k.ensure()
        k.wait_ready()
        procs, fd_ = k.tree(), os.pidfd_open(k.pid)
        try:
            t = clock()
            msg_id = k.send("control", "shutdown_request", {"restart": False})
            with rec.guard("shutdown: until the reply [ms]"):
                rec("shutdown: until the reply [ms]", ms(k.reply("control", msg_id, 10).at - t))
            if not select.select([fd_], [], [], 15)[0]:
                raise Fail("still running 15 s after shutdown_request")
            rec(row, ms(clock() - t))
        finally:
            os.close(fd_)
        _, left = psutil.wait_procs(procs[1:], timeout=1)
        if left:
            rec.fail("shutdown: children left", ", ".join(p.name() for p in left))
    k.kill()

"""Output: how fast and in which order it arrives, what is captured, displays."""

from __future__ import annotations

import time

from ..client import Fail, Kernel
from ..record import Recorder
from .metric import metric, ms


def stream_case(k: Kernel, rec: Recorder, row: str, code: str, expect: str, name="stdout") -> None:
    with rec.guard(f"{row} [ms]"):
        cpu0 = k.cpu()
        run = k.run(code, 60).ok()
        cpu = k.cpu() - cpu0
        msgs, text = run.of("stream"), run.text(name)
        if text != expect:
            late = "".join(m.content["text"] for m in k.late(1) if m.type == "stream")
            if text + late == expect:
                raise Fail(f"{len(late)} characters came after idle")
            raise Fail(f"lost or reordered: got {len(text)} of {len(expect)} characters in {len(msgs)} messages"
                       + (f", and {len(late)} after idle" if late else ""))
        rec(f"{row} [ms]", ms(run.idle - run.sent))
        rec(f"{row}: first output [ms]", ms(msgs[0].at - run.sent))
        rec(f"{row}: messages [n]", len(msgs))
        rec(f"{row}: kernel cpu [ms]", ms(cpu))


@metric("stdout", reps=5, floor=True)
def stdout(k: Kernel, rec: Recorder) -> None:
    """100,000 prints, one print of 10 MB; complete and in order."""
    k.run("pass #floor:", 30)
    stream_case(k, rec, "stdout: 100k prints",
                "for i in range(100_000): print(i) #floor:lines", "".join(f"{i}\n" for i in range(100_000)))
    stream_case(k, rec, "stdout: one 10 MB print",
                "print('x'*10_000_000) #floor:big", "x" * 10_000_000 + "\n")


@metric("streaming", reps=3)
def streaming(k: Kernel, rec: Recorder) -> None:
    """How late output arrives while its cell still computes."""
    delays = []

    def arrived(m):
        now = time.time()
        if m.type == "stream":
            delays.extend(ms(now - float(x)) for x in m.content["text"].split())

    k.run("import time\nfor _ in range(10):\n    print(time.time())\n"
          "    e = time.monotonic() + 0.1\n    while time.monotonic() < e: pass", 20, arrived).ok()
    rec("stdout: delay of a line while the cell computes, p50/p95/p99 [ms]", delays)


@metric("order", reps=3)
def order(k: Kernel, rec: Recorder) -> None:
    """Is the order of stdout, stderr and displays within a cell kept?"""
    n = 200

    def sequence(code: str) -> list[str]:
        run = k.run(code, 20).ok()
        out = []
        for m in run.msgs:
            if m.type == "stream":
                out += m.content["text"].split()
            elif m.type in ("display_data", "execute_result"):
                out.append(m.content["data"]["text/plain"])
        return out

    want = [f"{c}{i}" for i in range(n) for c in "oe"]
    for row, flush in (("order: stdout and stderr, no flush", False), ("order: stdout and stderr, flush", True)):
        with rec.guard(row):
            got = sequence("import sys\n" f"for i in range({n}):\n"
                           f"    print(f'o{{i}}', flush={flush})\n"
                           f"    print(f'e{{i}}', file=sys.stderr, flush={flush})")
            if sorted(got) != sorted(want):
                raise Fail(f"{len(got)} of {len(want)} lines arrived")
            bad = sum(a != b for a, b in zip(got, want))
            rec(row, "kept") if not bad else rec.fail(row, f"{bad} of {len(want)} lines out of place")
    row = "order: print and display"
    with rec.guard(row):
        got = sequence("from IPython.display import display\nfor i in range(50):\n"
                       "    print(f'p{i}')\n    display(i)")
        want = [x for i in range(50) for x in (f"p{i}", str(i))]
        rec(row, "kept") if got == want else rec.fail(row, f"{len(got)} of {len(want)} items, or out of place")


@metric("display", reps=3, floor=True)
def display(k: Kernel, rec: Recorder) -> None:
    """1,000 display(HTML), one image of 10 MB."""
    k.run("pass #floor:", 30)
    row = "display: 1,000 x HTML [ms]"
    with rec.guard(row):
        run = k.run("from IPython.display import display, HTML\n"
                    "for i in range(1000): display(HTML(f'<b>{i}</b>')) #floor:html", 60).ok()
        got = [m.content["data"].get("text/html") for m in run.of("display_data")]
        if got != [f"<b>{i}</b>" for i in range(1000)]:
            raise Fail(f"{len(got)} of 1000 displays, or out of order")
        rec(row, ms(run.idle - run.sent))
    row = "display: one 10 MB PNG [ms]"
    with rec.guard(row):
        k.run("from IPython.display import display, Image\n"
              "png = Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(10_000_000), format='png')", 30).ok()
        run = k.run("display(png) #floor:png", 60).ok()
        data = [m.content["data"].get("image/png", "") for m in run.of("display_data")]
        if len(data) != 1 or len(data[0]) < 13_333_000:
            raise Fail(f"got {[len(d) for d in data]} characters of base64")
        rec(row, ms(run.idle - run.sent))


FD_CASES = {
    "os.write(1), 1,000 lines": ("import os\nfor i in range(1000): os.write(1, b'%d\\n' % i)",
                                 "stdout", "".join(f"{i}\n" for i in range(1000))),
    "os.write(2)": ("import os; _ = os.write(2, b'err\\n')", "stderr", "err\n"),
    "subprocess.run(echo)": ("import subprocess; _ = subprocess.run(['echo', 'hi'])", "stdout", "hi\n"),
    "os.system(echo)": ("import os; _ = os.system('echo hi')", "stdout", "hi\n"),
    "subprocess, 100k lines": ("import subprocess; _ = subprocess.run(['seq', '100000'])",
                               "stdout", "".join(f"{i}\n" for i in range(1, 100_001))),
    "C printf and fflush": ("import ctypes; c = ctypes.CDLL(None); c.printf(b'hi %d\\n', 1); _ = c.fflush(None)",
                            "stdout", "hi 1\n"),
    "C printf, no fflush": ("import ctypes; _ = ctypes.CDLL(None).printf(b'hi %d\\n', 2)", "stdout", "hi 2\n"),
}


@metric("fd", reps=1)
def fd(k: Kernel, rec: Recorder) -> None:
    """Output written below Python: is it captured, whole, before idle?"""
    for name, (code, stream, expect) in FD_CASES.items():
        row = f"fd: {name}"
        with rec.guard(row):
            run = k.run(code, 30).ok()
            text = run.text(stream)
            if text == expect:
                rec(row, "yes")
                continue
            late = k.late(1.5)
            text += "".join(m.content["text"] for m in late
                            if m.type == "stream" and m.content["name"] == stream)
            rec(row, "after idle" if text == expect else f"part {len(text)}/{len(expect)}" if text else "no")
    row = "fd: os.write and print in order"
    with rec.guard(row):
        run = k.run("import os\nfor i in range(50):\n    print('p%d' % i, flush=True)\n"
                    "    _ = os.write(1, b'w%d\\n' % i)", 30).ok()
        want = [f"{c}{i}" for i in range(50) for c in "pw"]
        got = run.text().split()
        if got != want:
            got += [x for m in k.late(1.5) if m.type == "stream" for x in m.content["text"].split()]
        rec(row, "kept" if got == want else "no" if sorted(got) == sorted(want) else "not captured")

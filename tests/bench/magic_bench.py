"""What `%%tpu_compile` adds to the second run of a cell, over a function made with `torch.compile` by hand.

    python magic_bench.py [--turns 200]

The same work of a transformer in three kinds of cells, in turns, in one kernel, sent as a front end sends
them. A cell's time is the kernel's own: from its start to the date of its reply, for which the device is
done. Compare within one run: what is added is the median of the differences of each turn, by the clock and
(which other work on the machine disturbs less) of the main thread's processor time.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from datetime import datetime
from typing import Any

from jupyter_client.manager import start_new_kernel

PREPARE = """
import time
import torch
from torch import nn

torch.manual_seed(0)

def encoder(layers):
    layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers).to("tpu").requires_grad_(False).eval()

model, large_model = encoder(2), encoder(10)
x, large, larger = (torch.randn(*sizes, 256).to("tpu") for sizes in ((2, 16), (4, 64), (8, 64)))

@torch.compile
def by_hand(x):
    return model(x).square().mean()

@torch.compile
def large_by_hand(x):
    return large_model(x).square().mean()
"""

LOOP = "for _ in range(10):\n    "
#: Work -> by hand, in a compiled cell, steps in it.
CELLS = {
    "a short step": ("result = by_hand(x)", "result = model(x).square().mean()", 1),
    "ten of them in a loop, each": (f"{LOOP}result = by_hand(x)", f"{LOOP}result = model(x).square().mean()", 10),
    "a step of ten layers": ("result = large_by_hand(large)", "result = large_model(large).square().mean()", 1),
    "the same with twice the rows": (
        "result = large_by_hand(larger)",
        "result = large_model(larger).square().mean()",
        1,
    ),
}
#: Turns that are not counted: compiling, and what is cold.
FIRST_TURNS = 5


class Kernel:
    """A kernel whose cells are timed."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="pytorch-tpu")

    def run(self, code: str) -> tuple[float, float]:
        """When a cell ended and how long it took, in ms: of the main thread's processor time (since the
        thread began) and by the clock."""
        reply: Any = self.client.execute_interactive(
            code,
            user_expressions={"time": "__import__('time').thread_time()"},
            timeout=600,
            output_hook=lambda message: None,
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        computed = ast.literal_eval(reply["content"]["user_expressions"]["time"]["data"]["text/plain"])
        started = datetime.fromisoformat(reply["metadata"]["started"])
        return 1e3 * computed, 1e3 * (reply["header"]["date"] - started).total_seconds()

    def measured(self, cells: list[str], turns: int) -> list[list[tuple[float, float]]]:
        """For each cell its times in ms, by the clock and of the processor."""
        times: list[list[tuple[float, float]]] = [[] for _ in cells]
        computed = self.run("pass")[0]
        for turn in range(turns + FIRST_TURNS):
            for which in range(len(cells)):
                which = (which + turn) % len(cells)
                before, (computed, took) = computed, self.run(cells[which])
                if turn >= FIRST_TURNS:
                    times[which].append((took, computed - before))
        return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    turns = parser.parse_args().turns
    kernel = Kernel()
    try:
        kernel.run(PREPARE)
        head = ("a cell's second run [ms]", "by hand", "`--quiet`", "with its card")
        added = ("`--quiet` adds", "with the card", "processor, `--quiet`", "with the card")
        print(f"| {' | '.join(head + added)} |\n|{'---|' * 8}")
        for name, (hand, body, steps) in CELLS.items():
            cells = [hand, f"%%tpu_compile --quiet\n{body}", f"%%tpu_compile\n{body}"]
            found = kernel.measured(cells, turns)
            clock = [[took for took, _ in each] for each in found]
            by_hand = statistics.median(clock[0])
            row = [f"{statistics.median(each) / steps:.2f} ({min(each) / steps:.2f})" for each in clock]
            for of in (0, 1):
                for each in found[1:]:
                    more = statistics.median(a[of] - b[of] for a, b in zip(each, found[0], strict=True))
                    row.append(f"{more / steps:.2f} ({100 * more / by_hand:.1f} %)")
            print(f"| {name} | {' | '.join(row)} |", flush=True)
    finally:
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

"""What `%%tpu_compile` adds to the second run of a cell, over a function made with `torch.compile` by hand.

    python magic_bench.py [--turns 200]

The same work of a transformer in three kinds of cells, in turns, in one kernel; the device is waited for
before and after each. Compare within one run: what is added is the median of the differences of each turn,
by the clock and (which other work on the machine disturbs less) of the main thread's processor time.
"""

from __future__ import annotations

import argparse
import ast

from jupyter_client.manager import start_new_kernel

PREPARE = """
import statistics
import time
import torch
from torch import nn

torch.manual_seed(0)

def encoder(layers):
    layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers).to("tpu").requires_grad_(False).eval()

model, large_model = encoder(2), encoder(10)
x, large = torch.randn(2, 16, 256).to("tpu"), torch.randn(4, 64, 256).to("tpu")

@torch.compile
def by_hand(x):
    return model(x).square().mean()

@torch.compile
def large_by_hand(x):
    return large_model(x).square().mean()

shell = get_ipython()

def measured(cells, turns):
    times = [[] for _ in cells]
    for turn in range(turns + 5):
        for which in range(len(cells)):
            which = (which + turn) % len(cells)
            torch.accelerator.synchronize()
            started, computed = time.perf_counter(), time.thread_time()
            shell.run_cell(cells[which])
            torch.accelerator.synchronize()
            took = time.perf_counter() - started, time.thread_time() - computed
            if turn >= 5:
                times[which].append([1e3 * seconds for seconds in took])
    hand = times[0]
    return [
        [
            statistics.median(wall for wall, _ in found),
            min(wall for wall, _ in found),
            *(statistics.median(a[of] - b[of] for a, b in zip(found, hand)) for of in (0, 1)),
        ]
        for found in times
    ]
"""

LOOP = "for _ in range(10):\n    "
#: Work -> by hand, in a compiled cell, steps in it.
CELLS = {
    "a short step": ("result = by_hand(x)", "result = model(x).square().mean()", 1),
    "ten of them in a loop, each": (f"{LOOP}result = by_hand(x)", f"{LOOP}result = model(x).square().mean()", 10),
    "a step of ten layers": ("result = large_by_hand(large)", "result = large_model(large).square().mean()", 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    turns = parser.parse_args().turns
    manager, client = start_new_kernel(kernel_name="pytorch-tpu")

    def value(code: str, expression: str) -> object:
        reply = client.execute_interactive(
            code, user_expressions={"value": expression}, timeout=600, output_hook=lambda message: None
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        return ast.literal_eval(reply["content"]["user_expressions"]["value"]["data"]["text/plain"])

    try:
        value(PREPARE, "0")
        head = ("a cell's second run [ms]", "by hand", "`--quiet`", "with its card")
        added = ("`--quiet` adds", "with the card", "processor, `--quiet`", "with the card")
        print(f"| {' | '.join(head + added)} |\n|{'---|' * 8}")
        for name, (hand, body, steps) in CELLS.items():
            cells = [hand, f"%%tpu_compile --quiet\n{body}", f"%%tpu_compile\n{body}"]
            found = value(f"found = measured({cells!r}, {turns})", "found")
            assert isinstance(found, list)
            by_hand = found[0][0]
            row = [f"{each[0] / steps:.2f} ({each[1] / steps:.2f})" for each in found]
            row += [f"{each[of] / steps:.2f} ({100 * each[of] / by_hand:.1f} %)" for of in (2, 3) for each in found[1:]]
            print(f"| {name} | {' | '.join(row)} |", flush=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

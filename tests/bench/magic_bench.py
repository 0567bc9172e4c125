"""What `%%tpu_compile` adds to the second run of a cell, over a function made with `torch.compile` by hand.

    python magic_bench.py [--turns 200]

The same work of a transformer in three kinds of cells, in turns, in one kernel; the device is waited for
before and after each. Compare within one run: what is added is the median of the differences of each turn.
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
        for cell, found in zip(cells, times):
            torch.accelerator.synchronize()
            started = time.perf_counter()
            shell.run_cell(cell)
            torch.accelerator.synchronize()
            if turn >= 5:
                found.append((time.perf_counter() - started) * 1e3)
    hand = times[0]
    return [
        (statistics.median(found), min(found), statistics.median(a - b for a, b in zip(found, hand)))
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
        print("| second run of a cell, median (least) [ms] | by hand | `--quiet` | with its card | added by `--quiet` | added with the card |")
        print("|---|---|---|---|---|---|")
        for name, (hand, body, steps) in CELLS.items():
            cells = [hand, f"%%tpu_compile --quiet\n{body}", f"%%tpu_compile\n{body}"]
            found = value(f"found = measured({cells!r}, {turns})", "found")
            assert isinstance(found, list)
            by_hand = found[0][0] / steps
            times = [f"{median / steps:.2f} ({least / steps:.2f})" for median, least, _ in found]
            added = [f"{more / steps:.2f} ({more / steps / by_hand:.1%})" for _, _, more in found[1:]]
            print(f"| {name} | {' | '.join(times + added)} |", flush=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

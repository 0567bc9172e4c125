"""What `%%tpu_compile` adds to the second run of a cell, over a function made with `torch.compile` by hand.

    python magic_bench.py [--turns 200]

Cells run in turns in one kernel, the device waited for before and after each. Compare within one run.
"""

from __future__ import annotations

import argparse
import ast

from jupyter_client.manager import start_new_kernel

PREPARE = """
import time
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 2).to("tpu").requires_grad_(False).eval()
small, large = torch.randn(2, 16, 256).to("tpu"), torch.randn(16, 64, 256).to("tpu")

@torch.compile
def by_hand(x):
    encoded = model(x)
    return encoded.square().mean()

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
    return [(sorted(found)[turns // 2], min(found)) for found in times]
"""

BODY = "encoded = model({0})\nresult = encoded.square().mean()"
INDENTED = "for _ in range(10):\n    encoded = model({0})\n    result = encoded.square().mean()"
CELLS = {
    "a short step": ("result = by_hand(small)", BODY.format("small"), 1),
    "a long step": ("result = by_hand(large)", BODY.format("large"), 1),
    "ten short steps in a loop": (
        "for _ in range(10):\n    result = by_hand(small)",
        INDENTED.format("small"),
        10,
    ),
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
        print("| second run of a cell [ms] | by hand | `%%tpu_compile --quiet` | with its card | added by `--quiet` |")
        print("|---|---|---|---|---|")
        for name, (hand, body, steps) in CELLS.items():
            cells = [hand, f"%%tpu_compile --quiet\n{body}", f"%%tpu_compile\n{body}"]
            found = value(f"found = measured({cells!r}, {turns})", "found")
            assert isinstance(found, list)
            for figure, column in (("median", 0), ("least", 1)):
                by_hand, quiet, card = (each[column] / steps for each in found)
                added = f"{quiet - by_hand:.2f} ({(quiet - by_hand) / by_hand:.1%})"
                each = ", each step" if steps > 1 else ""
                print(f"| {name}{each}, {figure} | {by_hand:.2f} | {quiet:.2f} | {card:.2f} | {added} |")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What the cache of compiled programs saves: a training cell in a first kernel and in the one after a restart.

    restart_bench.py [PAIRS]

Each pair starts with an empty cache. Prints the medians of the first step's wall time, of the time spent
compiling or loading programs, and of what the second kernel takes of the first.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from typing import Any

from jupyter_client.manager import start_new_kernel

CELLS = {
    "transformer, torch.compile": """
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True), 4, enable_nested_tensor=False)
model = torch.nn.Sequential(torch.nn.Embedding(1000, 128), model, torch.nn.Linear(128, 1000)).to("tpu")
run = torch.compile(model)
x = torch.randint(0, 1000, (4, 64)).to("tpu")
y = x.flatten()
""",
    "transformer, eager": """
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True), 4, enable_nested_tensor=False)
run = model = torch.nn.Sequential(torch.nn.Embedding(1000, 128), model, torch.nn.Linear(128, 1000)).to("tpu")
x = torch.randint(0, 1000, (4, 64)).to("tpu")
y = x.flatten()
""",
}
SETUP = """
import json, time, torch
from tpu_kernel.tpu import device
torch.manual_seed(0)
"""
STEP = """
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.accelerator.synchronize()
before, begun = device.snapshot(), time.perf_counter()
torch.nn.functional.cross_entropy(run(x).flatten(0, 1), y).backward()
opt.step()
torch.accelerator.synchronize()
step, after = time.perf_counter() - begun, device.snapshot()
print(json.dumps({"step": step, **{name: after[name] - before[name]
    for name in ("compiles", "compile_ns", "cache_hits", "cache_hit_ns")}}))
"""


def step(cell: str, cache: str) -> dict[str, Any]:
    """The first training step of a new kernel."""
    manager, client = start_new_kernel(
        kernel_name="pytorch-tpu", startup_timeout=120, env={**os.environ, "TPU_KERNEL_CACHE": cache}
    )
    printed: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    try:
        reply = client.execute_interactive(SETUP + cell + STEP, timeout=600, output_hook=hook)
        if reply["content"]["status"] != "ok":
            raise RuntimeError("\n".join(reply["content"]["traceback"]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    return json.loads("".join(printed))


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seen: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {name: [] for name in CELLS}
    for _ in range(pairs):
        for name, cell in CELLS.items():
            with tempfile.TemporaryDirectory(prefix="tpu-cache-") as cache:
                seen[name].append((step(cell, cache), step(cell, cache)))
    print("| first training step | first kernel | after a restart | ratio |\n|---|---|---|---|")
    for name, measured in seen.items():
        walls = [(first["step"], second["step"]) for first, second in measured]
        compiles = [
            (first["compile_ns"] / 1e9, (second["compile_ns"] + second["cache_hit_ns"]) / 1e9)
            for first, second in measured
        ]
        for what, values in (("wall, s", walls), ("compiling or loading programs, s", compiles)):
            first, second = (statistics.median(column) for column in zip(*values, strict=True))
            ratio = statistics.median(b / a for a, b in values)
            print(f"| {name}: {what} | {first:.2f} | {second:.2f} | {ratio:.2f} |")
        counts = [(first["compiles"], second["compiles"], second["cache_hits"]) for first, second in measured]
        print(
            f"| {name}: programs compiled (from cache) | {counts[0][0]} | {counts[0][1]} ({counts[0][2]}) | |"
        )


if __name__ == "__main__":
    main()

"""What tpu-core's bookkeeping takes: per call over a plug-in that does nothing, and in a real training step.

    python device_bench.py [--turns 30]

The step, of a small transformer, eager, runs in two processes in turns: TorchTPU over tpu-core over the
CPU plug-in, and TorchTPU over the CPU plug-in alone. Compare the two of one run, as a ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = 10


def steps() -> None:
    """In a process of its own: for each line of input some steps, and of each its milliseconds by the
    clock and of the processor."""
    from tpu_kernel import bootstrap

    bootstrap.install()
    if os.environ["BENCH_CORE"] == "0":
        bootstrap._locate_plugins()
        os.environ["TPU_LIBRARY_PATH"] = os.environ["TPU_KERNEL_CPU_PLUGIN"]
    import torch
    from torch import nn

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(8, 32, 64).to("tpu")

    def step() -> tuple[float, float]:
        started, used = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        return (time.perf_counter() - started) * 1e3, (time.process_time() - used) * 1e3

    for _ in range(5):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps([step() for _ in range(STEPS)]), flush=True)


class Process:
    """One of the two."""

    def __init__(self, core: bool) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TPU_", "TORCH"))}
        env |= {"BENCH_CORE": str(int(core)), "TPU_KERNEL_CACHE": "off"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--steps"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def turn(self) -> list[list[float]]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def end(self) -> None:
        self._process.communicate(timeout=60)


def calls() -> list[dict[str, float | str]]:
    """Nanoseconds tpu-core takes, by kind of call."""
    command = ["cargo", "bench", "-q", "--locked", "-p", "tpu-core", "--bench", "overhead"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    if options.steps:
        steps()
        return
    names = {
        "buffer": "a buffer, from the host to its end [ns]",
        "launch": "a launch that writes its result in the place of an argument [ns]",
        "launch_4_to_2": "a launch of four arguments and two results [ns]",
    }
    lines = ["| added by tpu-core | median | least |", "|---|---|---|"]
    lines += [f"| {names[str(call['what'])]} | {call['median_ns']} | {call['least_ns']} |" for call in calls()]
    core, alone = Process(core=True), Process(core=False)
    times: dict[Process, list[list[float]]] = {core: [], alone: []}
    for _ in range(options.turns):
        for process in (core, alone):
            times[process] += process.turn()
    for process in (core, alone):
        process.end()
    lines += ["", "| eager transformer step | with tpu-core | without | ratio |", "|---|---|---|---|"]
    for name, figure in (("median", statistics.median), ("least", min)):
        for what, column in (("by the clock", 0), ("of the processor", 1)):
            with_core, without = (figure(step[column] for step in times[each]) for each in (core, alone))
            row = f"{with_core:.2f} | {without:.2f} | {with_core / without:.2f}"
            lines.append(f"| {name}, {what} [ms] | {row} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

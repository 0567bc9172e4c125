"""What the checks of arguments add to operators on the device, for calls whose arguments fit.

    python checks_bench.py [--rounds 5]

Processes in turns: without the checks, with all of them in PyTorch's dispatcher, and as the kernel has
them, where Python calls PyTorch. Small tensors; times are those of the processor in the thread that calls,
so the device's are not in them. Compare within one run.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time

#: Calls timed at once; the device is waited for in between.
CALLS = 20
WAYS = ("without", "dispatcher", "kernel")


def calls() -> dict[str, object]:
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.rand(*shape).to("tpu")

    vector, matrix, image, signal = some(4), some(4, 4), some(1, 3, 8, 8), some(1, 3, 8)
    weight, bias, heads = some(4, 3, 3, 3), some(4), some(1, 2, 4, 8)
    layer = torch.nn.Conv2d(3, 4, 3, padding=1).to("tpu")
    index, points = torch.tensor([0, 2]).to("tpu"), some(1, 4, 4, 2)
    ten = [some(4, 4) for _ in range(10)]
    return {
        "`copy_`": lambda: vector.copy_(vector),
        "`clone`": lambda: vector.clone(),
        "`conv2d`": lambda: F.conv2d(image, weight, bias),
        "`nn.Conv2d`": lambda: layer(image),
        "`max_pool2d`": lambda: F.max_pool2d(image, 2),
        "`avg_pool1d`": lambda: F.avg_pool1d(signal, 2),
        "`adaptive_avg_pool2d`": lambda: F.adaptive_avg_pool2d(image, 2),
        "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads),
        "`pad`, reflecting": lambda: F.pad(image, (1, 1, 1, 1), mode="reflect"),
        "`grid_sample`": lambda: F.grid_sample(image, points, align_corners=False),
        "`roll`": lambda: torch.roll(vector, 1, 0),
        "`take`": lambda: torch.take(vector, index),
        "`_foreach_add` of ten": lambda: torch._foreach_add(ten, ten),
        "`dot`": lambda: torch.dot(vector, vector),
        "`index_select`": lambda: torch.index_select(matrix, 0, index),
        "`add` (not checked)": lambda: torch.add(vector, vector),
    }


def worker(way: str) -> None:
    from tpu_kernel import bootstrap

    bootstrap.install()
    if way != "kernel":
        bootstrap._install_checks = lambda: None
    import torch

    from tpu_kernel.tpu import bad_input, guards

    if way == "dispatcher":
        kept = [*bad_input.guard(bad_input._CHECKS), guards.guard_pads(), guards.guard_lists()]  # noqa: F841
    found = {}
    gc.disable()
    with torch.no_grad():
        for name, call in calls().items():
            times = []
            for _ in range(60):
                torch.accelerator.synchronize()
                started = time.thread_time_ns()
                for _ in range(CALLS):
                    call()
                times.append(time.thread_time_ns() - started)
            found[name] = statistics.median(times[10:]) / CALLS / 1e3
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", choices=WAYS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker)
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for turn in range(given.rounds):
        for way in WAYS if turn % 2 else reversed(WAYS):
            command = [sys.executable, __file__, "--worker", way]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[way].append(json.loads(output.splitlines()[-1]))
    print("| a call [µs] | without checks | in the dispatcher adds | the kernel's add |\n|---|---|---|---|")
    for name in found["without"][0]:
        bare, *rest = (statistics.median(each[name] for each in found[way]) for way in WAYS)
        print(f"| {name} | {bare:.1f} | {' | '.join(f'{each - bare:.1f}' for each in rest)} |")


if __name__ == "__main__":
    main()

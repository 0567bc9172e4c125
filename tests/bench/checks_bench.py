"""What the checks of arguments add to operators on the device, for calls whose arguments fit.

    python checks_bench.py [--rounds 10]

In one process, small tensors: the median time of each look that the kernel takes where Python calls PyTorch;
and what the same check adds in PyTorch's dispatcher, the least of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import operator
import statistics
import time

from tpu_kernel import bootstrap

bootstrap.install()

import torch
from tpu_kernel.tpu import entries


def some(*shape: int) -> torch.Tensor:
    return torch.rand(*shape).to("tpu")


def calls() -> dict[str, tuple]:
    vector, image, signal, heads = some(4), some(1, 3, 8, 8), some(1, 3, 8), some(1, 2, 4, 8)
    scale, points, ten = some(8), some(1, 4, 4, 2), [some(4, 4) for _ in range(10)]
    return {
        "Tensor.copy_": (vector, vector),
        "conv2d": (image, some(4, 3, 3, 3), some(4)),
        "layer_norm": (heads, (8,), scale, scale),
        "ops.tpu._max_pool2d": (image, [2, 2], [2, 2], [0, 0], [1, 1], False),
        "avg_pool1d": (signal, 2),
        "_C._nn.adaptive_avg_pool2d": (image, 2),
        "_C._nn.scaled_dot_product_attention": (heads, heads, heads),
        "_C._nn.pad": (image, (1, 1, 1, 1), "reflect"),
        "grid_sampler": (image, points, 0, 0, False),
        "_foreach_add": (ten, ten),
    }


def median(call: object, arguments: tuple, times: int) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter_ns()
        call(*arguments)
        ended = time.perf_counter_ns()
        taken.append((ended - started) - (time.perf_counter_ns() - ended))
    return statistics.median(taken) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    gc.disable()
    torch.set_grad_enabled(False)
    print("| a call [µs] | takes | in the dispatcher adds | a look |\n|---|---|---|---|")
    for name, arguments in calls().items():
        function = operator.attrgetter(name)(torch)
        put, fits = next((put, looks[name]) for put, looks in entries._ENTRIES if name in looks)
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for checked in (False, True):
                libraries = put() if checked else []
                function(*arguments)
                torch.accelerator.synchronize()
                found[checked].append(median(function, arguments, 40))
                torch.accelerator.synchronize()
                for library in libraries:
                    library._destroy()
        look = median(fits, arguments, 3000)
        bare, dispatched = (min(times) for times in found)
        print(f"| `{name}` | {bare - look:.1f} | {dispatched - bare:.1f} | {look:.1f} |", flush=True)


if __name__ == "__main__":
    main()

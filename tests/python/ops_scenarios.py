"""What the emulated chip computes: `python ops_scenarios.py [NAME …]` runs scenarios, prints JSON.

They run in a plain Python process with the real torch_tpu, apart from the tests, which an abort
must not end. Each prints a line with its name and what it found, or the exception that ended it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tpu_kernel import bootstrap

bootstrap.install()

import torch
from torch import Tensor

SCENARIOS: dict[str, Callable[[], dict[str, Any]]] = {}


def scenario(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    SCENARIOS[function.__name__] = function
    return function


def listed(value: Tensor) -> Any:
    return value.detach().cpu().tolist()


def chip(*values: Any, **options: Any) -> Tensor:
    return torch.tensor(*values, device="tpu", **options)


X = [[3.0, 1.0, 2.0], [1.0, 5.0, 4.0]]


@scenario
def scans() -> dict[str, Any]:
    """Every scan, along both dimensions, of every type."""
    x = chip(X)
    ints, flags = chip([[3, 1, 2], [1, 5, 4]]), chip([[True, False, True], [True, True, False]])
    longest = torch.ones(100_000, device="tpu")
    return {
        "cumsum": [listed(x.cumsum(0)), listed(x.cumsum(1)), listed(x.cumsum(-2))],
        "cumprod": [listed(x.cumprod(0)), listed(x.cumprod(-1))],
        "cummax": [listed(part) for part in x.cummax(1)],
        "cummin": [listed(part) for part in x.cummin(1)],
        "logcumsumexp": listed(chip([0.0, 0.0, float("-inf")]).logcumsumexp(0)),
        "bfloat16": listed(x.bfloat16().cumsum(1)),
        "bfloat16_type": str(x.bfloat16().cumsum(1).dtype),
        "float16": listed(x.half().cumsum(1)),
        "float64": listed(x.double().cumsum(1)),
        "int64": listed(ints.cumsum(1)),
        "int32": listed(ints.int().cumsum(1)),
        "int32_kept": listed(ints.int().cumsum(1, dtype=torch.int32)),
        "uint8": listed((ints.to(torch.uint8) + 200).cumsum(1)),
        "bool": listed(flags.cumsum(1)),
        "complex": [str(value) for value in listed(chip([1 + 2j, 3 - 1j]).cumsum(0))],
        "one": listed(chip([7.0]).cumsum(0)),
        "scalar": listed(chip(7.0).cumsum(0)),
        "empty": list(torch.zeros(0, 3, device="tpu").cumsum(0).shape),
        "empty_across": list(torch.zeros(3, 0, device="tpu").cumsum(0).shape),
        "long": [listed(longest.cumsum(0)[[0, 4095, 99_999]]), listed(longest.cumsum(0).sum())],
        "inplace": listed(x.clone().cumsum_(1)),
        "nan": listed(chip([1.0, float("nan"), 2.0]).cumsum(0).isnan()),
        "infinite": listed(chip([1.0, float("inf"), 2.0]).cumsum(0)),
    }


@scenario
def modes() -> dict[str, Any]:
    """The same in every eager mode."""
    seen = {}
    for mode in ("DEFER_NEVER", "DEFER_NEVER_AND_LAUNCH_BLOCKING", "DEFER_AND_FUSE"):
        with torch.tpu.set_eager_mode(getattr(torch.tpu.EagerMode, mode)):
            seen[mode] = listed(chip(X).cumsum(1).mul(2).cumprod(0) + 1)
    return seen


@scenario
def gradients() -> dict[str, Any]:
    def gradient(function: Callable[[Tensor], Tensor], values: Any) -> Any:
        x = chip(values, requires_grad=True)
        (function(x) * torch.arange(1.0, x.numel() + 1, device="tpu").view(x.shape)).sum().backward()
        return listed(x.grad)

    row = [3.0, 1.0, 2.0]
    mask = chip([True, False, True])
    return {
        "cumsum": gradient(lambda x: x.cumsum(0), row),
        "cumprod": gradient(lambda x: x.cumprod(0), row),
        "cumprod_zero": gradient(lambda x: x.cumprod(0), [3.0, 0.0, 2.0]),
        "cummax": gradient(lambda x: x.cummax(0)[0], row),
        "logcumsumexp": gradient(lambda x: x.logcumsumexp(0), [0.0, 0.0, 0.0]),
        "masked_select": gradient(lambda x: x.masked_select(mask).sum(), row),
        "masked_scatter": gradient(lambda x: torch.zeros(3, device="tpu").masked_scatter(mask, x), row),
    }


@scenario
def built_on_scans() -> dict[str, Any]:
    table = torch.arange(12.0, device="tpu").view(4, 3)
    index, offsets = chip([0, 2, 1, 3]), chip([0, 1])
    bag = torch.nn.functional.embedding_bag
    weight = table.clone().requires_grad_()
    bag(index, weight, offsets, mode="sum").sum().backward()
    x = chip([1.0, 2.0, 3.0, 4.0, 5.0])
    mask = chip([False, True, False, True, True])
    return {
        "masked_scatter": listed(x.masked_scatter(mask, chip([10.0, 20.0, 30.0]))),
        "embedding_bag": {
            mode: listed(bag(index, table, offsets, mode=mode)) for mode in ("sum", "mean", "max")
        },
        "embedding_bag_gradient": listed(weight.grad),
        "segment_reduce": {
            how: listed(torch.segment_reduce(x, how, lengths=chip([2, 3])))
            for how in ("sum", "mean", "max", "min")
        },
        "cumulative_trapezoid": listed(torch.cumulative_trapezoid(x)),
        "vander": listed(torch.vander(chip([1.0, 2.0, 3.0]))),
        "masked_cumsum": listed(torch.masked.cumsum(x, 0, mask=mask)),
    }


@scenario
def compiled() -> dict[str, Any]:
    @torch.compile(fullgraph=True)
    def both(x: Tensor) -> Tensor:
        return x.cumsum(1).relu().cumprod(0)

    x = chip(X, requires_grad=True)
    y = both(x)
    y.sum().backward()

    @torch.compile(fullgraph=True)
    def sampled(probabilities: Tensor) -> Tensor:
        ordered, places = probabilities.sort(descending=True)
        return places.masked_fill(ordered.cumsum(0) - ordered > 0.7, -1)

    return {
        "values": listed(y),
        "gradient": listed(x.grad),
        "sampled": listed(sampled(chip([0.1, 0.5, 0.15, 0.25]))),
    }


@scenario
def own_scans() -> dict[str, Any]:
    """Scans with a combination of the user's own: by element, by matrix, with carried state."""
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.scan import scan

    x = chip(X)
    squares = chip([[[1.0, 1.0], [0.0, 1.0]]]).expand(5, 2, 2).contiguous()
    halved = scan(lambda state, row: (state + row, state * 0.5), torch.zeros(3, device="tpu"), x)
    gates, inputs = chip([0.5, 0.5, 0.5, 0.5]), chip([1.0, 1.0, 1.0, 1.0])
    recurrent = associative_scan(
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (gates, inputs), dim=0, combine_mode="generic"
    )
    return {
        "product": listed(associative_scan(torch.mul, x, dim=1)),
        "reverse": listed(associative_scan(torch.add, x, dim=1, reverse=True)),
        "matrices": listed(associative_scan(torch.matmul, squares, dim=0, combine_mode="generic")[-1]),
        "recurrence": listed(recurrent[1]),
        "state": [listed(part) for part in halved],
    }


@scenario
def linear_algebra() -> dict[str, Any]:
    a, b = chip([[0.0, 2.0], [4.0, 2.0]]), chip([[2.0], [6.0]])
    lu, pivots = torch.linalg.lu_factor(a)
    batch = torch.stack([a, 2 * a])
    tall = torch.linalg.lu(chip([[1.0, 2.0], [2.0, 2.0], [4.0, 8.0]]))
    x = a.clone().requires_grad_()
    torch.linalg.inv(x).sum().backward()
    try:
        singular = listed(torch.linalg.inv(torch.zeros(2, 2, device="tpu")))
    except RuntimeError as error:
        singular = str(error)
    return {
        "lu": [listed(lu), listed(pivots)],
        "tall": [listed(part) for part in tall],
        "inv": listed(torch.linalg.inv(a)),
        "inv_batch": listed(torch.linalg.inv(batch)),
        "inv_float64": listed(torch.linalg.inv(a.double())),
        "inv_complex": [str(value) for value in listed(torch.linalg.inv(chip([[2j]])).flatten())],
        "inv_gradient": listed(x.grad),
        "solve": listed(torch.linalg.solve(a, b)),
        "singular": singular,
    }


@scenario
def attention() -> dict[str, Any]:
    """All keys alike, so that each row is the mean of the values it may see."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attend = torch.nn.functional.scaled_dot_product_attention
    q = torch.zeros(1, 2, 4, 2, device="tpu")
    v = torch.arange(8.0, device="tpu").view(1, 1, 4, 2).repeat(1, 2, 1, 1)
    first = torch.full((4, 4), float("-inf"), device="tpu")
    first[:, 0] = 0
    leaf = v.clone().requires_grad_()
    attend(q, q, leaf, is_causal=True).sum().backward()
    long = torch.zeros(1, 1, 512, 64, device="tpu")
    steps = torch.arange(512.0, device="tpu").view(1, 1, 512, 1).expand(1, 1, 512, 64)
    compiled = torch.compile(lambda q, v: attend(q, q, v, is_causal=True), fullgraph=True)
    traced = v.clone().requires_grad_()
    out = compiled(q, traced)
    out.sum().backward()
    with sdpa_kernel(SDPBackend.MATH):
        math = attend(q, q, v)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            flash = str(listed(attend(long, long, long)[0, 0, 0, 0]))
    except RuntimeError as error:
        flash = str(error)
    generator = torch.Generator().manual_seed(0)
    real = [torch.randn(2, 4, 16, 8, generator=generator) for _ in range(3)]
    there = attend(*(part.to("tpu") for part in real), is_causal=True, scale=0.3).cpu()
    return {
        "plain": listed(attend(q, q, v)[0, 0]),
        "causal": listed(attend(q, q, v, is_causal=True)[0, 1]),
        "bool_mask": listed(attend(q, q, v, attn_mask=torch.eye(4, dtype=torch.bool, device="tpu"))[0, 0]),
        "float_mask": listed(attend(q, q, v, attn_mask=first)[0, 0]),
        "grouped": listed(attend(q, q[:, :1], v[:, :1], enable_gqa=True)[0, 1]),
        "math": listed(math[0, 0]),
        "flash": flash,
        "bfloat16": listed(attend(q.bfloat16(), q.bfloat16(), v.bfloat16(), is_causal=True)[0, 0]),
        "gradient": listed(leaf.grad[0, 0, :, 0]),
        "long": listed(attend(long, long, steps, is_causal=True)[0, 0, [0, 1, 510], 0]),
        "compiled": [listed(out[0, 0]), listed(traced.grad[0, 0, :, 0])],
        "off": (there - attend(*real, is_causal=True, scale=0.3)).abs().max().item(),
    }


@scenario
def pinned_memory() -> dict[str, Any]:
    from torch.utils.data import DataLoader, TensorDataset

    pinned = torch.arange(4.0).pin_memory()
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, pin_memory=True)
    batches = [batch for (batch,) in loader]
    back = torch.empty(2, pin_memory=True)
    back.copy_(torch.ones(2, device="tpu"))
    try:
        torch.empty(1 << 50, pin_memory=True)
        refused = ""
    except RuntimeError as error:
        refused = str(error)
    return {
        "pinned": [pinned.is_pinned(), torch.ones(1).is_pinned(), batches[0].is_pinned()],
        "moved": listed(pinned.to("tpu", non_blocking=True) * 2),
        "batches": [listed(batch.to("tpu", non_blocking=True)) for batch in batches],
        "back": listed(back),
        "refused": refused,
    }


if __name__ == "__main__":
    for name in sys.argv[1:] or SCENARIOS:
        try:
            found = SCENARIOS[name]()
        except Exception:  # noqa: BLE001 - whatever it is, the test shows it
            found = {"error": traceback.format_exc()}
        print(json.dumps({name: found}), flush=True)
    os._exit(0)

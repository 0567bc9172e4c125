"""Runs operators of PyTorch's own test database on the chip and on the CPU: a worker of sweep.py.

Reads `NAME DTYPE` lines, answers each with a line of JSON: what came out, and in which words. An
abort ends the worker, which is how sweep.py knows of it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tpu_kernel import bootstrap

bootstrap.install()

import torch
import wrong
from torch.utils._pytree import tree_flatten, tree_map

#: Samples of each operator that are run, the first ones.
SAMPLES = int(os.environ.get("SWEEP_SAMPLES", "3"))
#: What memory holds that nobody wrote to: shapes and types are compared, values are not.
UNWRITTEN = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}
#: Which of several equal elements is named is not said: proven by asking again with no two equal.
TIES = {
    "argsort",
    "cummax",
    "cummin",
    "kthvalue",
    "max.reduction_with_dim",
    "median",
    "min.reduction_with_dim",
}
TIES |= {
    "mode",
    "msort",
    "nanmedian",
    "nn.functional.adaptive_max_pool1d",
    "sort",
    "topk",
    "unique",
    "argmax",
    "argmin",
}
#: Greatest difference, relative to the value and to the greatest value of the tensor.
TOLERANCE = {torch.float32: (1e-3, 2e-5), torch.bfloat16: (3e-2, 2e-2), torch.int64: (1e-3, 2e-5)}

Tree = Any


class Mismatch(Exception):
    """Values, shapes or types differ from the CPU's."""


def operators() -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        from torch.testing._internal.common_methods_invocations import op_db
    return {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}


def moved(tree: Tree, device: str, kind: torch.dtype | None = None) -> Tree:
    """The same arguments on `device`, leaves of their own; floating ones as `kind` if given."""

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            copy = value.detach().clone()
            if kind is not None and copy.dtype == torch.bfloat16:
                copy = copy.to(kind)
            return copy.to(device).requires_grad_(value.requires_grad)
        if isinstance(value, torch.device):
            return torch.device(device)
        if kind is not None and value is torch.bfloat16:
            return kind
        return value

    moved_tree = tree_map(move, tree)
    if isinstance(moved_tree, tuple) and len(moved_tree) == 2 and isinstance(moved_tree[1], dict):
        options = moved_tree[1]
        if isinstance(options.get("device"), str):
            options["device"] = device
    return moved_tree


def tensors(tree: Tree) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def evaluate(op: Any, sample: Any, device: str, *, backward: bool, kind: torch.dtype | None = None) -> Tree:
    """The results on `device`, and the gradients of what wants one, all on the CPU."""
    (first, rest), options = moved(((sample.input, sample.args), sample.kwargs), device, kind)
    torch.manual_seed(0)
    result = sample.output_process_fn_grad(op(first, *rest, **options))
    gradients: list[torch.Tensor | None] = []
    if backward:
        wanting = [leaf for leaf in tensors((first, rest, options)) if leaf.requires_grad]
        outputs = [
            leaf
            for leaf in tensors(result)
            if leaf.requires_grad and (leaf.is_floating_point() or leaf.is_complex())
        ]
        if wanting and outputs:
            weights = [weight(leaf) for leaf in outputs]
            gradients = list(torch.autograd.grad(outputs, wanting, weights, allow_unused=True))
    return tree_map(
        lambda leaf: leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf, (result, gradients)
    )


def weight(output: torch.Tensor) -> torch.Tensor:
    """Something to multiply each output's gradient with, so that no two elements weigh the same."""
    steps = torch.arange(output.numel(), dtype=torch.float64).reshape(output.shape)
    return (0.5 + steps % 7 / 7).to(output.dtype).to(output.device)


def compare(chip: Tree, host: Tree, kind: torch.dtype, *, values: bool, types: bool) -> None:
    found, wanted = tree_flatten(chip)[0], tree_flatten(host)[0]
    if len(found) != len(wanted):
        raise Mismatch(f"{len(found)} results, not {len(wanted)}")
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        where = f"result {index}"
        if not isinstance(other, torch.Tensor) or not isinstance(one, torch.Tensor):
            if isinstance(other, float) and isinstance(one, float):
                one, other = torch.tensor(one), torch.tensor(other)
            elif (
                isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor) or (values and one != other)
            ):
                raise Mismatch(f"{where} is {one!r:.60}, not {other!r:.60}")
            else:
                continue
        if one.shape != other.shape:
            raise Mismatch(f"{where} has shape {tuple(one.shape)}, not {tuple(other.shape)}")
        if types and one.dtype != other.dtype:
            raise Mismatch(f"{where} is {one.dtype}, not {other.dtype}")
        if values:
            close(one, other, kind, where)


def close(one: torch.Tensor, other: torch.Tensor, kind: torch.dtype, where: str) -> None:
    if one.layout != torch.strided or other.layout != torch.strided:
        one, other = one.to_dense(), other.to_dense()
    wide = torch.complex128 if other.is_complex() or one.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    relative, absolute = TOLERANCE[kind]
    finite = other[torch.isfinite(other)].abs()
    scale = max(1.0, finite.max().item()) if finite.numel() else 1.0
    if not torch.allclose(one, other, rtol=relative, atol=absolute * scale, equal_nan=True):
        off = ~torch.isclose(one, other, rtol=relative, atol=absolute * scale, equal_nan=True)
        place = tuple(off.nonzero()[0].tolist())
        raise Mismatch(f"{where}{list(place)} is {one[place].item()}, not {other[place].item()}")


def random(op: Any, sample: Any) -> bool:
    """Whether the CPU itself answers differently from another seed on."""

    def draw(seed: int) -> list[torch.Tensor]:
        arguments = moved((sample.input, sample.args), "cpu")
        torch.manual_seed(seed)
        # Operators that draw numbers set a seed of their own in the database.
        with mock.patch.object(torch, "manual_seed"):
            return tensors(op(arguments[0], *arguments[1], **moved(sample.kwargs, "cpu")))

    pairs = itertools.combinations([draw(seed) for seed in range(8)], 2)
    return any(
        not torch.equal(torch.nan_to_num(one.detach()), torch.nan_to_num(other.detach()))
        for first, second in pairs
        for one, other in zip(first, second, strict=True)
        if one.shape == other.shape
    )


def differs_untied(op: Any, sample: Any, *, backward: bool) -> bool:
    """Whether chip and CPU differ where no two elements are equal."""
    shape, kind = sample.input.shape, sample.input.dtype
    order = torch.randperm(shape.numel())
    # Whole numbers above 256 are not all there in bfloat16; the bits of its positive numbers are.
    values = (order + 0x80).to(torch.int16).view(kind) if kind == torch.bfloat16 else order.to(kind)
    sample.input = values.view(shape).requires_grad_(sample.input.requires_grad)
    host, chip = (evaluate(op, sample, device, backward=backward) for device in ("cpu", "tpu"))
    try:
        compare(chip, host, kind, values=True, types=True)
    except Mismatch:
        return True
    return False


def samples(op: Any, kind: torch.dtype, *, backward: bool) -> Iterator[Any]:
    torch.manual_seed(7)
    return itertools.islice(op.sample_inputs("cpu", kind, requires_grad=backward), SAMPLES)


def run(op: Any, name: str, kind: torch.dtype) -> tuple[str, str]:
    """Outcome of an operator and the words for it."""
    if kind not in op.supported_dtypes("cpu"):
        return "no such type", ""
    backward = kind == torch.float32 and op.supports_autograd
    outcome, detail = run_samples(op, name, kind, backward=backward)
    if backward and outcome == "not implemented":
        alone, _ = run_samples(op, name, kind, backward=False)
        if alone == "passed":
            return "no gradient", detail
    return outcome, detail


def run_samples(op: Any, name: str, kind: torch.dtype, *, backward: bool) -> tuple[str, str]:
    outcome = "passed"
    for number, sample in enumerate(samples(op, kind, backward=backward)):
        try:
            drawn = name in UNWRITTEN or random(op, sample)
            host = evaluate(op, sample, "cpu", backward=backward)
            reference = host
            if kind == torch.bfloat16 and not drawn:
                with contextlib.suppress(Exception):
                    reference = evaluate(op, sample, "cpu", backward=backward, kind=torch.float32)
        except Exception as error:  # noqa: BLE001 - the sample is not for this torch
            return "no reference", words(error)
        try:
            chip = evaluate(op, sample, "tpu", backward=backward)
            compare(chip, host, kind, values=False, types=True)
            try:
                compare(chip, reference, kind, values=not drawn, types=False)
            except Mismatch:
                compare(chip, host, kind, values=not drawn, types=False)
        except Mismatch as error:
            if name not in TIES or differs_untied(op, sample, backward=backward):
                return "differs", f"sample {number}: {error}"
            outcome = "ties"
        except NotImplementedError as error:
            return reason(error), words(error)
        except Exception as error:  # noqa: BLE001 - any exception is an outcome
            return reason(error), words(error)
        if drawn:
            outcome = "random"
    return outcome, ""


def reason(error: Exception) -> str:
    text = str(error)
    return "not implemented" if "is not implemented for TPU" in text else "error"


def words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def serve(known: dict[str, Any], lines: Iterator[str], answer: Callable[[str], None]) -> None:
    for line in lines:
        name, kind = line.split()
        if kind.startswith("wrong:"):
            serve_wrong(known[name], name, int(kind.removeprefix("wrong:")), answer)
            continue
        outcome, detail = run(known[name], name, getattr(torch, kind))
        answer(json.dumps({"name": name, "dtype": kind, "outcome": outcome, "detail": detail}))


def serve_wrong(op: Any, name: str, first: int, answer: Callable[[str], None]) -> None:
    """Say which case is about to run before its outcome: the last word of a process that ends."""
    for number, case in enumerate(wrong.cases(op)):
        if number < first:
            continue
        result = {"name": name, "dtype": "wrong", "case": case[0], "number": number}
        answer(json.dumps(result | {"outcome": "begins", "detail": ""}))
        outcome, detail = wrong.run(op, case)
        answer(json.dumps(result | {"outcome": outcome, "detail": detail}))
    answer(json.dumps({"outcome": "all"}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # What operators print must not come between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(text: str) -> None:
        print(text, file=out, flush=True)

    known = operators()
    answer(json.dumps({"ready": sorted(known)}))
    # The device is not yet in use, so a child can be it: the next one is there sooner than a new process.
    while (child := os.fork()) and (code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])):
        answer(json.dumps({"outcome": "aborted", "detail": f"exit {code}"}))
    if not child:
        serve(known, iter(sys.stdin.readline, ""), answer)
    os._exit(0)

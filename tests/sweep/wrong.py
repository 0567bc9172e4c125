"""Arguments that are wrong: those of PyTorch's own test database, and its samples with one tensor changed.

What counts is that the process lives, so nothing is compared but whether there is an error where the
CPU has one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

#: Samples of each operator that are changed, the first ones, and tensors of each that are.
SAMPLES, TENSORS = 2, 3

#: What becomes of a tensor.
CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "last dimension longer": lambda t: t.new_ones((*t.shape[:-1], t.shape[-1] + 1)),
    "first dimension longer": lambda t: t.new_ones((t.shape[0] + 1, *t.shape[1:])),
    "a dimension less": lambda t: t.new_ones(t.shape[1:]),
    "a dimension more": lambda t: t.new_ones((2, *t.shape)),
    "no dimension": lambda t: t.new_ones(()),
    "no elements": lambda t: t.new_ones((*t.shape[:-1], 0)),
    "another type": lambda t: t.detach().to(torch.int64 if t.is_floating_point() else torch.float32),
}

#: PyTorch's own kernel for the CPU ends the process where there are no elements.
ENDS_ON_THE_CPU = {"_segment_reduce"}

Case = tuple[str, Any, Any]


def cases(op: Any) -> Iterator[Case]:
    """What each is called, its positional and its named arguments, all on the CPU."""
    torch.manual_seed(7)
    if op.error_inputs_func is not None:
        for number, error in enumerate(op.error_inputs("cpu")):
            sample = error.sample_input
            yield f"error input {number}", (sample.input, *sample.args), sample.kwargs
    types = sorted(op.supported_dtypes("cpu"), key=lambda kind: (kind != torch.float32, str(kind)))
    samples = op.sample_inputs("cpu", types[0]) if types else []
    for number, sample in enumerate(itertools.islice(samples, SAMPLES)):
        leaves, spec = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)][:TENSORS]
        for place, (name, change) in itertools.product(places, CHANGES.items()):
            if leaves[place].dim() == 0 and "dimension" in name and name != "a dimension more":
                continue
            if name == "no elements" and (leaves[place].dim() == 0 or op.name in ENDS_ON_THE_CPU):
                continue
            try:
                changed = [change(leaf) if at == place else leaf for at, leaf in enumerate(leaves)]
            except RuntimeError:  # no sparse tensor has such a shape
                continue
            arguments, options = tree_unflatten(changed, spec)
            yield f"sample {number}, tensor {places.index(place)}: {name}", arguments, options


def run(op: Any, case: Case) -> tuple[str, str]:
    """Outcome of a case and the words for it."""
    _, arguments, options = case
    try:
        call(op, arguments, options, "cpu")
    except Exception as error:  # noqa: BLE001 - any exception is what the CPU says
        wanted = error
    else:
        return "right", ""
    try:
        call(op, arguments, options, "tpu")
    except Exception as error:  # noqa: BLE001 - any exception is an outcome
        return "error", words(error)
    return "value", f"no error, on the CPU {words(wanted)}"


def call(op: Any, arguments: Any, options: Any, device: str) -> None:
    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().to(device)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf

    arguments, options = tree_map(move, (arguments, options))
    if isinstance(options.get("device"), str):
        options["device"] = device
    op(*arguments, **options)
    if device == "tpu":
        torch.accelerator.synchronize()  # whatever becomes of this call belongs to it


def words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]

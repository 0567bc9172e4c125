"""Keeps calls from TorchTPU that end the process inside it, on a chip as well as on an emulated one.

It checks some programs only while it builds them, where a failed check is the end. What it can do
another way is done that way, the rest is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import library

#: Padding that repeats the edge: cropped to nothing first, it asks for a slice of no elements.
_PADS = [f"replication_pad{dimensions}d{end}" for dimensions in (1, 2, 3) for end in ("", "_backward")]

#: Results are taken for as large as the first list's tensors, whatever they are combined with.
_LISTS = [
    *(f"_foreach_{name}.List" for name in ("add", "sub", "mul", "div", "lerp")),
    *(f"_foreach_{name}.{kind}" for name in ("addcmul", "addcdiv") for kind in ("Scalar", "ScalarList")),
    "_foreach_lerp.Scalar",
    "_foreach_lerp.ScalarList",
]

#: With factors in a tensor a check on the operator's own name fails, whatever the arguments.
_FACTORS = ["_foreach_addcmul", "_foreach_addcdiv"]

_installed: list[Any] = []


def untraced(guard: Callable[..., Any]) -> Callable[..., Any]:
    """The guard, into which torch.compile does not look: it stands where PyTorch has C++."""
    from torch._C._dynamo import eval_frame

    skip = eval_frame._FrameAction.SKIP
    eval_frame.set_code_exec_strategy(guard.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return guard


def install() -> None:
    """Put in front of TorchTPU's own kernels, which must be loaded, the guard that always stands there."""
    guards = library.Library("aten", "IMPL")
    _installed.append(guards)
    for name in _FACTORS:
        guards.impl(f"{name}.Tensor", untraced(_factors(name)), "PrivateUse1")


def guard_pads() -> library.Library:
    """Put the guard of padding there, as long as the library returned lives; `guard_lists` too."""
    return _guard(_PADS, _pad)


def guard_lists() -> library.Library:
    return _guard(_LISTS, _lists)


def _guard(names: Sequence[str], guard: Callable[..., Any]) -> library.Library:
    guards = library.Library("aten", "IMPL")
    for name in names:
        kernel = library.get_kernel(f"aten::{name}", "PrivateUse1").call_boxed
        guards.impl(name, untraced(guard(name, kernel)), "PrivateUse1", with_keyset=True)
    return guards


def _pad(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(keys: Any, *arguments: Any) -> Any:
        *_, tensor, padding = arguments
        for index in range(len(padding) // 2):
            size = tensor.shape[-1 - index]
            before, after = padding[2 * index : 2 * index + 2]
            if size + min(before, 0) + min(after, 0) < 1:
                raise NotImplementedError(
                    f"{name}(): padding a dimension of {size} by ({before}, {after}) leaves none of its "
                    "elements, which is not implemented for TPU: do this step on the CPU"
                )
        return kernel(keys, *arguments)

    return guarded


def _lists(_name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(keys: Any, first: Sequence[Any], *others: Any, **options: Any) -> Any:
        lists = [other for other in others if isinstance(other, (list, tuple)) and len(other) == len(first)]
        shapes = [
            [getattr(element, "shape", ()) for element in row] for row in zip(first, *lists, strict=True)
        ]
        if any(shape not in ((), row[0]) for row in shapes for shape in row):
            from torch import broadcast_shapes

            first = [tensor.expand(broadcast_shapes(*row)) for tensor, row in zip(first, shapes, strict=True)]
        return kernel(keys, first, *others, **options)

    return guarded


def _factors(name: str) -> Callable[..., Any]:
    def guarded(first: Any, second: Any, third: Any, scalars: Any) -> Any:
        from torch.ops import aten

        return getattr(aten, name).ScalarList(first, second, third, scalars.tolist())

    return guarded

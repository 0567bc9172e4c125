"""Keeps from TorchTPU the calls it cannot build a program for, which would end the process.

It takes some arguments as they come, and where they do not fit each other building the program fails
for good. So shapes are looked at before the operators known for that, and what looks wrong is asked of
PyTorch's own kernel for the CPU: its error is the call's, and so is a result without elements.

A check here costs microseconds, so most of them stand here only while they are needed (`entries`).

`make sweep-wrong` finds such operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import library
from torch.utils._pytree import tree_map

from .guards import untraced

Check = Callable[..., bool]

ATTENTION = "_scaled_dot_product_fused_attention_overrideable"

_installed: list[Any] = []


def install() -> None:
    """Put in front of TorchTPU's own kernels, which must be loaded, the checks that always stand there."""
    _installed.extend(guard(_ALWAYS))
    meta = library.Library("tpu", "IMPL")
    _installed.append(meta)
    for dimensions in (1, 2, 3):
        # Compiled, they are asked for shapes alone, and divide by a step of 0.
        operator = f"_max_pool{dimensions}d"
        kernel = library.get_kernel(f"tpu::{operator}", "Meta").call_boxed
        meta.impl(operator, _guard(operator, _no_steps, kernel), "Meta", with_keyset=True)


def guard(names: Iterable[str]) -> list[library.Library]:
    """Put the checks of these operators there, as long as the libraries returned live."""
    libraries = {namespace: library.Library(namespace, "IMPL") for namespace in ("aten", "tpu")}
    for name in names:
        namespace, _, operator = name.rpartition("::")
        namespace = namespace or "aten"
        keys = ["PrivateUse1"]
        if name.startswith("ctc_loss"):
            keys.append("AutogradPrivateUse1")
        for key in keys:
            kernel = library.get_kernel(f"{namespace}::{operator}", key).call_boxed
            guarded = _guard(operator, _CHECKS[name], kernel)
            libraries[namespace].impl(operator, guarded, key, with_keyset=True)
    return list(libraries.values())


def _guard(operator: str, check: Check, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(keys: Any, *arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if check(*arguments, **options) and (empty := _ask(operator, arguments, options)) is not None:
            return empty
        return kernel(keys, *arguments, **options)

    return untraced(guarded)


def _ask(operator: str, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Raise the CPU's error for arguments of these shapes and types, or return its result if it is empty."""
    __tracebackhide__ = True
    # What attention computes before it fails may be large.
    device = "meta" if operator == ATTENTION else "cpu"

    def blank(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        # Indices and lengths are checked themselves.
        indices = not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool
        return value.cpu() if indices and device == "cpu" else torch.zeros_like(value, device=device)

    with torch.no_grad():
        blanks, named = tree_map(blank, (list(arguments), options))
        if operator == ATTENTION:
            query, key, value = blanks[:3]
            named["enable_gqa"] = query.dim() > 3 and query.shape[1] > key.shape[1] == value.shape[1]
            torch.ops.aten._scaled_dot_product_attention_math(*blanks[:6], **named)
            shapes = ", ".join(str(list(tensor.shape)) for tensor in arguments[:3])
            raise NotImplementedError(
                f"scaled_dot_product_attention(): query, key and value of {shapes}: broadcasting batches or "
                "heads is not implemented for TPU: give them one shape with expand()"
            )
        name, _, overload = operator.partition(".")
        packet = getattr(torch.ops.aten, name.replace("_max_", "max_"))
        result = getattr(packet, overload or "default")(*blanks, **named)
        if isinstance(result, torch.Tensor) and not result.numel() and not operator.endswith("_"):
            return arguments[0].new_empty(result.shape)
    return None


# Whether arguments look wrong.


def _dot(first: Any, second: Any) -> bool:
    return first.shape != second.shape or first.dtype != second.dtype


def copy(target: Any, source: Any, *_: Any) -> bool:
    wanted, given = target.shape, source.shape
    if wanted == given:
        return False
    return len(given) > len(wanted) or any(
        size not in (1, other) for size, other in zip(reversed(given), reversed(wanted), strict=False)
    )


def attention(query: Any, key: Any, value: Any, *_: Any, **_options: Any) -> bool:
    queries, keys, values = query.shape, key.shape, value.shape
    if len(queries) < 2 or len(queries) != len(keys) or keys[:-1] != values[:-1] or queries[-1] != keys[-1]:
        return True
    if len(queries) == 4 and queries[1] != keys[1]:
        return queries[0] != keys[0] or not keys[1] or bool(queries[1] % keys[1])
    return queries[:-2] != keys[:-2]


def convolution(
    _input: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    _padding: Any,
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Any,
    groups: int,
) -> bool:
    if groups < 1 or min(stride) < 1 or min(dilation) < 1:
        return True
    return bias is not None and bias.shape != (weight.shape[1] * groups if transposed else weight.shape[0],)


def layer_norm(tensor: Any, normalized: Sequence[int], weight: Any, bias: Any, *_: Any) -> bool:
    normalized = tuple(normalized)
    return (
        tensor.shape[-len(normalized) :] != normalized
        or (weight is not None and weight.shape != normalized)
        or (bias is not None and bias.shape != normalized)
    )


def _max_pool(
    tensor: Any,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    *_: Any,
) -> bool:
    return windows(tensor, kernel, stride, padding, dilation)


def _no_steps(
    _tensor: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    _padding: Any,
    dilation: Sequence[int],
    *_: Any,
) -> bool:
    return min(kernel) < 1 or min(dilation) < 1 or (bool(stride) and min(stride) < 1)


def _avg_pool(
    tensor: Any, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,), *_: Any
) -> bool:
    return windows(tensor, kernel, stride, padding, (1,))


def windows(
    tensor: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Whether steps are not forward, or no window has a place."""
    if min(kernel) < 1 or min(dilation) < 1 or (stride and min(stride) < 1) or 0 in tensor.shape[1:]:
        return True
    dimensions = len(padding)
    for index in range(dimensions):
        window = dilation[index % len(dilation)] * (kernel[index % len(kernel)] - 1) + 1
        around = 2 * padding[index]
        if not 0 <= around <= window or tensor.shape[index - dimensions] + around < window:
            return True
    return False


def _unfold(
    _tensor: Any, kernel: Sequence[int], dilation: Sequence[int], _padding: Any, stride: Sequence[int]
) -> bool:
    return min(kernel) < 1 or min(dilation) < 1 or min(stride) < 1


def _adaptive(_tensor: Any, size: Sequence[int]) -> bool:
    return min(size) < 1


def _adaptive_back(gradient: Any, _tensor: Any) -> bool:
    return not gradient.numel()


def grid(tensor: Any, grid: Any, *_: Any) -> bool:
    shape, points = tensor.shape, grid.shape
    return (
        tensor.dtype != grid.dtype
        or len(shape) != len(points)
        or shape[0] != points[0]
        or points[-1] != len(shape) - 2
        or 0 in shape
        or 0 in points
    )


def _reflection(tensor: Any, padding: Sequence[int]) -> bool:
    shape = tensor.shape
    return 0 in shape[1:] or any(
        max(padding[2 * index : 2 * index + 2]) >= shape[-1 - index] for index in range(len(padding) // 2)
    )


def _ctc(
    probabilities: Any, targets: Any, inputs: Any, lengths: Any, blank: int = 0, *_: Any, **_options: Any
) -> bool:
    shape = probabilities.shape
    if len(shape) not in (2, 3) or 0 in shape or not 0 <= blank < shape[-1]:
        return True
    batch = shape[1] if len(shape) == 3 else 1
    return any(
        (len(sizes) if isinstance(sizes, (list, tuple)) else sizes.numel()) != batch
        for sizes in (inputs, lengths)
    ) or (targets.dim() > 1 and targets.shape[0] != batch or targets.dim() > 2)


def _take(tensor: Any, index: Any) -> bool:
    return not tensor.numel() and index.numel() > 0


def _select(tensor: Any, _dimension: int, index: Any) -> bool:
    return 0 in tensor.shape or not index.numel() or index.is_floating_point()


def _roll(tensor: Any, _shifts: Any, dimensions: Sequence[int] = ()) -> bool:
    rank = tensor.dim()
    return any(not -rank <= dimension < rank for dimension in dimensions)


def _triangular(matrix: Any, _other: Any, **_options: Any) -> bool:
    shape = matrix.shape
    return len(shape) > 1 and shape[-1] != shape[-2]


def bag(weight: Any, indices: Any, *_: Any, **_options: Any) -> bool:
    return not weight.shape[0] and indices.numel() > 0


_CHECKS: dict[str, Check] = {
    "dot": _dot,
    "vdot": _dot,
    "copy_": copy,
    ATTENTION: attention,
    "convolution": convolution,
    "native_layer_norm": layer_norm,
    **dict.fromkeys(
        (*(f"tpu::_max_pool{dimensions}d" for dimensions in (1, 2, 3)), "max_pool3d_with_indices"), _max_pool
    ),
    "avg_pool1d": _avg_pool,
    "im2col": _unfold,
    "_adaptive_avg_pool2d": _adaptive,
    "_adaptive_avg_pool2d_backward": _adaptive_back,
    "grid_sampler_2d": grid,
    "grid_sampler_3d": grid,
    "reflection_pad2d": _reflection,
    "_ctc_loss": _ctc,
    "_ctc_loss.Tensor": _ctc,
    "ctc_loss.Tensor": _ctc,
    "take": _take,
    "index_select": _select,
    "roll": _roll,
    "linalg_solve_triangular": _triangular,
    "_embedding_bag": bag,
    "_embedding_bag_forward_only": bag,
}

#: Those that PyTorch reaches by itself, and methods, which can be called in two ways. The others are looked
#: at where Python calls them (`entries`).
_ALWAYS = (
    "dot",
    "vdot",
    "_adaptive_avg_pool2d_backward",
    "_ctc_loss",
    "_ctc_loss.Tensor",
    "ctc_loss.Tensor",
    "index_select",
    "linalg_solve_triangular",
    "roll",
    "take",
)

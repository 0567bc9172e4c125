"""Looks at arguments where Python calls PyTorch, so that those which fit cost no more than that.

A check in the dispatcher (`bad_input`, `guards`) takes 2 to 40 µs a call. So where an operator is reached
through few functions, its checks stand there only while one is called with arguments that these
predicates do not know for good ones. They must be cheap and may say False too often.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _disabled_torch_dispatch_impl, _get_tracing_state
from torch.library import Library

from .._kernel import look_before
from . import bad_input, guards

Fits = Callable[..., bool]
Checks = Callable[[], list["Library"]]


class _Armed:
    """Checks in the dispatcher, for as long as somebody needs them."""

    def __init__(self, put: Checks) -> None:
        self._put = put
        self._lock = threading.Lock()
        self._users = 0
        self._libraries: list[Library] = []

    def arm(self) -> Callable[[], None]:
        with self._lock:
            if not self._users:
                self._libraries = self._put()
            self._users += 1
        return self._disarm

    def _disarm(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                for library in self._libraries:
                    library._destroy()
                self._libraries = []


def install() -> None:
    """Look at the arguments of the functions that reach those operators; TorchTPU must be loaded."""
    for put, functions in _ENTRIES:
        armed = _Armed(put)
        for name, fits in functions.items():
            guards.untraced(fits)
            if name.startswith("ops."):
                packet = operator.attrgetter(name)(torch)
                packet._op = _looked(packet._op, fits, armed)
                continue
            try:
                look_before(operator.attrgetter(name)(torch), fits, armed.arm)
            except (AttributeError, ValueError):  # another PyTorch or Python
                armed.arm()  # for good


def _looked(call: Callable[..., Any], fits: Fits, armed: _Armed) -> Callable[..., Any]:
    """What `look_before` does, for an operator: PyTorch has an object in Python for it, which calls this."""

    def looked(*arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if fits(*arguments, **options):
            return call(*arguments, **options)
        disarm = armed.arm()
        try:
            return call(*arguments, **options)
        finally:
            disarm()

    return guards.untraced(looked)


def _checks(*operators: str) -> Checks:
    return lambda: bad_input.guard(operators)


def _pads() -> list[Library]:
    return [guards.guard_pads(), *bad_input.guard(["reflection_pad2d"])]


def _least(value: Any) -> int:
    return value if value.__class__ is int else min(value)


def _most(value: Any) -> int:
    return value if value.__class__ is int else max(value)


def _tuple(value: Any, dimensions: int) -> Sequence[int]:
    return (value,) * dimensions if value.__class__ is int else value


def _traced(tensor: Any) -> bool:
    """Whether it only stands for a tensor: to compare its sizes would bind what is compiled to them."""
    return tensor.__class__.__torch_dispatch__ is not _disabled_torch_dispatch_impl or (
        _get_tracing_state() is not None
    )


def _copy(target: Any, other: Any, *_: Any, **_named: Any) -> bool:
    return _traced(target) or target.shape == other.shape or not bad_input.copy(target, other)


def _convolution(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    return (
        groups > 0
        and _least(stride) > 0
        and _least(dilation) > 0
        and (bias is None or _traced(input) or bias.shape == weight.shape[:1])
    )


def _transposed(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> bool:
    return (
        groups > 0
        and _least(stride) > 0
        and _least(dilation) > 0
        and (bias is None or _traced(input) or bias.shape == (weight.shape[1] * groups,))
    )


def _layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, *_: Any, **_named: Any
) -> bool:
    return _traced(input) or not bad_input.layer_norm(input, normalized_shape, weight, bias)


def _any_convolution(*arguments: Any) -> bool:
    return _traced(arguments[0]) or not bad_input.convolution(*arguments[:9])


def _attention(query: Any, key: Any, value: Any, *_: Any, **_named: Any) -> bool:
    if _traced(query):
        return True
    queries, keys, values = query.shape, key.shape, value.shape
    if keys[:-1] != values[:-1] or queries[-1] != keys[-1]:
        return False
    return queries[:-2] == keys[:-2] or not bad_input.attention(query, key, value)


def _pool(dimensions: int) -> Fits:
    def fits(
        input: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        *_: Any,
        **_named: Any,
    ) -> bool:
        if _traced(input):
            return True
        shape = input.shape
        step = stride if stride.__class__ is int else not stride or min(stride)
        least = _least(kernel_size)
        if step < 1 or least < 1 or _least(dilation) < 1 or 0 in shape[1:]:
            return False
        if _most(dilation) * (_most(kernel_size) - 1) < min(shape[-dimensions:]) and (
            padding == 0 or (_least(padding) >= 0 and 2 * _most(padding) <= least)
        ):
            return True
        sizes = [_tuple(each, dimensions) for each in (kernel_size, stride, padding, dilation)]
        return not bad_input.windows(input, *sizes)

    return fits


def _average(
    input: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, *_: Any, **_named: Any
) -> bool:
    return _POOLS[0](input, kernel_size, stride, padding)


def _adaptive(_input: Any, output_size: Any) -> bool:
    return _least(output_size) > 0


def _unfold(_input: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> bool:
    return _least(kernel_size) > 0 and _least(dilation) > 0 and _least(stride) > 0


def _grid(input: Any, grid: Any, *_: Any) -> bool:
    return _traced(input) or not bad_input.grid(input, grid)


def _bag(weight: Any, indices: Any, *_: Any, **_named: Any) -> bool:
    return _traced(weight) or not bad_input.bag(weight, indices)


def _pad(input: Any, pad: Sequence[int], mode: str = "constant", *_: Any, **_named: Any) -> bool:
    if mode not in ("reflect", "replicate") or _traced(input):
        return True
    shape = input.shape
    return 0 not in shape and min(pad) >= 0 and (mode != "reflect" or max(pad) < min(shape[-len(pad) // 2 :]))


def _lists(self: Sequence[Any], *others: Any, **named: Any) -> bool:
    if _traced(self[0]):
        return True
    shapes = [tensor.shape for tensor in self]
    for other in (*others, *named.values()):
        if other.__class__ not in (list, tuple) or not isinstance(other[0], torch.Tensor):
            continue
        if [tensor.shape for tensor in other] != shapes:
            return False
    return True


_POOLS = [_pool(dimensions) for dimensions in (1, 2, 3)]

#: Operators -> functions of PyTorch through which Python reaches them.
_ENTRIES: list[tuple[Checks, dict[str, Fits]]] = [
    # Called as `getattr(tensor, "copy_")(other)` it is not looked at; the error then comes when it is computed.
    (_checks("copy_"), {"Tensor.copy_": _copy}),
    (
        _checks("convolution"),
        {
            **{f"conv{dimensions}d": _convolution for dimensions in (1, 2, 3)},
            **{f"conv_transpose{dimensions}d": _transposed for dimensions in (1, 2, 3)},
            "convolution": _any_convolution,
            "_convolution": _any_convolution,
        },
    ),
    (_checks("native_layer_norm"), dict.fromkeys(("layer_norm", "native_layer_norm"), _layer_norm)),
    (_checks(bad_input.ATTENTION), {"_C._nn.scaled_dot_product_attention": _attention}),
    *(
        (
            _checks(f"tpu::_max_pool{dimensions}d"),
            {
                f"max_pool{dimensions}d": _POOLS[dimensions - 1],
                f"ops.tpu._max_pool{dimensions}d": _POOLS[dimensions - 1],
            },
        )
        for dimensions in (1, 2, 3)
    ),
    (_checks("max_pool3d_with_indices"), {"_C._nn.max_pool3d_with_indices": _POOLS[2]}),
    (_checks("avg_pool1d"), {"avg_pool1d": _average}),
    (
        _checks("_adaptive_avg_pool2d"),
        dict.fromkeys(
            ("_C._nn.adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_avg_pool1d"), _adaptive
        ),
    ),
    (_checks("im2col"), {"_C._nn.im2col": _unfold}),
    (
        _checks("grid_sampler_2d", "grid_sampler_3d"),
        dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), _grid),
    ),
    (
        _checks("_embedding_bag", "_embedding_bag_forward_only"),
        dict.fromkeys(("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), _bag),
    ),
    (_pads, {"_C._nn.pad": _pad}),
    (
        lambda: [guards.guard_lists()],
        {f"_foreach_{name}": _lists for name in ("add", "sub", "mul", "div", "lerp", "addcmul", "addcdiv")},
    ),
]

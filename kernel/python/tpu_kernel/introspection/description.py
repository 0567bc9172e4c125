"""Describes an object by looking only, for `inspector`: no `repr`, no property, no `__getattr__`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from IPython.core.oinspect import _render_signature, find_file, getdoc, info_fields

from . import live
from .live import ROUTINES
from .signatures import callable_behind

LOOKING: ContextVar[bool] = ContextVar("tpu_kernel.looking", default=False)
"""True while nothing of the user's may be run."""

MAX_FORM = 200
MAX_ITEMS = 60
MAX_DEPTH = 4
SCALARS = (str, bytes, int, float, complex, bool, type(None), range, slice, type(...), type(NotImplemented))
CONTAINERS = (list, tuple, set, frozenset, dict)
DESCRIBED = (*ROUTINES, type, type(sys), property, staticmethod, classmethod)


def instance_info(inspector: Any, obj: Any, oname: str, info: Any) -> dict[str, Any]:
    """What can be seen of an object without running anything."""
    cls = live.type_of(obj)
    space = live.static_space(obj)
    out: dict[str, Any] = dict.fromkeys(info_fields)
    out.update(name=oname, found=True, isalias=False, ismagic=False, isclass=False)
    out["type_name"], out["base_class"] = cls.__name__, str(cls)
    out["string_form"] = form(obj)
    out["namespace"] = info.namespace if info is not None else None
    if cls in (*CONTAINERS, str, bytes, range):
        out["length"] = str(len(obj))
    out["file"] = find_file(cls)
    doc = live.own_space(obj).get("__doc__") or space.get("__doc__")
    out["docstring"] = inspect.cleandoc(doc) if type(doc) is str else "<no docstring>"
    init = live.static_space(cls).get("__init__")
    if type(init) in ROUTINES and init is not object.__init__ and type(init) is not type(object.__init__):
        out["init_docstring"] = getdoc(init)
    function, _ = callable_behind(obj)
    if type(function) in ROUTINES:
        out["call_def"] = inspector._getdef(function, oname)
        out["call_docstring"] = getdoc(function)
    return out


def definition(obj: Any, name: str) -> str | None:
    """The call signature; default values of classes that are not Python's own are not shown."""
    if not issubclass(type(obj), DESCRIBED) and LOOKING.get():
        return None
    if not callable(obj):
        return None
    try:
        signature = inspect.signature(obj)
        plain = [p.replace(default=_shown(p.default)) for p in signature.parameters.values()]
        return _render_signature(signature.replace(parameters=plain), name)
    except Exception:  # noqa: BLE001  as IPython's: whatever is wrong with it has no signature
        return None


class _Form:
    """Stands for a value in a signature."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown(default: Any) -> Any:
    if default is inspect.Parameter.empty or type(default) in SCALARS:
        return default
    if holds_tensors(default) or (LOOKING.get() and not issubclass(type(default), DESCRIBED)):
        return _Form(form(default))
    return default


def _tensor_class() -> Any:
    return getattr(sys.modules.get("torch"), "Tensor", None)


def is_tensor(value: Any) -> bool:
    """A tensor of PyTorch."""
    tensor = _tensor_class()
    return tensor is not None and issubclass(type(value), tensor)


def holds_tensors(value: Any, depth: int = 0) -> bool:
    """A tensor, or a container of Python's own with one near its beginning."""
    cls, tensor = type(value), _tensor_class()
    if tensor is None:
        return False
    if issubclass(cls, tensor):
        return True
    if cls not in CONTAINERS or depth > MAX_DEPTH:
        return False
    return any(holds_tensors(part, depth + 1) for part in _first(value.values() if cls is dict else value))


def _first(items: Iterable[Any]) -> list[Any]:
    found = []
    for item in items:
        found.append(item)
        if len(found) > MAX_ITEMS:
            break
    return found


def form(value: Any, depth: int = 0) -> str:
    """Like `repr`, but only values of Python's own types are written out."""
    cls, tensor = type(value), _tensor_class()
    if cls is live.Instance:
        return f"<{value.type.__name__}>"
    if cls in (str, bytes):
        text = repr(value[: MAX_FORM + 1])
    elif cls in SCALARS:
        text = repr(value)
    elif cls in CONTAINERS:
        text = _container(value, depth) if depth < MAX_DEPTH else "..."
    elif tensor is not None and issubclass(cls, tensor):
        return f"<{cls.__name__} {tuple(value.shape)} {value.dtype} on {value.device}>"
    elif "__name__" in (own := live.own_space(value)) or issubclass(cls, DESCRIBED):
        name = own.get("__name__") if type(own.get("__name__")) is str else getattr(value, "__name__", "")
        return f"<{cls.__name__} {name}>"
    else:
        return f"<{cls.__name__}>"
    return text if len(text) <= MAX_FORM or depth == 0 else text[:MAX_FORM] + "..."


def _container(value: Any, depth: int) -> str:
    items = _first(value.items() if type(value) is dict else value)
    more = ", ..." if len(items) > MAX_ITEMS else ""
    items = items[:MAX_ITEMS]
    if type(value) is dict:
        inside = ", ".join(f"{form(key, depth + 1)}: {form(item, depth + 1)}" for key, item in items)
        return "{" + inside + more + "}"
    inside = ", ".join(form(item, depth + 1) for item in items) + more
    if type(value) is list:
        return f"[{inside}]"
    if type(value) is tuple:
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    return (
        f"{type(value).__name__}({{{inside}}})" if type(value) is frozenset or not items else f"{{{inside}}}"
    )


def describe_tensor(value: Any) -> str | None:
    """A tensor on a device without its values: reading them would wait for the device."""
    tensor = _tensor_class()
    if tensor is None or not issubclass(type(value), tensor):
        return None
    device = value.device
    if device.type == "cpu":
        return None
    return (
        f"Type:     {type(value).__name__}\n"
        f"Shape:    {tuple(value.shape)}\n"
        f"Dtype:    {value.dtype}\n"
        f"Device:   {device}\n"
        f"Gradient: {'required' if value.requires_grad else 'not required'}\n"
        "The values stay on the device; print the tensor to see them."
    )

"""What an expression stands for among live objects, without running anybody's code.

Names, attributes, items and the results of calls are followed by looking only: no property, no
`__getattr__`, no function is called and nothing on a device is touched. Where a value cannot be
had that way but its type is known, an `Instance` of that type stands for it.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_DOC_RESULT = re.compile(r"->\s*([A-Za-z_][\w.]*)\s*$", re.MULTILINE)
_SIMPLE = (str, bytes, int, float, complex, bool, type(None), list, tuple, dict, set, frozenset, range)
_MISSING = object()


class Unknown(LookupError):
    """Nothing is known about the expression without running it."""


@dataclass(frozen=True)
class Instance:
    """Some object of a type."""

    type: type


def type_of(value: Any) -> type:
    """The type; for an `Instance` the one it stands for."""
    return value.type if type(value) is Instance else type(value)


def _class_of(value: Any) -> type:
    return value if is_class(value) else type_of(value)


def is_class(value: Any) -> bool:
    """True for classes; proxies that pretend to be one are not asked."""
    return issubclass(type(value), type)


def bases(cls: type) -> tuple[type, ...]:
    """The class and those it inherits from."""
    return type.__dict__["__mro__"].__get__(cls)


def class_space(cls: type) -> Mapping[str, Any]:
    """What the class itself defines."""
    return type.__dict__["__dict__"].__get__(cls)


def module_of(cls: type) -> str:
    """The module a class says it is of."""
    found = type.__dict__["__module__"].__get__(cls)
    return found if type(found) is str else ""


def own_space(value: Any) -> Mapping[str, Any]:
    """The `__dict__` of an object that has one."""
    if type(value) is Instance:
        return {}
    if issubclass(type(value), types.ModuleType):
        return types.ModuleType.__dict__["__dict__"].__get__(value)
    for cls in bases(type(value)):
        found = class_space(cls).get("__dict__")
        if found is not None:
            return found.__get__(value) if type(found) is types.GetSetDescriptorType else {}
    return {}


def static_space(value: Any) -> dict[str, Any]:
    """Every attribute that can be seen without calling anything: what stands for it, by name."""
    space: dict[str, Any] = {}
    if is_class(value):
        for cls in reversed(bases(value)):
            space.update(class_space(cls))
        return space
    for cls in reversed(bases(type_of(value))):
        space.update(class_space(cls))
    space.update(own_space(value))
    for name, members in _module_members(value):
        space[name] = members
    return space


def _module_members(value: Any) -> Iterable[tuple[str, Any]]:
    """Layers, parameters and buffers of a `torch.nn.Module`, which keeps them in dictionaries."""
    own = own_space(value)
    for kind in ("_parameters", "_buffers", "_modules"):
        members = own.get(kind)
        if type(members) in (dict, *_ordered_dicts()):
            yield from members.items()


def _ordered_dicts() -> tuple[type, ...]:
    collections = sys.modules.get("collections")
    return (collections.OrderedDict,) if collections is not None else ()


def _module(name: str, attribute: str) -> Any:
    """A class of a library, once somebody imported it."""
    return own_space(sys.modules[name]).get(attribute) if name in sys.modules else None


def kind_of(value: Any) -> str:
    """What a front end calls it: class, module, property, function or instance."""
    cls = type(value)
    if cls is Instance:
        return "instance"
    for kinds, name in KINDS:
        if issubclass(cls, kinds):
            return name
    return "instance"


ROUTINES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((type,), "class"),
    ((types.ModuleType,), "module"),
    ((*ROUTINES, staticmethod, classmethod), "function"),
    ((property, types.GetSetDescriptorType, types.MemberDescriptorType), "property"),
)


def attribute(value: Any, name: str) -> Any:
    """What `value.name` is, or an `Instance` of what it will be."""
    if issubclass(type(value), types.ModuleType):
        space = own_space(value)
        found = space.get(name, _MISSING)
        if found is _MISSING:
            found = sys.modules.get(f"{space.get('__name__')}.{name}", _MISSING)
        if found is _MISSING:
            raise Unknown(name)
        return found
    found = static_space(value).get(name, _MISSING)
    if found is _MISSING:
        return _column(value, name)
    if name in own_space(value):
        return found
    return _described(value, found, name)


def _described(value: Any, found: Any, name: str) -> Any:
    """What a class attribute becomes when it is read from `value`."""
    kind = type(found)
    if kind is staticmethod:
        return found.__func__
    if kind is classmethod or (kind is types.FunctionType and not is_class(value)):
        function = found.__func__ if kind is classmethod else found
        return types.MethodType(function, value if kind is types.FunctionType else _class_of(value))
    if kind is types.MethodDescriptorType and type(value) is not Instance and not is_class(value):
        return found.__get__(value)
    if kind is types.MemberDescriptorType and type(value) is not Instance and not is_class(value):
        try:
            return found.__get__(value)
        except AttributeError:
            raise Unknown(name) from None
    if kind is types.GetSetDescriptorType:
        return _computed(value, found, name)
    if is_class(value):
        return found
    if kind is property:
        return Instance(_promised(found.fget))
    if (accessor := own_space(found).get("_accessor")) is not None and is_class(accessor):
        return Instance(accessor)  # pandas: `.str`, `.dt`, `.plot`
    if (function := own_space(found).get("func")) is not None and kind.__name__ == "cached_property":
        return Instance(_promised(function))
    return found


def _computed(value: Any, found: types.GetSetDescriptorType, name: str) -> Any:
    """An attribute that C code computes when it is read."""
    tensor, array = _module("torch", "Tensor"), _module("numpy", "ndarray")
    cls = type_of(value)
    for kind, same in (
        (tensor, ("T", "H", "mT", "mH", "data", "grad", "real", "imag")),
        (array, ("T", "real", "imag")),
    ):
        if kind is not None and issubclass(cls, kind):
            if name in same:
                return Instance(cls if kind is array else tensor)
            if name in ("shape", "device", "dtype") and kind is tensor:
                of = {"shape": "Size"}.get(name, name)
                return Instance(_module("torch", of))
            if name == "shape":
                return Instance(tuple)
    if type(value) is not Instance and not is_class(value) and found.__objclass__.__module__ == "builtins":
        return found.__get__(value)
    raise Unknown(name)


def _column(value: Any, name: str) -> Any:
    """A column of a DataFrame as an attribute."""
    frame, series = _module("pandas", "DataFrame"), _module("pandas", "Series")
    if frame is not None and issubclass(type_of(value), frame) and name.isidentifier():
        return Instance(series)
    raise Unknown(name)


def item(value: Any, key: Any) -> Any:
    """What `value[key]` is."""
    cls = type_of(value)
    if type(value) is not Instance and cls in (dict, list, tuple, str, *_ordered_dicts()):
        if type(key) not in (str, int, bool, bytes, float, slice):
            raise Unknown("item")
        try:
            return value[key]
        except (LookupError, TypeError):
            raise Unknown("item") from None
    frame, series = _module("pandas", "DataFrame"), _module("pandas", "Series")
    if frame is not None and issubclass(cls, frame):
        return Instance(series if type(key) is str else cls)
    tensor = _module("torch", "Tensor")
    if tensor is not None and issubclass(cls, tensor):
        return Instance(tensor)
    layers = own_space(value).get("_modules")
    if type(layers) in (dict, *_ordered_dicts()):  # nn.Sequential, nn.ModuleList, nn.ModuleDict
        if type(key) is str and key in layers:
            return layers[key]
        if type(key) is int and -len(layers) <= key < len(layers):
            return list(layers.values())[key]
    raise Unknown("item")


def result(function: Any) -> Instance:
    """What a call returns, from the class that is called or from what the function promises."""
    if is_class(function):
        return Instance(function)
    return Instance(_promised(function.__func__ if type(function) is types.MethodType else function))


def _promised(function: Any) -> type:
    """The class a function says it returns, by annotation or in the first lines of its help."""
    if type(function) is types.FunctionType:
        promise = own_annotations(function).get("return")
        space = function.__globals__
    elif type(function) in (
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
    ):
        found = _DOC_RESULT.search((function.__doc__ or "")[:1000])
        promise, space = (found[1] if found else None), vars(builtins)
    else:
        raise Unknown("call")
    cls = _class_named(promise, space) if type(promise) is str else promise
    if type(cls) is types.UnionType:
        cls = next((part for part in cls.__args__ if part is not type(None)), None)
    if type(cls) is types.GenericAlias:
        cls = cls.__origin__
    if cls is not None and is_class(cls) and cls is not object:
        return cls
    raise Unknown("call")


def own_annotations(function: types.FunctionType) -> Mapping[str, Any]:
    """Annotations as they were written; none where reading them would run code (Python 3.14)."""
    if sys.version_info >= (3, 14):
        return {}
    return function.__annotations__


def _class_named(name: str, space: Mapping[str, Any]) -> Any:
    """The class behind a name in an annotation or in a help text."""
    name = name.split("|")[0].split("[")[0].strip()
    first, *rest = name.split(".")
    if first in ("Tensor", "torch") and (tensor := _module("torch", "Tensor")) is not None and not rest:
        return tensor
    found = space.get(first, vars(builtins).get(first))
    for part in rest:
        try:
            found = attribute(found, part)
        except Unknown:
            return None
    return found


class Namespace:
    """The names of a notebook."""

    def __init__(self, *spaces: Mapping[str, Any]) -> None:
        self._spaces = (*spaces, vars(builtins))

    def resolve(self, expression: str) -> Any:
        """What the expression stands for; raises `Unknown`."""
        try:
            return self._value(ast.parse(f"({expression})", mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Unknown(expression[:80]) from None

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                for space in self._spaces:
                    if name in space:
                        return space[name]
                raise Unknown(name)
            case ast.Attribute(value=owner, attr=name):
                return attribute(self._value(owner), name)
            case ast.Subscript(value=owner, slice=key):
                return item(self._value(owner), self._key(key))
            case ast.Call(func=function):
                return self._result(function)
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.UnaryOp(op=ast.Not()):
                return Instance(bool)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._operation(left, operator, right)
            case ast.NamedExpr(value=value):
                return self._value(value)
        for kinds, cls in (
            ((ast.List, ast.ListComp), list),
            ((ast.Dict, ast.DictComp), dict),
            ((ast.Set, ast.SetComp), set),
            (ast.Tuple, tuple),
            (ast.JoinedStr, str),
            (ast.Compare, bool),
            (ast.GeneratorExp, types.GeneratorType),
        ):
            if isinstance(node, kinds):
                return Instance(cls)
        raise Unknown(type(node).__name__)

    def _key(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            parts = [
                None if part is None else self._value(part) for part in (node.lower, node.upper, node.step)
            ]
            return slice(*parts)
        try:
            return self._value(node)
        except Unknown:
            return None

    def _result(self, function: ast.expr) -> Any:
        """What a call gives; a method of `str` and the like gives its own type where that is usual."""
        if isinstance(function, ast.Attribute):
            owner = self._value(function.value)
            cls = type_of(owner)
            if cls is str and function.attr in _GIVE_STRINGS:
                return Instance(str)
            if cls is str and function.attr in ("split", "rsplit", "splitlines"):
                return Instance(list)
            return result(attribute(owner, function.attr))
        return result(self._value(function))

    def _operation(self, left: ast.expr, operator: ast.operator, right: ast.expr) -> Any:
        """Arrays win over numbers, the wider number wins; a quotient is no whole number."""
        types_ = [type_of(self._value(left)), type_of(self._value(right))]
        for cls in types_:
            if cls not in _SIMPLE:
                arrays = (
                    _module("torch", "Tensor"),
                    _module("numpy", "ndarray"),
                    _module("pandas", "DataFrame"),
                )
                if any(array is not None and issubclass(cls, array) for array in arrays):
                    return Instance(cls)
                raise Unknown("operation")
        if isinstance(operator, ast.Div):
            types_.append(float)
        return Instance(max(types_, key=lambda cls: _WIDTHS.index(cls) if cls in _WIDTHS else 0))


#: What an operation gives is the type of the operand that stands last here.
_WIDTHS = (bool, int, float, complex, tuple, bytes, list, str)
_GIVE_STRINGS = (
    *("capitalize", "casefold", "center", "expandtabs", "format", "join", "ljust", "lower", "lstrip"),
    *("removeprefix", "removesuffix", "replace", "rjust", "rstrip", "strip", "swapcase", "title", "upper"),
)

"""What a call takes: parameters and signatures, without running or showing anybody's values."""

from __future__ import annotations

import inspect
import types
from typing import Any

from .live import ROUTINES, Instance, is_class, own_space, static_space

UNBOUND = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_PLAIN = (str, int, float, bool, type(None))


def callable_behind(value: Any) -> Any:
    """The function whose parameters a call of `value` takes, and whether its first one is bound."""
    if type(value) is Instance:
        found, bound = static_space(value).get("__call__"), True
    elif is_class(value):
        space = static_space(value)
        found, bound = space.get("__init__"), True
        if found is object.__init__ and space.get("__new__") is not object.__new__:
            found = space["__new__"]
        if type(found) in (types.WrapperDescriptorType, types.BuiltinFunctionType):
            return value, False
    elif type(value) is types.MethodType:
        found, bound = value.__func__, True
    elif type(value).__name__ == "partial" and type(value).__module__ == "functools":
        return callable_behind(value.func)
    elif issubclass(type(value), ROUTINES):
        return value, False
    else:
        forward = static_space(value).get("forward") if "_modules" in own_space(value) else None
        found, bound = forward or static_space(value).get("__call__"), True
    if type(found) in (staticmethod, classmethod):
        return found.__func__, type(found) is classmethod
    return found, bound


def parameters(value: Any, *, method: bool = False) -> list[inspect.Parameter] | None:
    """The parameters of a call, or None when nobody says."""
    function, bound = callable_behind(value)
    if not issubclass(type(function), (*ROUTINES, type)) and "__wrapped__" not in own_space(function):
        return None
    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError, AttributeError):
        return None
    if (bound or (method and type(function) in UNBOUND)) and found:
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        found = found[1:] if found[0].kind in positional else found
    return found


def signature_text(value: Any, *, method: bool = False) -> str:
    """`(a, b=1, *, c=...)`; defaults are written out only when they are plain."""
    found = parameters(value, method=method)
    if found is None:
        return ""
    words: list[str] = []
    star = slash = False
    for parameter in found:
        kind = parameter.kind
        if kind is parameter.POSITIONAL_ONLY:
            slash = True
        elif slash:
            words.append("/")
            slash = False
        if kind is parameter.KEYWORD_ONLY and not star:
            words.append("*")
        star = star or kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        word = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(kind, "") + parameter.name
        if parameter.default is not parameter.empty:
            plain = type(parameter.default) in _PLAIN
            word += "=" + (repr(parameter.default)[:40] if plain else "...")
        words.append(word)
    if slash:
        words.append("/")
    return f"({', '.join(words)})"

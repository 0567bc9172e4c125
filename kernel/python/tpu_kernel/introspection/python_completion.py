"""Python code under the cursor: names, attributes, arguments and imports, from live objects."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from types import MethodDescriptorType
from typing import Any

from IPython.core.completer import IPCompleter, SimpleCompletion
from IPython.utils import generics

from ..magics.completion import takes_python
from . import live
from .code_context import open_call, primary_before, where
from .importable import bound_in, complete_import
from .live import ROUTINES
from .patience import within
from .signatures import parameters, signature_text

DIR_SECONDS = 0.3
MAX_LEXICAL = 50_000
MAX_SIGNATURES = 60
FOREIGN = re.compile(
    r"\s*%%(?:bash|sh|script|html|HTML|javascript|js|svg|SVG|latex|markdown|perl|ruby|cmd|sx|system|!|writefile|file)\b"
)
CODE_MAGICS = re.compile(
    r"\s*%{1,2}(?:time|timeit|prun|lprun|mprun|memit|debug|pinfo2?|pdoc|pdef|psource|pfile|store|xdel|who|whos|who_ls"
    r"|macro|page|capture)\b"
)


class Match(SimpleCompletion):
    """One completion with its type and, of functions, its signature."""

    __slots__ = ("signature",)

    def __init__(self, text: str, kind: str, signature: str = "") -> None:
        super().__init__(text, type=kind)
        self.signature = signature


class PythonCode:
    """The word begun at the end of `before`, and what it may become."""

    def __init__(self, completer: Any, before: str, code: str) -> None:
        self._completer = completer
        imported = bound_in(code if len(code) <= MAX_LEXICAL else "")
        self._names_of = live.Namespace(completer.namespace, completer.global_namespace, imported)
        self.fragment = ""
        self.matches: list[Match] = []
        self.alone = False
        """Nothing else may answer."""
        self.unresolved = False
        """It is code that live objects say nothing of."""
        if not self._foreign(before, code):
            self._complete(before, code)

    def _foreign(self, before: str, code: str) -> bool:
        """True in commands, and in cells and magics whose text is not Python."""
        line = before.rpartition("\n")[2]
        command = line.lstrip()
        if FOREIGN.match(code) and "\n" in before:
            return True
        if command.startswith("%"):
            return not (CODE_MAGICS.match(line) or takes_python(line) or command.startswith("%aimport"))
        if command.startswith("!"):
            return True
        return "=" in line and "!" in line and self._completer._is_completing_in_system_assignment(line)

    def _complete(self, before: str, code: str) -> None:
        place, begin = where(before)
        if place != "code":
            return
        before = before[begin:]
        if "import" in before or "from" in before:
            imported = complete_import(before[-5000:])
            if imported is not None:
                self.fragment, names = imported
                self.matches = [Match(name, kind) for name, kind in names]
                self.alone = True
                return
        primary = primary_before(before)
        if primary is None:
            fragment = re.search(r"\w*$", before)[0]  # type: ignore[index]
            if fragment[:1].isdigit() or before.removesuffix(fragment).endswith("."):
                return
            self.fragment = fragment
            self.matches = self._names(fragment, before, code)
            self.unresolved = bool(fragment) and not self.matches
            return
        expression, self.fragment = primary
        try:
            value = self._names_of.resolve(expression)
        except live.Unknown:
            self.unresolved = True
            return
        self.matches = self._attributes(value, self.fragment)

    def _names(self, prefix: str, before: str, code: str) -> list[Match]:
        """Arguments of the call that is open, names of the notebook and of this cell, words of Python."""
        kinds: dict[str, str] = {}
        values: dict[str, Any] = {}
        for space in (vars(builtins), self._completer.global_namespace, self._completer.namespace):
            for name, value in list(space.items()):
                if type(name) is str and name.startswith(prefix) and name != "__builtins__":
                    values[name] = value
        for name in _bound_names(code if len(code) <= MAX_LEXICAL else "", prefix):
            if name not in values:
                kinds[name] = "instance"
        for word in keyword.kwlist:
            if word.startswith(prefix):
                kinds[word] = "keyword"
                values.pop(word, None)
        return [
            *self._arguments(prefix, before),
            *(Match(name, kind) for name, kind in kinds.items()),
            *_typed(values, len(values)),
        ]

    def _arguments(self, prefix: str, before: str) -> Iterator[Match]:
        """`name=` for the call whose bracket is open."""
        call = open_call(before)
        if call is None:
            return
        expression, inside = call
        try:
            function = self._names_of.resolve(expression)
        except live.Unknown:
            return
        used = set(re.findall(r"(\w+)\s*=(?!=)", inside))
        for name in self._argument_names(function):
            if name.startswith(prefix) and name not in used:
                yield Match(f"{name}=", "param")

    def _argument_names(self, function: Any) -> list[str]:
        found = parameters(function)
        if found is None:
            if not issubclass(type(function), (*ROUTINES, type)):
                return []
            return list(dict.fromkeys(self._completer._default_arguments_from_docstring(function.__doc__)))
        return [p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]

    def _attributes(self, value: Any, prefix: str) -> list[Match]:
        space = live.static_space(value)
        matching: dict[str, Any] = {}
        for name in self._attribute_names(value, space):
            if name.startswith(prefix):
                matching[name] = space.get(name, _UNSEEN)
        return list(_typed(matching, len(matching), method=not live.is_class(value)))

    def _attribute_names(self, value: Any, space: dict[str, Any]) -> list[str]:
        """As `dir()`, unless that fails or takes too long."""
        static = [name for name in space if type(name) is str]
        if type(value) is live.Instance:
            return static
        own = "__dir__" in live.own_space(value)  # a module's
        special = own or type(live.static_space(type(value)).get("__dir__")) is not MethodDescriptorType
        try:
            listed = within(DIR_SECONDS, dir, value) if special else dir(value)
        except Exception:  # noqa: BLE001  a `__dir__` of somebody's own, or TooSlow
            listed = []
        names = dict.fromkeys(name for name in listed if type(name) is str)
        if special or live.is_class(value):
            names.update(dict.fromkeys(static))
        try:
            return list(generics.complete_object(value, list(names)))
        except Exception:  # noqa: BLE001  TryNext when nobody registered a completer for this type
            return list(names)


def keys_of(obj: Any) -> list[Any]:
    """Keys of a mapping; a proxy that claims to have every attribute is not asked."""
    if type(obj) is live.Instance:
        return []
    own = live.static_space(obj)
    if "_ipython_key_completions_" in own:
        return IPCompleter._get_keys(obj)
    if issubclass(type(obj), dict):
        return list(dict.keys(obj)) if type(obj).keys is dict.keys else IPCompleter._get_keys(obj)
    if any(cls.__module__.partition(".")[0] in ("pandas", "numpy") for cls in live.bases(type(obj))):
        return IPCompleter._get_keys(obj)
    layers = live.own_space(obj).get("_modules")
    return list(layers) if issubclass(type(layers), dict) else []


_UNSEEN = object()


def _typed(values: dict[str, Any], count: int, *, method: bool = False) -> Iterator[Match]:
    """Matches with their kinds, and with signatures where there are not too many."""
    for name, value in values.items():
        if value is _UNSEEN:
            yield Match(name, "<unknown>")
            continue
        kind = live.kind_of(value)
        signature = signature_text(value, method=method) if count <= MAX_SIGNATURES and kind in CALLED else ""
        yield Match(name, kind, signature)


CALLED = ("function", "class")
_BINDING = re.compile(
    r"(?:^|[;\n(,\[{:]|\bfor\b|\bas\b|\bimport\b|\bdef\b|\bclass\b|\blambda\b|\bglobal\b|\bnonlocal\b)"
    r"[ \t]*\**([^\W\d]\w*)(?=[ \t]*(?:[=,:)(]|\bin\b|\bas\b|$|\n))"
)


def _bound_names(code: str, prefix: str) -> set[str]:
    """Names that this cell itself seems to bind."""
    return {name for name in _BINDING.findall(code) if name.startswith(prefix) and name != prefix}

"""What can be imported, found without importing it."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from importlib.machinery import ModuleSpec, all_suffixes
from types import ModuleType
from typing import Any

from .live import kind_of, own_space, static_space

MAX_SOURCE = 1_000_000
_IMPORT = re.compile(
    r"(?:^|[;:\n])[ \t]*(?:%aimport|import)[ \t]+(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*([\w.]*)$"
)
_FROM = re.compile(r"(?:^|[;:\n])[ \t]*from[ \t]+([\w.]*)$")
_FROM_IMPORT = re.compile(
    r"(?:^|[;:\n])[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]*"
    r"(?:\((?:[^()]*[,(\s])?|(?:\w+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*)(\w*)$"
)
_AFTER_MODULE = re.compile(r"(?:^|[;:\n])[ \t]*from[ \t]+[\w.]+[ \t]+(\w*)$")
_BINDING = re.compile(
    r"(?:^|[;:\n])[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]*(?:\(([^)]*)|[ \t]([^;#(\n]+))"
)
_folders: dict[str, tuple[int, list[str]]] = {}

Names = list[tuple[str, str]]


def complete_import(before: str) -> tuple[str, Names] | None:
    """For the text of an import statement up to the cursor: the word begun, and names with their types."""
    if found := _FROM_IMPORT.search(before):
        return found[2], [name for name in members(found[1]) if name[0].startswith(found[2])]
    if found := _AFTER_MODULE.search(before):
        return found[1], [("import", "keyword")] if "import".startswith(found[1]) else []
    if found := _IMPORT.search(before) or _FROM.search(before):
        parent, _, begun = found[1].rpartition(".")
        modules = submodules(parent) if parent else top_level()
        return begun, [(name, "module") for name in modules if name.startswith(begun)]
    return None


def bound_in(code: str) -> dict[str, Any]:
    """What the import statements of code that has not run will bind, of modules that are loaded already."""
    bound: dict[str, Any] = {}
    for module, in_brackets, on_line in _BINDING.findall(code) if "import" in code else ():
        for part in (in_brackets or on_line).split(","):
            name, _, alias = (word.strip() for word in part.strip().partition(" as "))
            if module:
                members = vars(sys.modules[module]) if module in sys.modules else {}
                value = members.get(name, sys.modules.get(f"{module}.{name}"))
            else:
                name = name if alias else name.partition(".")[0]
                value = sys.modules.get(name)
            if value is not None:
                bound[alias or name] = value
    return bound


def top_level() -> list[str]:
    """Every module and package on the path."""
    names = set(sys.builtin_module_names) | {name for name in sys.stdlib_module_names if name[0] != "_"}
    for folder in sys.path:
        names.update(_modules_in(folder or os.getcwd()))
    return sorted(names)


def submodules(package: str) -> list[str]:
    """The modules in a package."""
    names: set[str] = set()
    for folder in _locations(package):
        names.update(_modules_in(folder))
    names.discard("__init__")
    prefix = package + "."
    names.update(name[len(prefix) :].split(".")[0] for name in list(sys.modules) if name.startswith(prefix))
    return sorted(names)


def members(name: str) -> Names:
    """What `from name import` offers: of the live module, else of its source; and its submodules."""
    module = sys.modules.get(name)
    found: dict[str, str] = {}
    if module is not None:
        space = static_space(module)
        words = own_space(module).get("__all__")
        listed = [word for word in words if type(word) is str] if type(words) in (list, tuple) else []
        for word in [*listed, *own_space(module)]:
            found[word] = kind_of(space.get(word, module))
    else:
        found.update(_written(_spec(name)))
    for submodule in submodules(name):
        found.setdefault(submodule, "module")
    return list(found.items())


def _written(spec: ModuleSpec | None) -> Names:
    """The names that a module's source binds at its top level."""
    origin = spec.origin if spec is not None else None
    if origin is None or not origin.endswith(".py") or os.path.getsize(origin) > MAX_SOURCE:
        return []
    with open(origin, "rb") as file:
        tree = ast.parse(file.read())
    found: Names = []
    for node in _top_statements(tree.body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.append((name, "function"))
            case ast.ClassDef(name=name):
                found.append((name, "class"))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound = [(alias.asname or alias.name).split(".")[0] for alias in names]
                found.extend((name, "module") for name in bound if name != "*")
            case ast.Assign(targets=targets):
                found.extend((target.id, "instance") for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.append((name, "instance"))
    return found


def _top_statements(body: list[Any]) -> list[Any]:
    """Statements, those under `if` and `try` included."""
    found: list[Any] = []
    for node in body:
        found.append(node)
        if isinstance(node, (ast.If, ast.Try)):
            found.extend(_top_statements(node.body))
            found.extend(_top_statements(node.orelse))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                found.extend(_top_statements(handler.body))
    return found


def _locations(package: str) -> list[str]:
    """The folders of a package."""
    module = sys.modules.get(package)
    if type(module) is ModuleType or module is not None:
        path = own_space(module).get("__path__", [])
        return [folder for folder in list(path) if type(folder) is str]
    spec = _spec(package)
    return list(spec.submodule_search_locations or []) if spec is not None else []


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is. Unlike `importlib.util.find_spec` this imports no package on the way."""
    parent, _, _ = name.rpartition(".")
    try:
        if not parent:
            return importlib.util.find_spec(name)
        locations = _locations(parent)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, locations) if locations else None
            if spec is not None:
                return spec
    except (ImportError, ValueError, AttributeError):
        pass
    return None


def _modules_in(folder: str) -> list[str]:
    """The modules and packages in a folder; remembered until the folder changes."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except (OSError, ValueError):
        return []
    known = _folders.get(folder)
    if known is not None and known[0] == changed:
        return known[1]
    names = set()
    suffixes = all_suffixes()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem = entry.name
                if "." not in stem:
                    if stem.isidentifier() and stem != "__pycache__" and entry.is_dir():
                        names.add(stem)
                    continue
                for suffix in suffixes:
                    if stem.endswith(suffix) and stem[: -len(suffix)].isidentifier():
                        names.add(stem[: -len(suffix)])
    except OSError:
        return []
    _folders[folder] = (changed, sorted(names))
    return _folders[folder][1]

"""What happens when a module is first imported: hooks, and the `ipykernel` façade.

One finder stands first in `sys.meta_path`. It hands `ipykernel` and its submodules to the
façade in `compat/`, whether or not a real ipykernel is installed, and calls back right after
the modules somebody waits for (`asyncio`, `comm`, `pdb`, `torch`) were executed, so that the
kernel need not import them itself.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader

COMPAT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compat")
FACADE = "ipykernel"


class _Notify:
    """The module's own loader, and a call once the module has been executed."""

    def __init__(self, loader: Loader, done: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._done = done

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._done(module)


class Finder:
    """Finds the façade, and wraps the loaders of modules that have a hook."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[[ModuleType], None]]] = {}

    def add(self, name: str, hook: Callable[[ModuleType], None]) -> None:
        """Call `hook(module)` after `name` is imported; at once if it already is."""
        module = sys.modules.get(name)
        if module is not None:
            hook(module)
        else:
            self._hooks.setdefault(name, []).append(hook)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == FACADE or fullname.startswith(FACADE + "."):
            return facade_spec(fullname)
        if fullname not in self._hooks:
            return None
        spec = None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                break
        if spec is None or spec.loader is None:
            return spec

        def done(module: ModuleType) -> None:  # that a module is looked for does not mean it is imported
            for hook in self._hooks.pop(fullname, ()):
                hook(module)

        spec.loader = _Notify(spec.loader, done)  # type: ignore[arg-type]
        return spec


def facade_spec(fullname: str) -> ModuleSpec:
    """The spec of the façade package or of one of its modules."""
    stem = os.path.join(COMPAT, *fullname.split("."))
    package = os.path.join(stem, "__init__.py")
    if os.path.exists(package):
        spec = importlib.util.spec_from_file_location(fullname, package, submodule_search_locations=[stem])
    else:
        spec = None
        if os.path.exists(stem + ".py"):
            spec = importlib.util.spec_from_file_location(fullname, stem + ".py")
    if spec is None:
        raise ModuleNotFoundError(
            f"`{fullname}` is not in the PyTorch (TPU) kernel, which is not {FACADE}: run what needs it in a child "
            f"process (`!{{sys.executable}} ...`) or under a Python 3 ({FACADE}) kernel",
            name=fullname,
        )
    return spec


FINDER = Finder()


def install() -> None:
    """Put the finder first."""
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)


def when_imported(name: str, hook: Callable[[ModuleType], None]) -> None:
    """Call `hook(module)` after `name` is imported; at once if it already is."""
    FINDER.add(name, hook)

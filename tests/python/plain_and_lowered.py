"""Cells run on two notebooks, plainly and lowered, and all they leave compared."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import sys
import traceback
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from tpu_kernel.lowering import Lowering
from tpu_kernel.lowering.classify import Classifier, Verdict
from tpu_kernel.lowering.values import Values


class EverythingOutlined:
    """Outlines whatever may be outlined and calls it as it is: the harshest case for scoping."""

    fullgraph = False

    def __init__(self) -> None:
        self.called = 0

    def values(self) -> Values:
        return Values("cpu")

    def classifier(self, values: Values, namespace: dict[str, Any]) -> Classifier:
        return Everything(values, namespace)

    def session(self, cell: Any) -> Any:
        return contextlib.nullcontext()

    def compile(self, outlined: Any) -> Any:
        return outlined.function

    def call(self, cell: Any, outlined: Any) -> Any:
        self.called += 1
        return outlined.run(cell.namespace)


class Everything(Classifier):
    def judge(self, statement: Any, names: Any, local: Any, kinds: Any, varying: Any) -> Verdict:
        if names.obstacle:
            return Verdict(False, names.obstacle)
        for name in names.reads - local:
            if kinds.get(name, "-") == "-" and not hasattr(builtins, name):
                return Verdict(False, "absent")
        return Verdict(True)


def notebook() -> InteractiveShell:
    shell = InteractiveShell()
    # Hundreds of these would collect garbage one after the other when the tests have ended.
    atexit.unregister(shell.atexit_operations)
    shell.user_ns["__name__"] = "__main__"
    return shell


def normal(value: Any) -> Any:
    """Comparable across two notebooks: addresses out, functions and classes by name."""
    if callable(value) or type(value).__module__ == "__main__":
        return type(value).__name__, getattr(value, "__name__", ""), getattr(value, "__qualname__", "")
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(normal, value)]
    if isinstance(value, dict):
        return {k: normal(v) for k, v in value.items()}
    if isinstance(value, BaseException):
        return type(value).__name__, str(value)
    if type(value).__module__ in ("builtins",) and not type(value).__name__.endswith(
        ("iterator", "generator", "module")
    ):
        return value if type(value).__name__ not in ("coroutine",) else "coroutine"
    return type(value).__name__


def observe(shell: InteractiveShell, run: Any, hidden: set[str]) -> dict[str, Any]:
    out = io.StringIO()
    value = error = None
    lines: list[tuple[str, int]] = []
    with contextlib.redirect_stdout(out):
        try:
            value = run()
        except BaseException as caught:  # noqa: BLE001 - whatever the cell raises is compared
            error = type(caught).__name__, str(caught).replace("<unknown>", "")
            if isinstance(caught, SyntaxError):
                error, lines = (error[0], caught.msg), [("syntax", caught.lineno or 0)]
            else:
                frames = traceback.extract_tb(caught.__traceback__)
                lines = [(f.name, f.lineno or 0) for f in frames if "ipython-input" in f.filename]
    names = {k: normal(v) for k, v in shell.user_ns.items() if k not in hidden}
    return {"value": normal(value), "error": error, "lines": lines, "out": out.getvalue(), "names": names}


def run_plain(shell: InteractiveShell, cell: str) -> Any:
    result = shell.run_cell(cell, store_history=False)
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        raise error
    return result.result


class Silent(type(InteractiveShell().displayhook)):
    """The display hook without its printing, so that only the cell's own output is compared."""

    def __call__(self, result: Any = None) -> None:
        if result is not None and not self.quiet():
            self.fill_exec_result(result)


def run_both(cells: list[str], backend: EverythingOutlined, monkeypatch: pytest.MonkeyPatch) -> Lowering:
    """Run cells in turn on both notebooks; each must leave the same. Returns what lowered them."""
    plain, lowered = notebook(), notebook()
    hidden = set(plain.user_ns) - {"_"} | {"_", "__", "___", "_i", "_ii", "_iii", "__builtins__"}
    monkeypatch.setattr(plain, "showtraceback", lambda *a, **k: None)
    monkeypatch.setattr(plain, "showsyntaxerror", lambda *a, **k: None)
    monkeypatch.setattr(plain.displayhook, "__class__", Silent)
    lowering = Lowering(lowered, backend)
    for cell in cells:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = plain.user_module
        wanted = observe(plain, lambda cell=cell: run_plain(plain, cell), hidden)
        sys.modules["__main__"] = lowered.user_module
        seen = observe(lowered, lambda cell=cell: lowering.run(cell)[0], hidden)
        sys.modules["__main__"] = main
        assert seen == wanted, f"{cell}\nlowered: {seen}\nplainly: {wanted}"
    return lowering

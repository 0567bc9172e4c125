"""A lowered function means what the plain function means, whatever is outlined of it."""

from __future__ import annotations

import ast
import linecache
import sys
from types import FunctionType
from typing import Any

import pytest
from lowering_functions import CELLS
from plain_and_lowered import Everything, EverythingOutlined, run_both
from tpu_kernel.lowering.classify import Classifier, Verdict
from tpu_kernel.lowering.files import is_library
from tpu_kernel.lowering.values import Values


class AllFunctionsLowered(EverythingOutlined):
    def classifier(self, values: Values, namespace: dict[str, Any]) -> Classifier:
        return _AllFunctions(values, namespace)


class _AllFunctions(Everything):
    def trains(self, target: Any) -> bool:
        function = getattr(target, "__func__", target)
        return type(function) is FunctionType and not is_library(function.__code__.co_filename)

    def judge(self, statement: Any, names: Any, local: Any, kinds: Any, varying: Any) -> Verdict:
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        if any(self._trained(call, self.resolve(call.func, local), local) is not None for call in calls):
            return Verdict(False)
        return super().judge(statement, names, local, kinds, varying)


def made(cells: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What became of each function of the cells: `lowered`, or why not."""
    lowering = run_both(cells, AllFunctionsLowered(), monkeypatch)
    return {
        key[1].co_name: each if isinstance(each, str) else "lowered"
        for key, each in lowering.lowered._made.items()
    }


@pytest.mark.parametrize("name", CELLS)
def test_lowered_function_means_what_the_plain_function_means(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_both(CELLS[name], AllFunctionsLowered(), monkeypatch)


@pytest.mark.parametrize(
    ("name", "function", "what"),
    [
        ("arguments", "f", "lowered"),
        ("closure with nonlocal", "step", "lowered"),
        ("methods", "step", "lowered"),
        ("methods", "c", "lowered"),
        ("methods", "__call__", "lowered"),
        ("try and finally", "f", "lowered"),
        ("loops", "epoch", "lowered"),
        ("decorated", "wrapper", "lowered"),
        ("decorated", "g", "lowered"),
        ("the function is left alone", "f", "lowered"),
        ("generators and recursion", "f", "it is a generator"),
        ("generators and recursion", "r", "it calls itself"),
        ("locals", "f", "`locals` looks at its frame"),
        ("private names", "step", "it uses private names (`__name`)"),
    ],
)
def test_which_functions_are_lowered(
    name: str, function: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made(CELLS[name], monkeypatch)[function] == what


def test_function_of_a_file_that_has_changed_runs_as_it_is(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "steps_of_mine.py").write_text("def f(x):\n    y = x + 1\n    return y\n")
    monkeypatch.syspath_prepend(tmp_path)
    cells = ["from steps_of_mine import f", "a = f(1)\na"]
    assert made(cells, monkeypatch) == {"f": "lowered"}
    (tmp_path / "steps_of_mine.py").write_text("def f(x):\n    y = x + 100\n    return y\n")
    linecache.checkcache()
    assert made(cells, monkeypatch) == {"f": "its source has changed since it was made"}
    del sys.modules["steps_of_mine"]

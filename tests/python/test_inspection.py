"""Shift-Tab and `name?`: what is shown, and that looking does nothing."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from notebook import Notebook

SETUP = """
import os, time
touched = []
class Careful:
    "What it is for."
    def __init__(self, size=1):
        "How it is made."
    @property
    def slow(self):
        "What slow is."
        touched.append('slow'); time.sleep(600)
    def method(self, first, *, key=None) -> "Careful":
        "What it does."
    def __repr__(self): touched.append('repr'); return 'shown'
    def __len__(self): touched.append('len'); return 3
class Anything:
    real = 1
    def __getattr__(self, name): touched.append(name); time.sleep(600)
careful, anything = Careful(), Anything()
def function(alpha, beta=1, gamma=careful): "What it gives."
numbers = [1, 2, {'a': (3, careful)}]
long_help = lambda: None
long_help.__doc__ = 'word ' * 1_000_000
"""


@pytest.fixture(scope="module")
def asked(shared_kernel: Notebook) -> Notebook:
    """The kernel, with objects that notice when they are used."""
    assert shared_kernel.run(SETUP).status == "ok"
    return shared_kernel


def inspect(kernel: Notebook, code: str, detail: int = 0, cursor: int | None = None) -> dict[str, Any]:
    content = {"code": code, "cursor_pos": len(code) if cursor is None else cursor, "detail_level": detail}
    reply = kernel.ask("inspect_request", content).content
    assert reply["status"] == "ok"
    return reply


def shown(kernel: Notebook, code: str, detail: int = 0, cursor: int | None = None) -> str:
    reply = inspect(kernel, code, detail, cursor)
    assert reply["found"] is True
    return plain(reply["data"]["text/plain"])


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (
            "careful",
            ["Type:           Careful", "String form:    <Careful>", "Docstring:      What it is for."],
        ),
        (
            "careful.method",
            ["Signature: careful.method(first, *, key=None) -> 'Careful'", "Type:      method"],
        ),
        ("careful.method(1, ", ["Docstring: What it does."]),
        ("careful.slow", ["Type:        property", "Docstring:   What slow is."]),
        ("Careful", ["Init signature: Careful(size=1)", "Docstring:      What it is for."]),
        ("function(", ["Signature: function(alpha, beta=1, gamma=<Careful>)", "Docstring: What it gives."]),
        ("anything", ["Type:        Anything", "String form: <Anything>"]),
        ("anything.real", ["Type:        int", "String form: 1"]),
        ("numbers", ["String form: [1, 2, {'a': (3, <Careful>)}]", "Length:      3"]),
        ("os.path", ["Type:        module"]),
        ("%%time", ["Time execution of a Python statement or expression."]),
        ("%time", ["Time execution of a Python statement or expression."]),
        ("%%tpu_compile", ["Run this cell compiled: its device work becomes programs."]),
    ],
)
def test_an_object_is_described_by_looking(asked: Notebook, code: str, lines: list[str]) -> None:
    text = shown(asked, code).splitlines()
    assert [line for line in lines if line not in text] == [], text[:20]
    assert asked.run("touched").text == "[]"


def test_the_source_is_shown_at_the_second_level(asked: Notebook) -> None:
    assert 'def function(alpha, beta=1, gamma=careful): "What it gives."' in shown(asked, "function", 1)
    assert "def slow(self):" in shown(asked, "careful.slow", 1)
    assert "def method(self" in shown(asked, "careful.method", 1)
    assert asked.run("touched").text == "[]"


@pytest.mark.parametrize(
    "code", ["nothing_like_it", "anything.other", "careful.other", "", "1 + ", "a" * 300_000]
)
def test_what_is_not_there_is_not_found(asked: Notebook, code: str) -> None:
    begin = time.monotonic()
    assert inspect(asked, code) == {"status": "ok", "found": False, "data": {}, "metadata": {}}
    assert time.monotonic() - begin < 30


def test_a_very_long_help_is_cut(asked: Notebook) -> None:
    text = shown(asked, "long_help")
    assert len(text) <= 500_010
    assert text.endswith("\n...")


def test_a_question_mark_shows_the_repr(asked: Notebook) -> None:
    payload = asked.run("careful?").content["payload"]
    assert [entry["source"] for entry in payload] == ["page"]
    assert "String form:    shown" in plain(payload[0]["data"]["text/plain"])
    source = asked.run("function??").content["payload"][0]["data"]["text/plain"]
    assert 'def function(alpha, beta=1, gamma=careful): "What it gives."' in plain(source)
    asked.run("touched.clear()")
    magic = asked.run("%%time?").content["payload"][0]["data"]["text/plain"]
    assert "Time execution of a Python statement or expression." in magic
    assert asked.run("nothing_like_it?").stdout == "Object `nothing_like_it` not found.\n"


@pytest.mark.parametrize(
    ("code", "reply"),
    [
        ("1 + 1", {"status": "complete"}),
        ("for i in range(3):", {"status": "incomplete", "indent": "    "}),
        ("if x:\n    for y in z:", {"status": "incomplete", "indent": "        "}),
        ("def f():\n    return 1", {"status": "incomplete", "indent": "    "}),
        ("def f():\n    return 1\n", {"status": "complete"}),
        ("x = (1,", {"status": "incomplete", "indent": ""}),
        ("x = = 1", {"status": "invalid"}),
        ("'''open", {"status": "incomplete", "indent": ""}),
        ("%time x", {"status": "complete"}),
        ("%%time", {"status": "incomplete", "indent": ""}),
        ("%%time\nx = 1", {"status": "incomplete", "indent": ""}),
        ("%%time\nx = 1\n\n", {"status": "complete"}),
        ("!ls", {"status": "complete"}),
        ("await x", {"status": "complete"}),
        ("", {"status": "complete"}),
    ],
)
def test_a_cell_says_whether_it_is_whole(asked: Notebook, code: str, reply: dict[str, str]) -> None:
    assert asked.ask("is_complete_request", {"code": code}).content == reply

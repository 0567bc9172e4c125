"""Tab completion: what is offered, and that asking does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from notebook import PATIENCE, Notebook

SETUP = """
import os, time
touched = []
d = {'alpha': 1, 'beta': {'inner': 'text'}}
xs = ['text', [1]]
class Careful:
    @property
    def slow(self): touched.append('slow'); time.sleep(600)
    @property
    def typed(self) -> str: touched.append('typed'); return ''
    def method(self, first, *, key=None) -> "Careful": touched.append('method')
    def __repr__(self): touched.append('repr'); return 'shown'
class Any_:
    real = 1
    def __getattr__(self, name): touched.append(name); time.sleep(600)
class Broken:
    value = 3
    def __dir__(self): raise RuntimeError
class Sleepy(Broken):
    def __dir__(self): time.sleep(600)
class Endless(Broken):
    def __dir__(self):
        while True: pass
class Many: pass
careful, anything, broken, sleepy, endless, many = Careful(), Any_(), Broken(), Sleepy(), Endless(), Many()
for i in range(800): setattr(many, f'attr{i}', i)
def function(alpha, beta=1, *rest, gamma=careful, **more) -> str: touched.append('function')
"""

Content = dict[str, Any]


@pytest.fixture(scope="module")
def asked(shared_kernel: Notebook) -> Notebook:
    """The kernel, with objects that notice when they are used."""
    assert shared_kernel.run(SETUP).status == "ok"
    return shared_kernel


def complete(kernel: Notebook, code: str, cursor: int | None = None) -> Content:
    """The reply; the cursor stands at `|`, else at the end."""
    if cursor is None and "|" in code:
        cursor = code.index("|")
        code = code.replace("|", "", 1)
    content = {"code": code, "cursor_pos": len(code) if cursor is None else cursor}
    reply = kernel.ask("complete_request", content).content
    assert reply["status"] == "ok"
    return reply


@pytest.mark.parametrize(
    ("code", "start", "matches"),
    [
        ("os.getcw", 3, ["getcwd", "getcwdb"]),
        ("x = [os.getcw", 8, ["getcwd", "getcwdb"]),
        ("(os.\n  getcw", 7, ["getcwd", "getcwdb"]),
        ("if True:\n    os.getcw", 16, ["getcwd", "getcwdb"]),
        ("os.getcw| + 1", 3, ["getcwd", "getcwdb"]),
        ("f'{os.getcw", 6, ["getcwd", "getcwdb"]),
        ("'é𝛼' + os.getcw", 10, ["getcwd", "getcwdb"]),
        ("%%time\nos.getcw", 10, ["getcwd", "getcwdb"]),
        ("%time os.getcw", 9, ["getcwd", "getcwdb"]),
        ("[" + "1," * 3000 + "os.getcw", 6004, ["getcwd", "getcwdb"]),
        ("%%bash\nos.getcw", 15, []),
        ("# os.getcw", 10, []),
        ("'os.getcw", 9, []),
        ("3.", 2, []),
        ("raise ValueE", 6, ["ValueError"]),
        ("careful.meth", 8, ["method"]),
        ("careful.method(1).meth", 18, ["method"]),
        ("careful.typed.upp", 14, ["upper"]),
        ("careful.slow.upp", 16, []),
        ("anything.rea", 9, ["real"]),
        ("anything.other.", 15, []),
        ("function(al", 9, ["alpha=", "all"]),
        ("function(1, alpha=2, ga", 21, ["gamma="]),
        ("function(1,\n  function(2), ga", 27, ["gamma="]),
        ("careful.method(ke", 15, ["key="]),
        ("Many(", 5, None),
        ("xs[0].upp", 6, ["upper"]),
        ("xs[-1].appe", 7, ["append"]),
        ("xs[0].upper().isdi", 14, ["isdigit"]),
        ("(not xs).bit_c", 9, ["bit_count"]),
        ("(1 / 2).is_int", 8, ["is_integer"]),
        ("(1.5 + 2j).ima", 11, ["imag"]),
        ("(1.5 * 2j).conj", 11, ["conjugate"]),
        ("'text'.upp", 7, ["upper"]),
        ("d['al", 3, ["alpha"]),
        ('d["', 3, ["alpha", "beta"]),
        ("d['beta']['in", 11, ["inner"]),
        ("d['beta']['inner'].upp", 19, ["upper"]),
        ("import xml.dom.minid", 15, ["minidom"]),
        ("import os, xml.dom.minid", 19, ["minidom"]),
        ("from xml.dom import minid", 20, ["minidom"]),
        ("from collections import (Ordered", 25, ["OrderedDict"]),
        ("from xml ", 9, ["import"]),
        ("%%captu", 0, ["%%capture"]),
        ("%timei", 0, ["%%timeit", "%timeit"]),
        ("timei", 0, ["%%timeit", "%timeit"]),
        ("print(timei", 11, []),
        ("\\alpha", 0, ["α"]),
        ("def outer(alphabet):\n    alphab", 25, ["alphabet"]),
        ("fresh_name = 1\nfresh_n", 15, ["fresh_name"]),
        ("new = Careful()\nnew.meth", 20, ["method"]),
        ("", 0, None),
    ],
)
def test_the_word_under_the_cursor_is_completed(
    asked: Notebook, code: str, start: int, matches: list[str] | None
) -> None:
    reply = complete(asked, code)
    deadline = time.monotonic() + PATIENCE / 4
    while (reply["cursor_start"], matches or reply["matches"]) != (start, reply["matches"]):
        # nobody waits for jedi, which thinks longer on a busy machine
        assert time.monotonic() < deadline, reply
        reply = complete(asked, code)
    deadline = time.monotonic() + PATIENCE
    # on a busy machine jedi is given up after its moment, and does better when asked again
    while matches and reply["matches"] != matches and time.monotonic() < deadline:
        reply = complete(asked, code)
    assert reply["cursor_start"] == start
    if matches is not None:
        assert reply["matches"] == matches
    assert asked.run("touched").text == "[]"


@pytest.mark.parametrize(
    ("code", "match"),
    [
        ("broken.va", "value"),
        ("sleepy.va", "value"),
        ("endless.va", "value"),
        ("many.attr79", "attr799"),
    ],
)
def test_an_object_that_lists_itself_badly_is_completed(asked: Notebook, code: str, match: str) -> None:
    assert match in complete(asked, code)["matches"]


def test_all_of_800_attributes_are_offered(asked: Notebook) -> None:
    assert len(complete(asked, "many.attr")["matches"]) == 800


def test_a_name_of_100_kilobytes_is_answered(asked: Notebook) -> None:
    for code in ("a" * 100_000, "os." + "a" * 100_000, "(" * 5000 + "nothing_like_it", "x." * 3000):
        begin = time.monotonic()
        assert complete(asked, code)["matches"] == []
        assert time.monotonic() - begin < 30


def test_files_are_offered_in_strings_and_commands(asked: Notebook, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").touch()
    for lead in ("open('", "!ls ", "%run ", "x = !ls "):
        if lead == "%run ":
            (tmp_path / "weights.py").touch()
        matches = complete(asked, f"{lead}{tmp_path}/weig")["matches"]
        assert matches[0].rsplit("/", 1)[-1].startswith("weights."), lead


def test_matches_have_types_and_signatures(asked: Notebook) -> None:
    def typed(code: str) -> list[tuple[str, str, str]]:
        entries = complete(asked, code)["metadata"]["_jupyter_types_experimental"]
        assert {(e["start"], e["end"]) for e in entries} == {(len(code) - len(_word(code)), len(code))}
        return [(e["text"], e["type"], e["signature"]) for e in entries]

    assert typed("careful.") == [
        ("method", "function", "(first, *, key=None)"),
        ("slow", "property", ""),
        ("typed", "property", ""),
    ] + typed("careful._")
    assert typed("functio") == [("function", "function", "(alpha, beta=1, *rest, gamma=..., **more)")]
    assert typed("function(ga") == [("gamma=", "param", "")]
    assert typed("Man") == [("Many", "class", "()")]
    assert typed("tim") == [
        ("time", "module", ""),
        *[(f"{sign}timeit", "magic", "") for sign in ("%%", "%")],
    ]
    assert typed("os.env") == [("environ", "instance", ""), ("environb", "instance", "")]
    assert typed("retur") == [("return", "keyword", "")]
    assert asked.run("touched").text == "[]"


def _word(code: str) -> str:
    return code[max(code.rfind(mark) for mark in ".(") + 1 :]


def test_a_missing_cursor_means_the_end(asked: Notebook) -> None:
    reply = asked.ask("complete_request", {"code": "os.getcw", "cursor_pos": None}).content
    assert (reply["cursor_start"], reply["cursor_end"]) == (3, 8)


def test_importing_is_completed_without_importing(asked: Notebook, tmp_path: Path) -> None:
    package = tmp_path / "loud_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit\nthing = 1\ndef do_it(): ...\n")
    (package / "inner.py").write_text("class Found: ...\n")
    asked.run(f"import sys; sys.path.append({str(tmp_path)!r})")
    assert complete(asked, "import loud_pack")["matches"] == ["loud_package"]
    assert complete(asked, "import loud_package.")["matches"] == ["inner"]
    assert complete(asked, "from loud_package import ")["matches"] == ["do_it", "inner", "thing"]
    assert complete(asked, "from loud_package.inner import F")["matches"] == ["Found"]
    assert asked.run("'loud_package' in sys.modules").text == "False"


def test_data_frames_are_completed(asked: Notebook) -> None:
    asked.run("import pandas as pd\nframe = pd.DataFrame({'size_x': [1], 'word': ['a']})")
    assert complete(asked, "frame['si")["matches"] == ["size_x"]
    assert complete(asked, "frame.size_")["matches"] == ["size_x"]
    assert "value_counts" in complete(asked, "frame['word'].value_c")["matches"]
    assert "value_counts" in complete(asked, "frame.word.value_c")["matches"]
    assert "groupby" in complete(asked, "frame.group")["matches"]


@pytest.mark.parametrize(
    ("code", "match"),
    [
        ("import os; os.pa", "path"),
        ("import os as system\nsystem.path.ex", "exists"),
        ("import os.path, sys\nos.path.basen", "basename"),
        ("from os import (sep,\n  path as p)\nif True:\n    p.dirn", "dirname"),
        ("from os import path; path.spl", "split"),
    ],
)
def test_modules_that_the_cell_itself_imports_are_known_before_it_runs(
    new_kernel: Callable[..., Notebook], code: str, match: str
) -> None:
    kernel = new_kernel()
    content = kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)}).content
    assert match in content["matches"]
    assert kernel.run("[n for n in ('os', 'p', 'path', 'system') if n in globals()]").text == "[]"
    assert kernel.run("'jedi' in __import__('sys').modules").text == "False"


def test_jedi_is_not_imported_for_what_is_there(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    kernel.run("import os, sys")
    assert complete(kernel, "os.getcw")["matches"] == ["getcwd", "getcwdb"]
    assert complete(kernel, "import xml.dom.minid")["matches"] == ["minidom"]
    assert kernel.run("'jedi' in sys.modules, 'xml.dom' in sys.modules").text == "(False, False)"
    deadline = time.monotonic() + PATIENCE
    while complete(kernel, "def f():\n    return 'text'\nf().upp")["matches"] != ["upper"]:
        assert time.monotonic() < deadline  # jedi, once it is imported
    assert kernel.run("'jedi' in sys.modules").text == "True"

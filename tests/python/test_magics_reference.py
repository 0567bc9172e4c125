"""Help on the magics: docs/magics.md, `%lsmagic`, `?`, Shift-Tab, and Tab for options and their values."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from notebook import Notebook

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_magics_is_what_their_docstrings_say() -> None:
    command = [sys.executable, str(ROOT / "docs" / "make_magics.py"), "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_page_that_differs_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    for part in ("docs/make_magics.py", "kernel/python/tpu_kernel"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).symlink_to(ROOT / part)
    copy = tmp_path / "docs" / "make_magics.py"
    text = copy.read_text()
    copy.unlink()
    copy.write_text(text)
    (tmp_path / "docs" / "magics.md").write_text("# Magics\n")
    done = subprocess.run([sys.executable, str(copy), "--check"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "docs/magics.md is not what the docstrings of the magics say: run `make docs`\n",
    )


def test_lsmagic_lists_ours(kernel: Notebook) -> None:
    listed = kernel.run("%lsmagic").text or ""
    lines, cells = listed.split("Available cell magics:")
    for name in ("%tpu_mode", "%tpu_limit", "%tpu_stats"):
        assert f"{name} " in lines, name
    for name in ("%%tpu_compile", "%%tpu_eager", "%%tpu_profile"):
        assert f"{name} " in cells, name


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("%%tpu_compile", ["%%tpu_compile [--", "--quiet  ", "`await` cannot be compiled:"]),
        ("%%tpu_eager", ["%%tpu_eager [--mode strict|fused|debug]", "comes back when the cell ends"]),
        (
            "%%tpu_profile",
            ["%%tpu_profile [--xprof] [--to FOLDER]", "Only one profile at a time can be taken."],
        ),
        ("%tpu_mode", ["%tpu_mode [strict|fused|debug|compiled]", "debug     each operation has ended"]),
        ("%tpu_limit", ["%tpu_limit [SIZE|off]", "SIZE is as 8GiB, 512MB or a number of bytes."]),
        ("%tpu_stats", ["%tpu_stats [--live]\n", "It waits first until what was queued has ended."]),
    ],
)
def test_question_mark_and_shift_tab_give_the_whole_help(
    kernel: Notebook, name: str, sentences: list[str]
) -> None:
    page = kernel.run(f"{name}?").content["payload"][0]["data"]["text/plain"]
    content = {"code": name, "cursor_pos": len(name), "detail_level": 0}
    inspected = kernel.ask("inspect_request", content).content
    assert inspected["found"] is True
    for text in (page, inspected["data"]["text/plain"]):
        shown = re.sub(r"\x1b\[[0-9;]*m", "", text)
        for sentence in sentences:
            assert sentence in shown, (name, sentence)


@pytest.mark.parametrize(
    ("code", "start", "matches"),
    [
        ("%%tpu_eager --mode fu", 19, ["fused"]),
        ("%%tpu_eager --mode ", 19, ["strict", "fused", "debug"]),
        ("%%tpu_eager --mode=de", 19, ["debug"]),
        ("%%tpu_eager --mo", 12, ["--mode"]),
        ("%%tpu_profile --to x ", 21, ["--xprof"]),
        ("%%tpu_eager ", 12, ["--mode"]),
        ("%%tpu_eager --mode fused --", 27, []),
        ("x = 1\n%tpu_mode ", 16, ["strict", "fused", "debug", "compiled"]),
        ("%tpu_mode c", 10, ["compiled"]),
        ("%%tpu_compile --qui", 14, ["--quiet"]),
        ("%%time\n%%tpu_compile --qui", 21, ["--quiet"]),
        ("%tpu_limit ", 11, ["off"]),
        ("%%tpu_compile --quiet\nsor", 22, ["sorted"]),
        ("%%tpu_com", 0, ["%%tpu_compile"]),
    ],
)
def test_options_and_their_values_are_completed(
    kernel: Notebook, code: str, start: int, matches: list[str]
) -> None:
    reply = kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)}).content
    assert (reply["cursor_start"], reply["matches"]) == (start, matches)

"""`%%tpu_compile --hlo`: StableHLO, and what the plug-in's compiler made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running_kernel
from notebook import Notebook, Result
from tpu_kernel import _kernel
from tpu_kernel.cards.hlo import HloCard
from tpu_kernel.lowering.texts import Optimized, ProgramText

SETUP = """
import torch
torch.manual_seed(0)
x, w, b = torch.randn(4, 8).to("tpu"), torch.randn(8, 3).to("tpu"), torch.randn(3).to("tpu")
def printing(t):
    u = t * 2
    print("inside")
    return u + 1
"""
CELL = "z = torch.tanh(x @ w) + b"
#: What is computed, wherever the compiler put it: result, operation, what stands behind the operands.
COMPUTED = {
    "f32[4,3]{1,0} dot lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[4,3]{1,0} tanh ",
    "f32[4,3]{1,0} broadcast dimensions={1}",
    "f32[4,3]{1,0} add ",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def notebook(kernelspec: str, cache: Path) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env=cached_in(cache)) as notebook:
        run(notebook, SETUP)
        yield notebook


def cached_in(folder: Path) -> dict[str, str]:
    return {"TPU_KERNEL_CACHE": str(folder), "TORCH_TPU_TIER2_COMPILATION_CACHE": folder.name}


def run(notebook: Notebook, cell: str) -> Result:
    result = notebook.run(cell)
    assert result.status == "ok", result.content
    return result


def cards(notebook: Notebook, cell: str) -> list[dict[str, str]]:
    """The card of the compile, and that of its programs."""
    shown = run(notebook, cell).displays
    assert [one["text/plain"].split()[0] for one in shown] == ["compiled", "HLO"], shown
    assert len(shown[1]["text/html"].encode()) <= 6144 and "<script" not in shown[1]["text/html"]
    return shown


def computed(text: str) -> set[str]:
    """The instructions of a text that do the work of `CELL`."""
    text = re.sub(r", (?:metadata|backend_config)=.*$", "", text, flags=re.MULTILINE)
    found = re.findall(r"^  (?:ROOT )?%\S+ = (\S+) ([\w-]+)\(%[^()]*\)(?:, (.*))?$", text, re.MULTILINE)
    return {" ".join(one) for one in found if one[1] in ("dot", "tanh", "broadcast", "add")}


def test_both_texts_of_a_program_are_shown_and_saved(notebook: Notebook, tmp_path: Path) -> None:
    for turn in range(2):  # the second run compiles nothing, and shows the same
        _, shown = cards(notebook, f"%%tpu_compile --save-hlo {tmp_path}/texts\n{CELL}")
        lines = shown["text/plain"].splitlines()
        assert lines[0] == "HLO · 1 program"
        assert re.fullmatch(r"  program 1, line 2: StableHLO 9 lines, optimised HLO \d+ lines", lines[1])
        stable = lines.index("  StableHLO         times  in program")
        assert [line.split() for line in lines[stable + 1 : stable + 5]] == [
            ["dot_general", "1", "1"],
            ["tanh", "1", "1"],
            ["broadcast_in_dim", "1", "1"],
            ["add", "1", "1"],
        ]
        assert lines[stable + 6].split() == ["optimised", "HLO", "times", "in", "program"]
        number = run(notebook, "1").content["execution_count"] - 1
        stem = f"cell-{number}-program-1"
        assert lines[-1] == f"  Saved: {tmp_path}/texts/{stem}.stablehlo.mlir, .hlo.txt, .hlo.pb", turn
    html = shown["text/html"]
    for title in ("program 1, line 2: StableHLO, 9 lines", r"program 1, line 2: optimised HLO, \d+ lines"):
        assert re.search(f"<details><summary>{title}</summary>", html), html
    assert "stablehlo.dot_general" in html and "<pre" in html
    assert "ENTRY %main" in html and "metadata" not in html
    folder = tmp_path / "texts"
    stable_text = (folder / f"{stem}.stablehlo.mlir").read_text()
    assert "stablehlo.tanh %0 : tensor<4x3xf32>" in stable_text and "loc(" not in stable_text
    text = (folder / f"{stem}.hlo.txt").read_text()
    assert computed(text) == COMPUTED
    assert re.match(
        r"HloModule \S+, is_scheduled=true, "
        r"entry_computation_layout=\{\(f32\[4,8\]\{1,0\}, f32\[8,3\]\{1,0\}, f32\[3\]\{0\}\)->f32\[4,3\]\{1,0\}\}\n",
        text,
    )
    assert re.search(
        r"^ENTRY %\S+ \(\S+: f32\[4,8\], \S+: f32\[8,3\], \S+: f32\[3\]\) -> f32\[4,3\] \{$",
        text,
        re.MULTILINE,
    )
    assert 'metadata={op_name="mm/mm"' in text
    assert _kernel.hlo_text((folder / f"{stem}.hlo.pb").read_bytes(), True) == text


def test_asking_for_a_program_uses_no_device(notebook: Notebook) -> None:
    cards(notebook, f"%%tpu_compile --hlo\n{CELL}")
    told = run(
        notebook,
        """from tpu_kernel import _kernel
from tpu_kernel.tpu import device
from tpu_kernel.magics.running import lowering_of
from tpu_kernel.lowering import Report
from tpu_kernel.lowering.texts import TextBackend
from tpu_kernel.magics import measure
before = measure.counters(settle=True)
backend = lowering_of(get_ipython(), "hlo", TextBackend).backend
(file,) = {ran.file for ran in backend._ran}
texts = [program.optimized.text() for program in backend.programs(Report(file))]
(len(texts), "ENTRY" in texts[0], measure.counters(settle=True) == before)""",
    )
    assert told.text == "(1, True, True)"
    lost = notebook.run("_kernel.tpu_optimized(b'nobody')")
    assert (lost.content["ename"], lost.content["evalue"]) == ("RuntimeError", "it is not loaded any more")


def test_breaks_give_programs_that_are_told_apart(notebook: Notebook) -> None:
    _, shown = cards(notebook, "%%tpu_compile --hlo\na = torch.tanh(x @ x.T)\nc = printing(a)")
    lines = shown["text/plain"].splitlines()
    assert lines[0] == "HLO · 3 programs"
    assert [re.sub(r"\d+ lines\b", "n lines", line) for line in lines[1:4]] == [
        f"  program {number}, lines 2–3: StableHLO n lines, optimised HLO n lines" for number in (1, 2, 3)
    ]
    assert ["multiply", "1", "2"] in [line.split() for line in lines]
    assert shown["text/html"].count("<details>") == 6
    assert "`--save-hlo" not in shown["text/html"]


def test_the_programs_of_a_run_are_shown_not_those_of_earlier_runs(notebook: Notebook) -> None:
    def shapes(rows: int) -> list[str]:
        notebook.run(f"rows = torch.ones({rows}, 5).to('tpu')", patience=120)
        (_, shown) = cards(notebook, "%%tpu_compile --hlo\nwide = rows * 2 + 1")
        return sorted(set(re.findall(r"f32\[\d+,5\]", shown["text/plain"] + shown["text/html"])))

    assert shapes(6) == ["f32[6,5]"]
    assert shapes(7) == ["f32[7,5]"]
    assert shapes(6) == ["f32[6,5]"]  # compiled earlier, and run now


def test_a_long_program_is_cut_and_says_so(notebook: Notebook) -> None:
    chain = "\n".join(f"t = torch.sin(t + {n})" for n in range(40))
    _, shown = cards(notebook, f"%%tpu_compile --hlo\nt = x\n{chain}")
    for kind in ("StableHLO", "optimised HLO"):
        found = re.search(
            rf"program 1, lines 3–42: {kind}, the first (\d+) of (\d+) lines without parameters and constants<",
            shown["text/html"],
        )
        assert found and 5 < int(found[1]) < int(found[2]), kind


def test_of_many_programs_the_largest_are_shown(notebook: Notebook) -> None:
    small = "\n".join(f"a = x{'.cos()' * count}\nprint(a.shape)" for count in range(1, 9))
    _, shown = cards(notebook, f"%%tpu_compile --hlo\n{small}\nlast = x{'.sin()' * 20}")
    html = shown["text/html"]
    assert shown["text/plain"].startswith("HLO · 9 programs\n")
    assert re.search(r"<summary>program 9, line 18: optimised HLO, ", html)
    more = re.search(r"and (\d+) smaller programs: <code>--save-hlo FOLDER</code> writes all", html)
    assert more and 9 - int(more[1]) == len(set(re.findall(r"<summary>program (\d+)", html)))


def test_a_program_from_the_cache_on_disk_has_its_optimised_text_too(
    notebook: Notebook, kernelspec: str, cache: Path, tmp_path: Path
) -> None:
    cards(notebook, f"%%tpu_compile --hlo\n{CELL}")
    with running_kernel(kernelspec, env=cached_in(cache)) as other:
        run(other, SETUP)
        compiled, _ = cards(other, f"%%tpu_compile --save-hlo {tmp_path}\n{CELL}")
        figures = [line.split() for line in compiled["text/plain"].splitlines()]
        assert ["programs", "compiled", "0"] in figures and ["cache", "hits", "1"] in figures
    (text,) = tmp_path.glob("*.hlo.txt")
    assert computed(text.read_text()) == COMPUTED


def test_a_plug_in_that_keeps_no_optimised_program_is_said() -> None:
    problem = "PJRT_Executable_OptimizedProgram is not offered by `/opt/plugin.so`"
    program = ProgramText((2,), "forward", "module {\n}\n", Optimized(problem=problem))
    card = HloCard([program])
    assert card.text() == (
        "HLO · 1 program\n  program 1, line 2: StableHLO 2 lines\n"
        "  Optimised HLO: the plug-in does not give it (PJRT_Executable_OptimizedProgram\n"
        "  is not offered by /opt/plugin.so)"
    )
    assert "the plug-in does not give it (" in card.html() and card.html().count("<details>") == 1

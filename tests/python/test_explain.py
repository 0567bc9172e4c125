"""Hints under tracebacks and `%tpu_explain`: errors as PyTorch and TorchTPU raise them, in plain words."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running_kernel
from known_errors import HINTS, MOVE, SETUP
from notebook import Notebook, Result


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as notebook:
        assert notebook.run(SETUP).status == "ok"
        yield notebook


def hint(result: Result) -> list[str]:
    """The lines of the hint under a traceback."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    before, _, after = text.partition("Hint: ")
    return [line.strip() for line in after.splitlines()] if before else []


@pytest.mark.parametrize(("cell", "lines"), HINTS, ids=[cell.splitlines()[-1] for cell, _ in HINTS])
def test_hint_of_a_known_error(notebook: Notebook, cell: str, lines: list[str]) -> None:
    result = notebook.run(cell)
    assert result.status == "error"
    assert hint(result) == lines
    # Libraries and programs that read the error itself find it as it was.
    assert "Hint" not in result.content["evalue"]


@pytest.mark.parametrize(
    ("setup", "code", "value"),
    [
        ("a = torch.eye(2).to('tpu') * 2; b = a[0]", "torch.linalg.pinv(a) @ b", [1.0, 0.0]),
        (
            "factor = torch.eye(2).to('tpu') * 2",
            "torch.linalg.inv(factor @ factor.mT)",
            [[0.25, 0.0], [0.0, 0.25]],
        ),
        ("mask = x > 0", "x * mask", [1.0, 1.0, 1.0]),
        (
            "scale, zero = 0.5, 0",
            "torch.clamp(torch.round(x / scale) + zero, -128, 127).to(torch.int8)",
            [2, 2, 2],
        ),
    ],
)
def test_the_nearest_of_a_missing_operator_computes_the_same(
    notebook: Notebook, setup: str, code: str, value: list[object]
) -> None:
    shown = notebook.run(f"{setup}\n[round(v, 4) for v in ({code}).flatten().tolist()]")
    flat = [n for row in value for n in (row if isinstance(row, list) else [row])]
    assert shown.text == str(flat)


def test_what_a_compiled_function_cannot_have_a_compiled_cell_can(notebook: Notebook) -> None:
    cell = "%%tpu_compile --quiet\nhalf = torch.linalg.inv(torch.eye(2, device='tpu') * 2) + 0\nhalf.tolist()"
    assert notebook.run(cell).text == "[[0.5, 0.0], [0.0, 0.5]]"


def test_new_names_are_there(notebook: Notebook) -> None:
    cell = """
from tpu_kernel.explain import names
missing = []
for each in names.ALL:
    path = each.new.partition("(")[0].partition(" ")[0].split(".")
    if path[0] == "torch":
        value = torch
        for part in path[1:]:
            value = getattr(value, part, None)
        if value is None: missing.append(each.new)
missing"""
    assert notebook.run(cell).text == "[]"
    for code in ("torch.Event('tpu')", "torch.tpu.get_device_properties()", "torch.manual_seed(0)"):
        assert notebook.run(code).status == "ok", code


def test_errors_that_are_caught_or_unknown_have_no_hint(notebook: Notebook) -> None:
    caught = notebook.run(
        "try:\n    x + c\nexcept RuntimeError as e:\n    print(e, getattr(e, '__notes__', None))"
    )
    assert caught.stdout.endswith("at least two devices, tpu:0 and cpu! None\n") and caught.stderr == ""
    for cell in ("1 / 0", "undefined_name", "{}['cuda']", "raise RuntimeError('cuda and tpu')"):
        assert hint(notebook.run(cell)) == []


def test_explain_tells_the_last_error_as_card_and_text(notebook: Notebook) -> None:
    notebook.run("both = x + c")
    (card,) = notebook.run("%tpu_explain").displays
    assert card["text/plain"].splitlines() == [
        "known error · RuntimeError · line 1: both = x + c",
        "  `c` is on the CPU, `x` on the TPU.",
        f"  {MOVE}",
        '      c = c.to("tpu")',
    ]
    html = card["text/html"]
    assert "<code>c = c.to(&quot;tpu&quot;)</code>" in html and "at least two devices" in html
    assert len(html) < 6144 and "<script" not in html
    notebook.run("raise RuntimeError('of nobody')")
    (card,) = notebook.run("%tpu_explain").displays
    assert card["text/plain"].splitlines() == [
        "error · RuntimeError · line 1: raise RuntimeError('of nobody')",
        "  This is not one of the errors that are known here.",
        "  To see the line that failed on the device, and not one after it, run the cell",
        "  again under:",
        "      %%tpu_eager --mode debug",
    ]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "torch.tpu.is_available()",
            [
                "  torch.tpu.is_available -> torch.accelerator.is_available()",
                "      torch.tpu's own raises.",
            ],
        ),
        (
            "xm.mark_step",
            ["  xm.mark_step -> nothing", "      Nothing is needed: operations run as they are reached."],
        ),
        (
            "mark_step",
            ["  xm.mark_step -> nothing", "      Nothing is needed: operations run as they are reached."],
        ),
        (
            "TPU_LAUNCH_BLOCKING",
            ["  TPU_LAUNCH_BLOCKING -> TORCH_TPU_LAUNCH_BLOCKING", "      In a notebook: %tpu_mode debug."],
        ),
        (
            "XLA_FLAGS",
            [
                "  XLA_FLAGS -> XLA_FLAGS",
                "      It is read once, when the device starts: set it before, in the first cell",
                "      or where Jupyter is started.",
            ],
        ),
        (
            "pin_memory",
            ["  pin_memory -> nothing", "      It changes nothing on a TPU."],
        ),
        (
            "device_ids=[0]",
            [
                "  device_ids -> DistributedDataParallel(model)",
                "      A process has one device: leave it out.",
            ],
        ),
    ],
)
def test_explain_tells_the_new_name_of_an_old_one(notebook: Notebook, name: str, lines: list[str]) -> None:
    (card,) = notebook.run(f"%tpu_explain {name}").displays
    assert card["text/plain"].splitlines()[1:] == lines


def test_explain_lists_whole_tables_and_completes_their_names(notebook: Notebook) -> None:
    (card,) = notebook.run("%tpu_explain torch_xla").displays
    text = card["text/plain"]
    for line in (
        '  xm.xla_device -> torch.device("tpu")',
        "  xm.optimizer_step -> optimizer.step()",
        '      batch = batch.to("tpu", non_blocking=True)',
        "  torch_xla.debug.metrics -> %tpu_stats",
        "  xs.mark_sharding -> DTensor",
    ):
        assert line in text.splitlines()
    for table in ("torch_xla", "cuda", "torch_tpu"):
        assert len(notebook.run(f"%tpu_explain {table}").displays[0]["text/html"]) <= 6144
    unknown = notebook.run("%tpu_explain torch.cuda.is_avail")
    assert unknown.content["evalue"] == (
        "%tpu_explain: nothing is known of `torch.cuda.is_avail`; alike: `torch.cuda.is_available`, "
        "`torch.tpu.is_available`"
    )
    code = "%tpu_explain TPU_LAU"
    reply = notebook.ask("complete_request", {"code": code, "cursor_pos": len(code)}).content
    assert reply["matches"] == ["TPU_LAUNCH_BLOCKING"]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (
            "os.environ['TPU_LAUNCH_BLOCKING'] = '1'",
            (
                "nothing reads `TPU_LAUNCH_BLOCKING`. The variable is called `TORCH_TPU_LAUNCH_BLOCKING`, and is read "
                "once, when the device starts. In a notebook: `%tpu_mode debug`."
            ),
        ),
        (
            "%env TPU_DEFER_AND_FUSE=1",
            (
                "nothing reads `TPU_DEFER_AND_FUSE`. The variable is called `TORCH_TPU_DEFER_AND_FUSE`, and is read "
                "once, when the device starts. In a notebook: `%tpu_mode fused`."
            ),
        ),
        (
            "os.environ.setdefault('PJRT_DEVICE', 'TPU')",
            "nothing reads `PJRT_DEVICE`. No variable is needed: the device is called `tpu`.",
        ),
        (
            "os.environ.update(TORCH_TPU_DEFER_AND_FUSE='1')",
            (
                "`TORCH_TPU_DEFER_AND_FUSE` was read when the device started: set now, it does nothing. For this kernel: "
                "%tpu_mode fused. Or restart the kernel and set it in the first cell, before `import torch`."
            ),
        ),
        (
            "os.environ['XLA_FLAGS'] = '--xla_dump_to=/nowhere'",
            (
                "`XLA_FLAGS` was read when the device started: set now, it does nothing. Or restart the kernel and set "
                "it in the first cell, before `import torch`."
            ),
        ),
        (
            "os.environ['TORCH_TPU_ALLOW_LEGACY_DEVICE_APIS'] = '1'",
            (
                "`TORCH_TPU_ALLOW_LEGACY_DEVICE_APIS` was read when torch was imported: set now, it does nothing. Or "
                "restart the kernel and set it in the first cell, before `import torch`."
            ),
        ),
        (
            "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
            (
                "`torch.cuda.is_available()` is False here, so such code runs on the CPU. For the TPU: device = "
                '"tpu" if torch.accelerator.is_available() else "cpu"'
            ),
        ),
        (
            "used = torch.cuda.max_memory_allocated()",
            (
                "what `torch.cuda` says of memory is 0 here. Of the TPU: torch.accelerator.memory_allocated(), "
                "torch.accelerator.max_memory_allocated(), `%tpu_mem`"
            ),
        ),
        (
            "import warnings; warnings.simplefilter('ignore')\nwith torch.autocast('cuda'): pass",
            'autocast for "cuda" does nothing on a TPU: torch.amp.autocast("tpu", dtype=torch.bfloat16)',
        ),
        (
            "scaler = torch.amp.GradScaler()",
            "`GradScaler` is of no use on a TPU: bfloat16 has the range of float32. Leave it out.",
        ),
        (
            "there = x.to('tpu:1')",
            'a process has one TPU: "tpu:1" and the like mean the same as "tpu"',
        ),
        (
            "import torch_tpu._internal.execution_mode as em\nem.set_eager_mode(em.EagerMode.DEFER_AND_FUSE);",
            (
                "`set_eager_mode` does nothing outside `with`: %tpu_mode fused, or torch.tpu.eager_mode = "
                "torch.tpu.EagerMode.DEFER_AND_FUSE"
            ),
        ),
    ],
)
def test_a_cell_that_says_something_in_vain_has_a_hint_once(
    notebook: Notebook, cell: str, words: str
) -> None:
    assert notebook.run(cell).stderr == f"Hint: {words}\n"
    assert notebook.run(cell).stderr == ""


def test_cells_that_only_mention_such_things_have_no_hint(notebook: Notebook) -> None:
    notebook.run("os.environ['CUDA_VISIBLE_DEVICES_OTHER'] = '0'")
    for cell in (
        "print('TPU_LAUNCH_BLOCKING', os.environ.get('TPU_LAUNCH_BLOCKING'))",
        "os.environ.get('LIBTPU_INIT_ARGS'), os.environ['HOME'] == 'LIBTPU_INIT_ARGS'",
        "%env HOME",
        "'cuda' in str(x.device)",
    ):
        assert notebook.run(cell).stderr == ""


def test_modes_set_through_torch_tpu_are_shown(notebook: Notebook) -> None:
    notebook.run("torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE")
    fused = "fused eager: operations are recorded, fused, and run when a value is needed\n"
    assert notebook.run("%tpu_mode").stdout == fused
    within = (
        "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING):\n"
        "    get_ipython().run_line_magic('tpu_mode', '')"
    )
    assert notebook.run(within).stdout == "debug eager: each operation has ended before the next line\n"
    assert notebook.run("%%tpu_eager\nprint(torch.tpu.eager_mode.name)").stdout == "DEFER_AND_FUSE\n"
    assert (
        notebook.run("%%tpu_compile --quiet\nprint(torch.tpu.eager_mode.name)").stdout == "DEFER_AND_FUSE\n"
    )
    assert notebook.run("%tpu_mode").stdout == fused
    notebook.run("%tpu_mode strict")
    assert notebook.run("torch.tpu.eager_mode.name").text == "'DEFER_NEVER'"


def test_a_child_that_was_forked_says_so_in_its_own_traceback(notebook: Notebook) -> None:
    cell = (
        "import multiprocessing as mp\n"
        "child = mp.get_context('fork').Process(target=lambda: torch.ones(2, device='tpu'))\n"
        "child.start(); child.join()"
    )
    shown = notebook.run(cell).stderr
    assert shown.endswith(
        "Hint: A forked process cannot use the device of its parent: a chip belongs to one process.\n"
        "Let the process work on the CPU, or start it before the device is used, with spawn:\n"
        '    torch.multiprocessing.get_context("spawn")\n'
    )


def test_a_library_for_another_torch_names_the_installed_versions(notebook: Notebook, tmp_path: Path) -> None:
    cell = f"""
import ctypes, pathlib, subprocess
source = pathlib.Path({str(tmp_path)!r}, "broken.c")
source.write_text("void of_another_torch(void); void load(void) {{ of_another_torch(); }}")
subprocess.run(["cc", "-shared", "-fPIC", "-o", {str(tmp_path / "libbroken.so")!r}, str(source)], check=True)
ctypes.CDLL({str(tmp_path / "libbroken.so")!r}, mode=2)
"""
    words, cure, code = hint(notebook.run(cell))
    assert re.fullmatch(
        r"A library was built for another version of PyTorch than the one that is installed\. "
        r"Here: torch 2\.\d+\.\d+\S*, torch_tpu 0\.2\.\d+\S*, libtpu 0\.\d+\.\d+\S*\.",
        words,
    )
    assert cure == "Install versions that belong together, then restart the kernel:"
    assert code == '%pip install "torch>=2.11,<2.16" "torch_tpu>=0.2,<0.3"'


def test_without_torch_tpu_the_hint_says_what_is_missing(kernelspec: str) -> None:
    with running_kernel(kernelspec, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) as kernel:
        result = kernel.run("import torch; torch.ones(3, device='tpu')")
        assert hint(result) == [
            'PyTorch knows no device "tpu": TorchTPU is not loaded, or found no TPU.',
            "`TORCH_DEVICE_BACKEND_AUTOLOAD=0` keeps it from loading with `import torch`. In this kernel:",
            "import torch_tpu._loader; torch_tpu._loader.load()",
        ]
        # No error, no hint: nothing of it was loaded when the kernel started.
        assert kernel.run("import torch_tpu._loader; torch_tpu._loader.load()\n1").text == "1"
        assert kernel.run("torch.ones(2, device='tpu').tolist()").text == "[1.0, 1.0]"


HOLD = """
import fcntl, time
lock = open("/tmp/libtpu_lockfile", "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def held(path: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A process that has libtpu's lock."""
    command = [sys.executable, str(path), *arguments]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


def test_a_chip_that_another_process_holds_names_that_process(kernelspec: str, tmp_path: Path) -> None:
    """libtpu itself, which takes its lock before it looks for a chip."""
    found = importlib.util.find_spec("libtpu")
    assert found is not None and found.origin is not None
    plugin = str(Path(found.origin).parent / "libtpu.so")
    script = tmp_path / "train.py"
    script.write_text(HOLD)
    user = pwd.getpwuid(os.getuid()).pw_name
    said = []
    with running_kernel(kernelspec, env={"TPU_KERNEL_PJRT_PLUGIN": plugin}) as kernel:
        session = {"JPY_SESSION_NAME": "lessons/attention.ipynb"}
        for arguments, env in (((), None), (("-f", "kernel-0a1b.json"), session)):
            with held(script, *arguments, env=env) as holder:
                try:
                    result = kernel.run("import torch; torch.ones(3, device='tpu')")
                finally:
                    holder.kill()
            said.append((holder.pid, hint(result)))
    cure = "It is free when that has ended: shut that notebook or program down where it runs, then run the cell again."
    (first, (words, *rest)), (second, lines) = said
    assert words.startswith(f"The chip is held by process {first} of {user}, `")
    assert words.endswith("`, started less than a minute ago.") and rest == [cure]
    assert lines == [
        (
            f"The chip is held by process {second} of {user}, the kernel of `attention.ipynb`, started less than a "
            "minute ago."
        ),
        cure,
    ]

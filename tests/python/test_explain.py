"""Hints under tracebacks and `%tpu_explain`: errors as PyTorch and TorchTPU raise them, in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

SETUP = """
import os, torch, torch.distributed as dist
x, c = torch.ones(3, device="tpu"), torch.ones(3)
model, layers = torch.nn.Linear(3, 3).to("tpu"), [torch.nn.Linear(3, 3)]
class Holder: pass
holder = Holder(); holder.batch = torch.ones(3)
"""

ACCELERATOR = "Use what works for every accelerator:"
LEFT_OUT = "Leave `backend` out: the one for the TPU is chosen when the inputs are there."
AS_IT_SHOULD_BE = "The line as it should be:"
NO_CUDA = "There is no CUDA device here, there is a TPU."
GROUP = 'torch.distributed.init_process_group(backend="tpu_dist")'
SET_LAUNCH = "torch.tpu.distributed.set_tpu_launch_env(nproc_per_node=8)"
MOVE = "An operation works in one place; move it:"
FUSED_CONTEXT = "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):"


def internal(name: str, code: str) -> tuple[str, list[str]]:
    words = f"`torch.tpu.{name}` is for PyTorch itself and raises in a notebook."
    return f"torch.tpu.{name}({'0' if name == 'set_device' else ''})", [words, ACCELERATOR, code]


# cell, and what stands under its traceback
HINTS: list[tuple[str, list[str]]] = [
    internal("is_available", "torch.accelerator.is_available()"),
    internal("synchronize", "torch.accelerator.synchronize()"),
    internal("device_count", "torch.accelerator.device_count()"),
    internal("current_device", "torch.accelerator.current_device_index()"),
    internal("set_device", "torch.accelerator.set_device_index(0)"),
    internal("current_stream", "torch.accelerator.current_stream()"),
    (
        "torch.tpu.memory_allocated()",
        ["`torch.tpu` has no `memory_allocated`.", ACCELERATOR, "torch.accelerator.memory_allocated()"],
    ),
    (
        "torch.tpu.empty_cache()",
        [
            "`torch.tpu` has no `empty_cache`.",
            "HBM is free as soon as no tensor uses it: nothing is kept back.",
        ],
    ),
    (
        "torch.tpu.get_device_nam()",
        ["`torch.tpu` has no `get_device_nam`.", "Did you mean:", "torch.tpu.get_device_name"],
    ),
    *(
        (
            cell,
            [
                "`torch_tpu.api` was part of an older TorchTPU.",
                '`import torch` is enough, and the device is called "tpu":',
                'device = torch.device("tpu")',
            ],
        )
        for cell in (
            "from torch_tpu import api",
            "import torch_tpu.api",
            "import torch_tpu; torch_tpu.api.tpu_device()",
        )
    ),
    (
        "import torch_tpu._internal.execution_mode as em\nwith em.eager_mode(em.EagerMode.DEFER_NEVER): pass",
        [
            "`eager_mode` is the mode in force, not a context.",
            "For a block the following; for a whole cell `%%tpu_eager --mode fused`:",
            FUSED_CONTEXT,
        ],
    ),
    (
        "torch.tpu.eager_mode = 'fused'",
        [
            "The eager mode is a member of `torch.tpu.EagerMode`.",
            "In a notebook, `%tpu_mode fused`; in code:",
            "torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE",
        ],
    ),
    (
        "torch.tpu.EagerMode.DEBUG",
        [
            "`torch.tpu.EagerMode` has no `DEBUG`: its names say when operations are put off.",
            "In a notebook, `%tpu_mode`; in code DEFER_NEVER (strict), DEFER_AND_FUSE (fused) and, for debug:",
            "torch.tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING",
        ],
    ),
    (
        "torch.backends.tpu.allow_excess_precision = True",
        [
            "There is no `torch.backends.tpu`.",
            "The setting is called:",
            "torch.tpu.allow_excess_precision = True",
        ],
    ),
    (
        "from torch_tpu._internal.distributed.launchers import singlehost_wrapper",
        [
            "The launchers of an older TorchTPU are gone.",
            "In the parent, before it starts the processes and uses the device:",
            SET_LAUNCH,
        ],
    ),
    *(
        (
            cell,
            [
                "`torch_xla` is another package, PyTorch/XLA; TorchTPU takes its place.",
                "`%tpu_explain torch_xla` lists what takes the place of what.",
                code,
            ],
        )
        for cell, code in (
            ("import torch_xla.core.xla_model as xm", 'device = torch.device("tpu")'),
            (
                "import torch_xla.distributed.parallel_loader as pl",
                'for batch in loader: batch = batch.to("tpu")',
            ),
            ("import torch_xla.distributed.xla_multiprocessing as xmp", SET_LAUNCH),
        )
    ),
    (
        'torch.ones(3, device="xla")',
        [
            'A device "xla" is of PyTorch/XLA; here it is called "tpu".',
            AS_IT_SHOULD_BE,
            'torch.ones(3, device="tpu")',
        ],
    ),
    ("y = c.cuda()", [NO_CUDA, AS_IT_SHOULD_BE, 'y = c.to("tpu")']),
    ("model.to('cuda:0')", [NO_CUDA, AS_IT_SHOULD_BE, "model.to('tpu')"]),
    ("torch.cuda.synchronize()", [NO_CUDA, AS_IT_SHOULD_BE, "torch.accelerator.synchronize()"]),
    ("torch.cuda.get_device_name(0)", [NO_CUDA, AS_IT_SHOULD_BE, "torch.tpu.get_device_name()"]),
    (
        "torch.cuda.Stream()",
        [NO_CUDA, 'Say "tpu" where the code says "cuda".', 'torch.device("tpu")'],
    ),
    (
        'torch.ones(3, device="gpu")',
        [
            'PyTorch knows no device "gpu"; the TPU is called "tpu".',
            AS_IT_SHOULD_BE,
            'torch.ones(3, device="tpu")',
        ],
    ),
    (
        "dist.init_process_group('nccl', rank=0, world_size=1, store=dist.HashStore())",
        ['The backend "nccl" is for CUDA devices.', "For TPUs:", GROUP],
    ),
    (
        "torch.nn.parallel.DistributedDataParallel(model)",
        [
            "There is no process group yet: training on several chips has a process for each.",
            "On one chip leave `DistributedDataParallel` out; else, in each process, first:",
            GROUP,
        ],
    ),
    (
        "dist.init_process_group('tpu_dist', rank=0, world_size=1, store=dist.HashStore())",
        [
            "A process group of TPUs needs a process for each chip, started with its place among them.",
            "In the parent, before it starts the processes and uses the device:",
            SET_LAUNCH,
        ],
    ),
    (
        (
            "dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())\n"
            "torch.nn.parallel.DistributedDataParallel(model)"
        ),
        [
            "This process group cannot move tensors on a TPU.",
            "Make it with TorchTPU's own backend:",
            GROUP,
        ],
    ),
    (
        "torch.nn.parallel.DistributedDataParallel(layers[0], device_ids=[0])",
        [
            "`device_ids` is for several devices in one process; here a process has one.",
            "Leave it out:",
            "torch.nn.parallel.DistributedDataParallel(model)",
        ],
    ),
    ("x + c", ["`c` is on the CPU, `x` on the TPU.", MOVE, 'c = c.to("tpu")']),
    ("model(c)", ["`c` is on the CPU, `model` on the TPU.", MOVE, 'c = c.to("tpu")']),
    (
        "def step(batch):\n    return torch.cat([x, batch])\nstep(c)",
        ["`batch` is on the CPU, `x` on the TPU.", MOVE, 'batch = batch.to("tpu")'],
    ),
    (
        "x * 2; x + holder.batch",
        ["`holder.batch` is on the CPU, `x` on the TPU.", MOVE, 'holder.batch = holder.batch.to("tpu")'],
    ),
    (
        "net = layers[0]\nnet(x)",
        ["`net` is on the CPU, `x` on the TPU.", MOVE, 'net.to("tpu")'],
    ),
    (
        "x + torch.ones(3)",
        [
            "An operation got tensors on the CPU and on the TPU.",
            'Something this line makes is on the CPU: make it with `device="tpu"`, or add `.to("tpu")`.',
        ],
    ),
    (
        "torch.compile(lambda t, s: t + s)(x, torch.tensor(2.0))",
        [
            "A compiled function was given a tensor that is on the CPU.",
            'Move it (`.to("tpu")`); where it is the step counter of an optimizer, make that capturable:',
            "torch.optim.Adam(model.parameters(), capturable=True)",
        ],
    ),
    ("x.numpy()", ["NumPy can only read what is on the CPU.", "Copy it first:", "x.cpu().numpy()"]),
    (
        (
            "class Ones(torch.utils.data.Dataset):\n"
            "    def __len__(self): return 4\n"
            "    def __getitem__(self, i): return torch.ones(2, device='tpu')\n"
            "next(iter(torch.utils.data.DataLoader(Ones(), num_workers=1)))"
        ),
        [
            "A worker of the DataLoader used the device: a chip belongs to one process.",
            "Let the dataset give CPU tensors, and move each batch in the loop:",
            'batch = batch.to("tpu")',
        ],
    ),
    (
        "def work(i): pass\ntorch.multiprocessing.spawn(work)",
        [
            "A spawned process does not find `work`: it imports modules, not the notebook.",
            "Write the function to a file, and import it here and there:",
            "%%writefile work.py",
        ],
    ),
    (
        "torch.linalg.eigh(torch.eye(3).to('tpu'))",
        ["TorchTPU has no `linalg.eigh`.", "Do this step on the CPU:", "torch.linalg.eigh(x.cpu())"],
    ),
    (
        "torch.linalg.lstsq(torch.eye(3).to('tpu'), torch.eye(3).to('tpu'))",
        ["TorchTPU has no `linalg.lstsq`.", "The nearest that it has:", "torch.linalg.pinv(a) @ b"],
    ),
    (
        "x.long().dot(x.long())",
        [
            "TorchTPU's `dot` does not take int64.",
            "Convert first, where the values allow it:",
            "x.to(torch.float32)",
        ],
    ),
    (
        "torch.compile(lambda t: torch.linalg.inv(t))(torch.eye(3).to('tpu'))",
        [
            "Something in the compiled function has to look at a result in between.",
            "Leave that step out of the compiled function; `%%tpu_compile` does so by itself:",
            "@torch.compiler.disable",
        ],
    ),
    (
        "torch.compile(lambda t: t * 2, backend='inductor')(x)",
        ['The backend "inductor" makes code for GPUs and CPUs.', LEFT_OUT, "torch.compile(model)"],
    ),
    (
        "torch.compile(lambda t: t * 2, backend='openxla')(x)",
        ['The backend "openxla" is of PyTorch/XLA.', LEFT_OUT, "torch.compile(model)"],
    ),
    (
        "torch.compile(lambda t: t * 2, dynamic=True)(x)",
        [
            "A program on the TPU has fixed sizes: `dynamic=True` cannot be had.",
            "Leave it out, and pad inputs to a few sizes:",
            "torch.compile(model)",
        ],
    ),
    (
        "torch.compile(lambda t: t * 2, mode='max-autotune')(x)",
        [
            "The modes of `torch.compile` are those of another backend.",
            "Leave `mode` out:",
            "torch.compile(model)",
        ],
    ),
    (
        (
            "@torch.compile\ndef fused(t):\n"
            "    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE): return t + 1\nfused(x)"
        ),
        [
            "`set_eager_mode` cannot stand inside a compiled function.",
            "Put it around the call:",
            "with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_NEVER): compiled(x)",
        ],
    ),
    (
        "with torch.inference_mode(): frozen = x * 2\n(frozen * model.weight).sum().backward()",
        [
            "What is made under `torch.inference_mode` cannot take part in gradients or in some compiled code.",
            "Use this instead:",
            "with torch.no_grad():",
        ],
    ),
    (
        (
            "torch.accelerator.set_device_index(1)\ntry:\n    torch.compile(lambda t: t * 3)(x)\n"
            "finally:\n    torch.accelerator.set_device_index(0)"
        ),
        [
            "A device with another index than 0 was chosen, but a process has one TPU.",
            "Choose that again:",
            "torch.accelerator.set_device_index(0)",
        ],
    ),
]


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as notebook:
        assert notebook.run(SETUP, patience=120).status == "ok"
        yield notebook


def hint(result: Result) -> list[str]:
    """The lines of the hint under a traceback."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    before, _, after = text.partition("Hint: ")
    return [line.strip() for line in after.splitlines()] if before else []


@pytest.mark.parametrize(("cell", "lines"), HINTS, ids=[cell.splitlines()[-1] for cell, _ in HINTS])
def test_hint_of_a_known_error(notebook: Notebook, cell: str, lines: list[str]) -> None:
    result = notebook.run(cell, patience=120)
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
    shown = notebook.run(f"{setup}\n[round(v, 4) for v in ({code}).flatten().tolist()]", patience=120)
    flat = [n for row in value for n in (row if isinstance(row, list) else [row])]
    assert shown.text == str(flat)


def test_what_a_compiled_function_cannot_have_a_compiled_cell_can(notebook: Notebook) -> None:
    cell = "%%tpu_compile --quiet\nhalf = torch.linalg.inv(torch.eye(2, device='tpu') * 2) + 0\nhalf.tolist()"
    assert notebook.run(cell, patience=120).text == "[[0.5, 0.0], [0.0, 0.5]]"


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
        "  To see the line that failed on the device, and not one after it, run the cell again under:",
        "      %%tpu_eager --mode debug",
    ]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "torch.tpu.is_available()",
            [
                "  torch.tpu.is_available -> torch.accelerator.is_available()",
                "      It works for every accelerator; torch.tpu's own raises RuntimeError outside PyTorch.",
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
                (
                    "      It is read once, when the device starts: set it before, in the first cell or where Jupyter is "
                    "started."
                ),
            ],
        ),
        (
            "pin_memory",
            ["  pin_memory -> nothing", "      It changes nothing on a TPU: leave it out, or leave it in."],
        ),
        (
            "device_ids=[0]",
            [
                "  device_ids -> DistributedDataParallel(model)",
                "      One process has one device: leave `device_ids` out.".replace("`", ""),
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
        '  torch_xla.distributed.parallel_loader -> batch = batch.to("tpu", non_blocking=True)',
        "  torch_xla.debug.metrics -> %tpu_stats",
        "  xs.mark_sharding -> DTensor",
    ):
        assert line in text.splitlines()
    assert len(card["text/html"]) < 6144 + 4096
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
    shown = notebook.run(cell, patience=60).stderr
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
        result = kernel.run("import torch; torch.ones(3, device='tpu')", patience=60)
        assert hint(result) == [
            'PyTorch knows no device "tpu": TorchTPU is not loaded, or found no TPU.',
            "`TORCH_DEVICE_BACKEND_AUTOLOAD=0` keeps it from loading with `import torch`. In this kernel:",
            "import torch_tpu._loader; torch_tpu._loader.load()",
        ]
        # No error, no hint: nothing of it was loaded when the kernel started.
        assert kernel.run("import torch_tpu._loader; torch_tpu._loader.load()\n1", patience=60).text == "1"
        assert kernel.run("torch.ones(2, device='tpu').tolist()", patience=60).text == "[1.0, 1.0]"


HOLD = """
import fcntl, time
lock = open("/tmp/libtpu_lockfile", "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def test_a_chip_that_another_process_holds_names_that_process(kernelspec: str, tmp_path: Path) -> None:
    """libtpu itself, which takes its lock before it looks for a chip."""
    import importlib.util
    import subprocess
    import sys

    found = importlib.util.find_spec("libtpu")
    assert found is not None and found.origin is not None
    plugin = str(Path(found.origin).parent / "libtpu.so")
    script = tmp_path / "train.py"
    script.write_text(HOLD)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with running_kernel(kernelspec, env={"TPU_KERNEL_PJRT_PLUGIN": plugin}) as kernel:
                result = kernel.run("import torch; torch.ones(3, device='tpu')", patience=120)
                words, cure = hint(result)
                (card,) = kernel.run("%tpu_explain").displays
        finally:
            holder.kill()
    user = os.environ.get("USER") or __import__("pwd").getpwuid(os.getuid()).pw_name
    start = f"The chip is held by process {holder.pid} of {user}, `"
    assert words.startswith(start) and words.endswith("`, started less than a minute ago.")
    assert cure == (
        "It is free when that has ended: shut that notebook or program down where it runs, then run the cell again."
    )
    assert card["text/plain"].splitlines()[1].strip().startswith(start.rstrip("`"))

"""The names a person knows device memory by: each way to hold a tensor, and what has no name is said with its bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import running_kernel
from notebook import Notebook, run
from test_tpu_memory import SETUP


@pytest.fixture(scope="module")
def notebook(kernelspec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    folder = tmp_path_factory.mktemp("work")
    Path(folder, "mylib.py").write_text("import torch\nkept = {'table': None}\nclass Kept: pass\n")
    with running_kernel(kernelspec, cwd=folder) as kernel:
        assert kernel.run(SETUP).status == "ok"
        yield kernel


def named(notebook: Notebook) -> dict[str, list[Any]]:
    """Kind and bytes by name; all of it has one."""
    seen = json.loads(run(notebook, "held()").stdout)
    assert seen["unnamed"] == 0 and 0 <= seen["rest"] <= 4096, seen
    assert seen["live"] == seen["named"] + seen["rest"]
    return seen["names"]


HELD = {
    # How it is held, and the name and kind it is shown under.
    "class Config: table = BIG": ("Config.table", "variable"),
    "import mylib; mylib.kept['table'] = BIG": ("mylib.kept['table']", "variable"),
    "import functools; job = functools.partial(print, BIG)": ("job{…}[0]", "variable"),
    "def f(x, *, w=BIG): pass": ("f() default", "variable"),
    "def g(): pass\ng.cache = [BIG]": ("g.cache[0]", "variable"),
    "import functools\n@functools.lru_cache\ndef once(n): return BIG\nonce(1);": ("once{…}", "variable"),
    "def items():\n    big = BIG\n    yield 1\nwalk = items(); next(walk);": (
        "walk: items() big",
        "variable",
    ),
    "saved = ValueError(BIG)": ("saved: ValueError args[0]", "variable"),
    "def fails():\n    big = BIG\n    raise KeyError\ntry: fails()\nexcept KeyError as error: kept = error": (
        "kept: fails() big",
        "variable",
    ),
    "from collections import deque, OrderedDict; line = deque([OrderedDict(a=BIG)])": (
        "line[0]['a']",
        "variable",
    ),
    "pair = iter([BIG])": ("pair{…}[0]", "variable"),
    "y = torch.ones(8, device='tpu', requires_grad=True)\nz = BIG * y.sum(); z.retain_grad(); z.sum().backward()": (
        "z.grad",
        "gradient",
    ),
}


@pytest.mark.parametrize("code", HELD, ids=[name for name, _ in HELD.values()])
def test_what_holds_a_tensor_is_named(notebook: Notebook, code: str) -> None:
    name, kind = HELD[code]
    run(notebook, "before = set(globals())")
    run(notebook, code.replace("BIG", "torch.ones(5000).to('tpu')"))
    names = named(notebook)
    assert names.get(name) == [kind, 20000], names
    run(
        notebook,
        "if 'mylib' in globals(): mylib.kept['table'] = None\n"
        "for name in set(globals()) - before - {'before', 'name'}: del globals()[name]\n"
        "import gc; gc.collect();",
    )


def test_threads_and_tasks_that_run_are_named(notebook: Notebook) -> None:
    run(
        notebook,
        """
import asyncio, threading
go = threading.Event()
def worker():
    mine = torch.ones(3000).to("tpu")
    go.wait()
thread = threading.Thread(target=worker, name="loader"); thread.start()
async def inner():
    deep = torch.ones(4000).to("tpu")
    await asyncio.sleep(3600)
async def outer():
    await inner()
task = asyncio.get_running_loop().create_task(outer(), name="poll")
""",
    )
    run(notebook, "await asyncio.sleep(0.2)")
    names = named(notebook)
    assert names["thread loader: worker() mine"] == ["running", 12000]
    assert names["task poll: inner() deep"] == ["running", 16000]
    run(notebook, "go.set(); thread.join(); task.cancel(); await asyncio.sleep(0.1)\ndel task, thread")


def test_after_a_compiled_step_only_what_is_on_the_device_is_counted(notebook: Notebook) -> None:
    run(
        notebook,
        "model = nn.Linear(8, 4).to('tpu'); fast = torch.compile(model)\n"
        "x = torch.ones(2, 8).to('tpu'); y = fast(x).detach()",
    )
    names = named(notebook)
    assert names["model.weight"] == ["parameter", 128]
    assert names["y"] == ["variable", 32]
    run(notebook, "del model, fast, x, y; torch._dynamo.reset()")


def test_outputs_are_named_when_out_was_emptied(notebook: Notebook) -> None:
    number = run(notebook, "torch.ones(6000).to('tpu')").content["execution_count"]
    run(notebook, "Out.clear()")
    assert named(notebook)["_"] == ["output", 24000]
    for later in ("1", "2", "3"):
        run(notebook, later)
    run(notebook, "Out.clear()")
    assert named(notebook)[f"_{number}"] == ["output", 24000]
    run(notebook, f"del _{number}")
    assert not [name for name in named(notebook) if name.startswith("_")]


def test_what_only_other_code_holds_is_said_with_its_bytes(notebook: Notebook) -> None:
    run(notebook, "import json.decoder; json.decoder._held = torch.ones(7000).to('tpu')")
    seen = json.loads(run(notebook, "held()").stdout)
    assert seen["unnamed"] == 28000
    assert ["", "", 1, 28000] in seen["roots"]
    run(notebook, "del json.decoder._held")
    named(notebook)


def test_what_a_compiled_function_keeps_for_backward_is_of_the_graph_of_its_result(
    notebook: Notebook,
) -> None:
    run(
        notebook,
        "layer = torch.nn.Linear(64, 32).to('tpu'); inputs = torch.randn(16, 64).to('tpu')\n"
        "outputs = torch.compile(lambda x: layer(x).relu() * layer(x).sigmoid())(inputs); outputs.sum().item(); None",
    )
    kept = {name: value for name, value in named(notebook).items() if name == "graph of outputs"}
    assert [kind for kind, _ in kept.values()] == ["graph"]
    run(notebook, "del layer, inputs, outputs")

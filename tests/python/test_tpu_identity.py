"""Which chip is emulated: each generation says of itself what libtpu and TorchTPU say of the real one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from notebook import Notebook
from tpu_kernel import bootstrap

HERE = Path(__file__).parent
#: Generation: topology of one chip in libtpu, name in PyTorch, its HBM there in GiB.
GENERATIONS = {
    "v4": ("v4:1x1x1", "TPU v4", 32),
    "v5e": ("v5e:1x1", "TPU v5e", 16),
    "v5p": ("v5p:1x1x1", "TPU v5p", 95),
    "v6e": ("v6e:1x1", "TPU v6e", 32),
    "7x": ("tpu7x:1x1x1", "TPU v7", 96),
}
PROPERTIES = """
from tpu_kernel import bootstrap
bootstrap.install()
import json, torch
torch.ones(3, device="tpu")
properties = torch.tpu.get_device_properties()
free, limit = torch.accelerator.get_memory_info()
print(json.dumps([torch.tpu.get_device_name(), properties.name, properties.total_memory, limit]))
"""


def environment(**variables: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TPU_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env | variables


def libtpu() -> str:
    (folder,) = importlib.util.find_spec("libtpu").submodule_search_locations
    return str(Path(folder, "libtpu.so"))


def described(library: str, *topologies: str, **variables: str) -> dict[str, Any]:
    """What a plug-in says of its topologies, in a process of its own: libtpu may end it."""
    done = subprocess.run(
        [sys.executable, str(HERE / "pjrt_topology.py"), library, *topologies],
        env=environment(
            TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TF_CPP_MIN_LOG_LEVEL="3", **variables
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """What libtpu itself says of one chip of each generation."""
    return described(libtpu(), *(topology for topology, _, _ in GENERATIONS.values()))["topologies"]


def test_each_emulated_chip_describes_itself_as_libtpu_describes_the_real_one(real: dict[str, Any]) -> None:
    bootstrap._locate_plugins()
    plugin = os.environ["TPU_KERNEL_CPU_PLUGIN"]
    for generation, (topology, name, _) in GENERATIONS.items():
        found = described(
            str(bootstrap.library()), TPU_KERNEL_CPU_PLUGIN=plugin, TPU_KERNEL_EMULATE=generation
        )
        emulated = found["topologies"]["client"]
        # A process has one device, also of the chips that show as two.
        assert emulated["devices"][0] == real[topology]["devices"][0]
        assert emulated["chip"] == real["v5e:1x1"]["chip"]
        assert emulated["attributes"] == real[topology]["attributes"]
        assert emulated["platform"] == real[topology]["platform"] == "tpu"
        assert emulated["version"].startswith(f"emulated {name} on ")


def test_libtpu_behind_the_plugin_describes_its_topologies_unchanged(real: dict[str, Any]) -> None:
    core = str(bootstrap.library())
    found = described(core, "v5e:1x1", "tpu7x:1x1x1", TPU_KERNEL_PJRT_PLUGIN=libtpu())["topologies"]
    assert found["v5e:1x1"] == real["v5e:1x1"]
    assert found["tpu7x:1x1x1"] == real["tpu7x:1x1x1"]


def test_pytorch_sees_the_generation_asked_for() -> None:
    running = {
        generation: subprocess.Popen(
            [sys.executable, "-c", PROPERTIES],
            env=environment(TPU_KERNEL_EMULATE=generation),
            stdout=subprocess.PIPE,
            text=True,
        )
        for generation in ("v4", "v6e", "7x")
    }
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = {"v4": 32_745_977_856, "v6e": 33_546_042_880, "7x": 101_724_453_888}
    for generation, process in running.items():
        _, name, gibibytes = GENERATIONS[generation]
        output, _ = process.communicate(timeout=120)
        *identity, limit = json.loads(output)
        assert identity == [name, name, gibibytes << 30]
        assert limit == limits[generation] or limit <= host < limits[generation]


def test_a_generation_that_does_not_exist_is_named_when_the_device_is_used(
    new_kernel: Callable[..., Notebook],
) -> None:
    notebook = new_kernel(env={"TPU_KERNEL_EMULATE": "v9"})
    result = notebook.run('import torch\ntorch.ones(3, device="tpu")')
    assert (result.content["ename"], result.content["evalue"]) == (
        "RuntimeError",
        "`TPU_KERNEL_EMULATE` is `v9`: set it to v4, v5e, v5p, v6e or 7x, or unset it",
    )
    assert notebook.run("torch.ones(2).sum()").text == "tensor(2.)"


def test_the_size_of_the_emulated_chip_can_be_chosen(new_kernel: Callable[..., Notebook]) -> None:
    notebook = new_kernel(env={"TPU_KERNEL_HBM": "64MiB"})
    before = notebook.run("%tpu_limit 8MiB")
    assert before.content["evalue"] == (
        '%tpu_limit: no device is in use yet: make a tensor on it first, e.g. torch.ones(3, device="tpu")'
    )
    notebook.run('import torch\na = torch.ones(4 << 20, device="tpu")')
    assert notebook.run("%tpu_limit").stdout == (
        "HBM limit 64.0 MiB (chosen; a TPU v5e has 15.75 GiB), 16.0 MiB in use, 48.0 MiB free\n".replace(
            ".0 ", ".00 "
        )
    )
    (card,) = notebook.run("%tpu_stats").displays
    assert "  HBM limit    chosen; a TPU v5e has 15.75 GiB" in card["text/plain"]
    full = notebook.run('b = torch.ones(20 << 20, device="tpu")')
    assert full.content["ename"] == "OutOfMemoryError"
    assert notebook.run("%tpu_limit 128 MB").stdout.startswith("HBM limit 128 MiB (chosen;")
    assert notebook.run('b = torch.ones(20 << 20, device="tpu"); b.sum().item()').text == "20971520.0"
    wrong = {
        "%tpu_limit much": "%tpu_limit: `much` is no size: give one such as 8GiB, or `off`",
        "%tpu_limit 0": "%tpu_limit: `0` is no size: give one such as 8GiB, or `off`",
    }
    for cell, message in wrong.items():
        assert notebook.run(cell).content["evalue"] == message
    assert "is more than this machine has" in notebook.run("%tpu_limit 900TiB").content["evalue"]
    assert notebook.run("%tpu_limit off").stdout.startswith("HBM limit 64.00 MiB (chosen;")

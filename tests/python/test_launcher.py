"""The program `tpu-kernel start`: the kernel's process is the environment's own Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import LAUNCHER, PREFIX, launcher, started
from jupyter_client.connect import write_connection_file
from notebook import PATIENCE

# What a notebook may ask its interpreter, as an expression that prints as literals.
IDENTITY = """{
    "executable": sys.executable,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "base_executable": sys._base_executable,
    "path": [folder for folder in sys.path if ".ipython" not in folder],
    "version": sys.version,
    "flags": (sys.flags.utf8_mode, sys.flags.isolated, sys.flags.dont_write_bytecode),
    "main": sys.modules["__main__"].__name__,
    "argv": (os.path.basename(sys.argv[0]), sys.argv[1]),
}"""


def test_the_interpreter_is_what_ipykernel_shows() -> None:
    with started("python3", PYTHONDONTWRITEBYTECODE="") as other:
        expected = other.value(IDENTITY, "import os, sys")
    with started() as kernel:
        assert kernel.value(IDENTITY, "import os, sys") == expected
        argv = kernel.value("sys.argv[1:]")
        assert argv[0] == "-f"
        assert argv[1] == kernel.manager.connection_file
    assert expected["executable"] == sys.executable
    assert expected["argv"] == ("ipykernel_launcher.py", "-f")


def test_python_runs_inside_the_launcher_with_one_libpython() -> None:
    with started(TPU_KERNEL_BIND_NOW="1") as kernel:
        assert kernel.value("os.getpid()", "import os") == kernel.pid
        process = Path(f"/proc/{kernel.pid}")
        assert os.path.samefile(process / "exe", LAUNCHER)
        assert (process / "comm").read_text() == "tpu-kernel\n"
        mapped = {
            line.split()[-1] for line in (process / "maps").read_text().splitlines() if "libpython3." in line
        }
        assert len(mapped) == 1, mapped


def test_without_embedding_the_interpreter_itself_is_the_kernel() -> None:
    with started(TPU_KERNEL_EMBED="0") as kernel:
        assert kernel.value("(os.getpid(), sys.executable, sys.prefix)", "import os, sys") == (
            kernel.pid,
            sys.executable,
            sys.prefix,
        )
        assert os.path.samefile(f"/proc/{kernel.pid}/exe", sys.executable)


def test_children_are_the_real_python() -> None:
    code = """
import multiprocessing, os, subprocess, sys
script = "import os, sys; print(os.readlink('/proc/self/exe')); print(sys.prefix)"
by_subprocess = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.splitlines()
with multiprocessing.get_context("spawn").Pool(1) as pool:
    by_spawn = pool.apply(os.readlink, ["/proc/self/exe"])
with multiprocessing.get_context("forkserver").Pool(1) as pool:
    by_forkserver = pool.apply(os.readlink, ["/proc/self/exe"])
"""
    real = os.path.realpath(sys.executable)
    with started() as kernel:
        assert kernel.value("(by_subprocess, by_spawn, by_forkserver)", code) == (
            [real, sys.prefix],
            real,
            real,
        )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_answer(method: str) -> None:
    code = f"""
import torch
data = torch.utils.data.TensorDataset(torch.arange(8))
loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context={method!r})
seen = [batch.tolist() for (batch,) in loader]
"""
    with started() as kernel:
        assert kernel.value("seen", code, timeout=150) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_bytecode_is_written_whatever_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "module_of_a_person.py").write_text("x = 1\n")
    with started(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(tmp_path)) as kernel:
        kernel.value("module_of_a_person.x", "import module_of_a_person")
    assert [file.name for file in (tmp_path / "__pycache__").iterdir()] == [
        f"module_of_a_person.{sys.implementation.cache_tag}.pyc"
    ]


def complaint(*arguments: str, **options: object) -> str:
    """The one line with which the launcher refuses."""
    outcome = launcher(*arguments, **options)
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    assert outcome.stderr.count("\n") == 1, outcome.stderr
    return outcome.stderr.strip()


def test_an_unreadable_connection_file_is_named_in_one_line(tmp_path: Path) -> None:
    hint = "let Jupyter start this kernel, or give -f a file that Jupyter wrote"
    missing = tmp_path / "missing.json"
    assert complaint("start", "-f", str(missing)) == (
        f"tpu-kernel: cannot read the connection file `{missing}` (No such file or directory): {hint}"
    )
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert complaint("start", "-f", str(broken)) == (
        f"tpu-kernel: the connection file `{broken}` is not a JSON object: {hint}"
    )


@pytest.mark.parametrize("embed", ["0", "1"])
def test_a_connection_file_without_ports_is_refused_in_one_line(tmp_path: Path, embed: str) -> None:
    incomplete = tmp_path / "incomplete.json"
    incomplete.write_text(json.dumps({"transport": "tcp", "ip": "127.0.0.1", "key": "k"}))
    line = complaint("start", "-f", str(incomplete), env={**os.environ, "TPU_KERNEL_EMBED": embed})
    assert str(incomplete) in line


@pytest.mark.parametrize("embed", ["0", "1"])
def test_a_port_that_is_taken_is_named_in_one_line(tmp_path: Path, embed: str) -> None:
    with started() as kernel:
        line = complaint(
            "start",
            "-f",
            kernel.manager.connection_file,
            env={**os.environ, "TPU_KERNEL_EMBED": embed},
        )
        assert "in use" in line


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    connection, _ = write_connection_file(str(tmp_path / "connection.json"))
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho '{\"version\": [3, 9]}'\n")
    old.chmod(0o755)
    assert complaint("start", "-f", connection, "--python", str(old)) == (
        f"tpu-kernel: `{old}` is Python 3.9, PyTorch (TPU) needs 3.11 or newer: "
        "make an environment with a newer Python and install pytorch-tpu-kernel there"
    )


def test_a_python_without_the_package_is_told_how_to_get_it(tmp_path: Path) -> None:
    connection, _ = write_connection_file(str(tmp_path / "connection.json"))
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=PATIENCE
    )
    python = tmp_path / "bare" / "bin" / "python"
    assert complaint("start", "-f", connection, "--python", str(python)) == (
        f"tpu-kernel: the package pytorch-tpu-kernel is not installed for `{python}`: "
        f"run `{python} -m pip install pytorch-tpu-kernel`"
    )


def test_help_and_version_are_said_on_standard_output() -> None:
    version = launcher("--version")
    assert (version.returncode, version.stdout, version.stderr) == (0, "tpu-kernel 0.1.0\n", "")
    assert launcher("--help").stdout.startswith("tpu-kernel: the Jupyter kernel PyTorch (TPU)\n")
    assert complaint("strat") == (
        "tpu-kernel: there is no command `strat`; `tpu-kernel --help` lists the commands and their options"
    )
    assert PREFIX in LAUNCHER.parents

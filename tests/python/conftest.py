"""Kernels to test: the installed `pytorch-tpu` where there is one, else this checkout's Python half."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from feed_panel import Panel
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from notebook import PATIENCE, Notebook
from tpu_kernel import caches

NAME = "pytorch-tpu"
GIVEN = set(os.environ)
FAILED = pytest.StashKey[bool]()


def installed() -> bool:
    """The kernelspec is found where Jupyter looks, the environment of this Python included."""
    return NAME in KernelSpecManager().find_kernel_specs()


@pytest.fixture(scope="session", autouse=True)
def kernelspec() -> Iterator[str]:
    """The name of the kernelspec; a temporary one for `python -m tpu_kernel` when none is installed."""
    if installed():
        yield NAME
        return
    with tempfile.TemporaryDirectory(prefix="jupyter-") as folder:
        spec = Path(folder, "kernels", NAME)
        spec.mkdir(parents=True)
        content = {
            "argv": [sys.executable, "-m", "tpu_kernel", "-f", "{connection_file}"],
            "display_name": "PyTorch (TPU)",
            "language": "python",
            "interrupt_mode": "message",
            "kernel_protocol_version": "5.5",
            "metadata": {"supported_encryption": ["curve"]},
        }
        (spec / "kernel.json").write_text(json.dumps(content))
        before = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [folder, before]))
        yield NAME
        if before is None:
            del os.environ["JUPYTER_PATH"]
        else:
            os.environ["JUPYTER_PATH"] = before


@pytest.fixture(scope="session", autouse=True)
def environment_of_the_session() -> None:
    """Kernels get the environment the tests were started in, not what modules imported by tests add.

    PyTorch names a folder of caches in it, which would serve every kernel, in later runs too.
    """
    _take_back()


@pytest.fixture(autouse=True)
def environment_as_given() -> Iterator[None]:
    """The same of what a test adds when it calls the product's own code in this process."""
    yield
    _take_back()


def _take_back() -> None:
    for name in set(os.environ) - GIVEN:
        if name.startswith(("TORCH", "TPU_")):
            del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes what belongs to whoever runs the tests, or to tests that run beside it.

    That is histories, configurations, connection files, sockets, caches of programs and what cells write.
    """
    with pytest.MonkeyPatch.context() as environment, tempfile.TemporaryDirectory(prefix="tpu-") as runtime:
        environment.delenv("PYTHONSTARTUP", raising=False)
        environment.chdir(tmp_path_factory.mktemp("work"))
        environment.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        environment.setenv("TPU_KERNEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        GIVEN.add("TPU_KERNEL_CACHE")
        # Sockets lie there, whose paths must be short.
        environment.setenv("JUPYTER_RUNTIME_DIR", runtime)
        environment.setenv("XDG_RUNTIME_DIR", runtime)
        yield
    for tag in tmp_path_factory.getbasetemp().rglob("CACHEDIR.TAG"):
        shutil.rmtree(
            f"/dev/shm/torch_tpu_cache/{caches._shared_memory_name(tag.parent)}", ignore_errors=True
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Remember which tests failed."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.stash[FAILED] = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A test that failed leaves a kernel in no known state: the next one of its file has a new one."""
    if item.stash.get(FAILED, False):
        item.session._setupstate.teardown_exact(item.session)


@contextmanager
def running_kernel(
    name: str,
    *,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    arguments: list[str] | None = None,
    **settings: str,
) -> Iterator[Notebook]:
    """A kernel and a client of it, both ended afterwards. `settings` are those of its manager."""
    manager = KernelManager(kernel_name=name, **settings)
    options = {"env": {**os.environ, **(env or {})}}
    if cwd is not None:
        options["cwd"] = str(cwd)
    if arguments:
        options["extra_arguments"] = arguments
    manager.start_kernel(**options)
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE)
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def shared_kernel(kernelspec: str) -> Iterator[Notebook]:
    """One kernel for the tests of a file."""
    with running_kernel(kernelspec) as notebook:
        yield notebook


@pytest.fixture
def kernel(shared_kernel: Notebook) -> Notebook:
    """The kernel of the file, with nothing left over from the test before."""
    shared_kernel.strays.clear()
    return shared_kernel


@pytest.fixture
def panel(kernel: Notebook) -> Iterator[Panel]:
    """A page with the TPU panel open, and the kernel at rest."""
    page = Panel(kernel).open()
    page.wait()
    yield page.settle()
    page.close()


@pytest.fixture
def new_kernel(kernelspec: str) -> Iterator[Callable[..., Notebook]]:
    """Starts kernels of a test's own: `new_kernel(env=…, cwd=…, arguments=…)`."""
    open_kernels = []

    def start(**options: object) -> Notebook:
        context = running_kernel(kernelspec, **options)  # type: ignore[arg-type]
        notebook = context.__enter__()
        open_kernels.append(context)
        return notebook

    yield start
    for context in reversed(open_kernels):
        context.__exit__(None, None, None)

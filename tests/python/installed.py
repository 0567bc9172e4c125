"""What is installed beside the Python that runs the tests, started as Jupyter starts it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager
from notebook import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(sys.prefix)
LAUNCHER = PREFIX / "bin" / "tpu-kernel"


class Kernel:
    """A running kernel and a client."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    @property
    def pid(self) -> int:
        """Process id of the kernel."""
        return self.manager.provisioner.pid

    def value(self, expression: str, setup: str = "", timeout: float = 60) -> Any:
        """The value of an expression of literals, after running `setup`."""
        reply = self.client.execute_interactive(
            setup,
            store_history=False,
            user_expressions={"value": expression},
            timeout=timeout,
            output_hook=lambda message: None,
        )
        content = reply["content"]
        assert content["status"] == "ok", content
        value = content["user_expressions"]["value"]
        assert value["status"] == "ok", value
        return ast.literal_eval(value["data"]["text/plain"])


@contextmanager
def started(name: str = "pytorch-tpu", **environment: str) -> Iterator[Kernel]:
    """Start an installed kernel with further environment variables; ends it afterwards."""
    manager = KernelManager(kernel_name=name)
    manager.start_kernel(env={**os.environ, **environment})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)


def launcher(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program `tpu-kernel`."""
    return subprocess.run(
        [LAUNCHER, *arguments], check=False, capture_output=True, text=True, timeout=PATIENCE, **options
    )

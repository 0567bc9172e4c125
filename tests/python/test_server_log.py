"""A server that does not read what its kernels write to its log stops none of them."""

from __future__ import annotations

import os

from jupyter_client.manager import KernelManager

PATIENCE = 120.0


def test_a_kernel_whose_log_nobody_reads_starts_and_runs_cells(kernelspec: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    manager = KernelManager(kernel_name=kernelspec)
    # The kernel says in the log where its metrics are.
    manager.start_kernel(env={**os.environ, "TPU_KERNEL_METRICS": "0"}, stderr=writer)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        reply = client.execute_interactive("import os; os.write(2, b'below Python')", timeout=PATIENCE)
        assert reply["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        os.close(writer)
        os.close(reader)

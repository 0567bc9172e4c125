"""The `ipykernel` that notebook libraries find inside the PyTorch (TPU) kernel.

It stands before a real ipykernel in the environment, whose own objects would not be connected
to anything here. It holds what libraries look for and no more.
"""

from __future__ import annotations

from ipykernel._version import (
    __version__,
    kernel_protocol_version,
    kernel_protocol_version_info,
    version_info,
)
from ipykernel.connect import connect_qtconsole, get_connection_file, get_connection_info

__all__ = [
    "__version__",
    "connect_qtconsole",
    "get_connection_file",
    "get_connection_info",
    "kernel_protocol_version",
    "kernel_protocol_version_info",
    "version_info",
]

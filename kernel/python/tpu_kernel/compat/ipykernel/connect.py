"""Where this kernel can be reached."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tpu_kernel import _kernel

if TYPE_CHECKING:
    import subprocess


def get_connection_file(app: object = None) -> str:
    """The path of the file that says how to connect to this kernel."""
    return _kernel.connection_file()


def get_connection_info(connection_file: str | None = None, unpack: bool = False) -> str | dict[str, Any]:
    """What the connection file says: its text, or (`unpack`) a dict with the key as bytes."""
    with open(connection_file or get_connection_file(), encoding="utf-8") as file:
        text = file.read()
    if not unpack:
        return text
    info: dict[str, Any] = json.loads(text)
    info["key"] = info.get("key", "").encode()
    return info


def connect_qtconsole(
    connection_file: str | None = None, argv: list[str] | None = None
) -> subprocess.Popen[bytes]:
    """Open a Qt console on this kernel."""
    import subprocess

    program = "from qtconsole import qtconsoleapp; qtconsoleapp.main()"
    path = connection_file or get_connection_file()
    return subprocess.Popen(
        [sys.executable, "-c", program, "--existing", path, *(argv or [])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

"""In a worker process that a server forked: whose output it writes. Imported there, so it imports little."""

from __future__ import annotations

import os
from typing import Any


def write_to(*places: Any) -> None:
    """Let fd 1 and 2 be what the notebook's process sent along."""
    for place, sent in enumerate(places, start=1):
        fd = sent.detach()
        os.dup2(fd, place)
        os.close(fd)


class Output:
    """Travels with a process object, and takes effect where that is unpickled."""

    def __init__(self, fds: tuple[int, int]) -> None:
        self._fds = fds

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.reduction import DupFd

        return write_to, tuple(DupFd(fd) for fd in self._fds)

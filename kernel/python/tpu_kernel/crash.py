"""Python's part of the report of a crash: faulthandler writes the stack where the Rust half reads it.

What a notebook does with `faulthandler` still works: the file it names gets the stack too.
"""

from __future__ import annotations

import faulthandler
import os
from typing import Any

from . import _kernel

_file: Any = None


def install() -> None:
    """Enable faulthandler for the report, and keep `faulthandler` as the notebook knows it."""
    enable, register = faulthandler.enable, faulthandler.register
    stack = _kernel.crash_stack_fd()
    log = _kernel.original_fd(2)
    enable(stack, all_threads=True)
    _kernel.crash_handlers_on_top()
    os.register_at_fork(after_in_child=lambda: enable(2, all_threads=False))

    def enable_too(file: Any = None, all_threads: bool = True, **more: Any) -> None:
        """Without a file to the server's log: the notebook's own stderr is gone by then."""
        global _file
        _file = log if file is None else file
        descriptor = _file if isinstance(_file, int) else _file.fileno()
        if descriptor == 2:  # a pipe of ours
            descriptor = log
        if os.getpid() == PID:
            _kernel.crash_copy(descriptor)
        else:
            enable(descriptor, all_threads)

    def disable_too() -> bool:
        """No more to that file."""
        global _file
        was, _file = _file is not None, None
        _kernel.crash_copy(-1)
        return was

    def register_to_log(
        signum: int, file: Any = None, all_threads: bool = True, chain: bool = False, **more: Any
    ) -> None:
        register(signum, log if file is None else file, all_threads, chain, **more)

    faulthandler.enable = enable_too
    faulthandler.disable = disable_too
    faulthandler.is_enabled = lambda: _file is not None
    faulthandler.register = register_to_log


PID = os.getpid()

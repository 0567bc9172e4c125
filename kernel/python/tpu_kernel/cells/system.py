"""Run a shell command for `!cmd`, its output shown while it comes.

The command writes to a pseudo-terminal, so programs do not hold output back and show their
progress bars, and what is read from it goes through `sys.stdout`, so `%%capture` and output
widgets see it. Its standard input is empty: nobody can type into it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable

from ..threads import own

CHUNK = 65536
COLUMNS, LINES = 80, 24
GRACE_SECONDS = 2.0


def _raw_newlines(terminal: int) -> None:
    """Let `\\n` stay `\\n`."""
    attributes = termios.tcgetattr(terminal)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    termios.tcsetwinsize(terminal, (LINES, COLUMNS))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the command and all it started; insist when it does not end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
            return


def _copy(terminal: int, process: subprocess.Popen[bytes], write: Callable[[str], object]) -> None:
    """Pass on what the command writes until it ended and nothing is left."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    ended = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(terminal, select.POLLIN)
        poll.register(ended, select.POLLIN)
        alive = True
        while True:
            ready = {fd for fd, _ in poll.poll(None if alive else 0)}
            if terminal in ready:
                try:
                    data = os.read(terminal, CHUNK)
                except OSError:  # EIO: no process has the other end open
                    break
                if not data:
                    break
                write(decode(data))
            elif ended in ready:
                if not alive:
                    break
                alive = False
                poll.unregister(ended)
            elif not alive:
                break
        write(decode(b"", True))
    finally:
        os.close(ended)


def _start(command: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command, and our end of its terminal."""
    terminal, child_end = os.openpty()
    try:
        _raw_newlines(child_end)
        process = subprocess.Popen(
            [os.environ.get("SHELL") or "/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=child_end,
            stderr=child_end,
            process_group=0,
        )
    except BaseException:
        os.close(terminal)
        raise
    finally:
        os.close(child_end)
    return process, terminal


def _follow(terminal: int) -> None:
    """Show what a command left in the background writes, as output of its own cell."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    with contextlib.suppress(OSError):
        while data := os.read(terminal, CHUNK):
            sys.stdout.write(decode(data))
    os.close(terminal)


def run(command: str) -> int:
    """Run `command` in the shell; its exit status, or minus the signal that ended it.

    A command that ends with `&` is left running; what it writes later still belongs to this cell.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    process, terminal = _start(command)
    if command.rstrip().endswith("&") and not command.rstrip().endswith("&&"):
        own(
            threading.Thread(target=_follow, args=(terminal,), name="background command", daemon=True)
        ).start()
        return process.wait()
    try:
        _copy(terminal, process, sys.stdout.write)
        return process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        os.close(terminal)

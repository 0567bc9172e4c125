"""`sys.stdout`, `sys.stderr`, `input` and `getpass` of the notebook.

The streams are thin: `write` of an instance *is* the method of the Rust stream, so that
`print` costs one call. Everything else a text stream offers is here.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from .. import _kernel
from ..imports import when_imported
from ..parent import PARENT
from . import jsontext


class _Binary(io.BufferedIOBase):
    """The `buffer` of a stream: bytes in UTF-8."""

    def __init__(self, text: OutStream, stream: _kernel.Stream) -> None:
        self.raw = self
        self.name = text.name
        self.mode = "wb"
        self._text = text
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._stream.write_bytes(view.cast("B") if view.contiguous and view.nbytes else bytes(view))
        return view.nbytes

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """The notebook's streams stay open, as `sys.stdout` must."""


class OutStream(io.TextIOBase):
    """A text stream whose text becomes `stream` messages of the cell that wrote it."""

    encoding = "UTF-8"
    errors = "replace"
    newlines = None
    line_buffering = False
    write_through = True
    mode = "w"

    def __init__(self, name: str) -> None:
        """`name` is `"stdout"` or `"stderr"`."""
        stream = _kernel.Stream(name, PARENT.get)
        self.name = f"<{name}>"
        self._stream = stream
        self._binary = _Binary(self, stream)
        self.write = stream.write  # type: ignore[method-assign]
        self.flush = stream.flush  # type: ignore[method-assign]
        os.register_at_fork(after_in_child=self._become_a_file)

    def _become_a_file(self) -> None:
        """In a forked child: whole lines to the file descriptor, so that children do not mix theirs."""
        file = open(  # noqa: SIM115
            self._stream.fileno(),
            "w",
            encoding="utf-8",
            errors="backslashreplace",
            buffering=1,
            closefd=False,
        )
        self.write = file.write  # type: ignore[method-assign]
        self.flush = file.flush  # type: ignore[method-assign]

    @property
    def buffer(self) -> _Binary:
        """Where bytes go."""
        return self._binary

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        write = self.write
        for line in lines:
            write(line)

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The notebook's streams stay open: `print` must work in the next cell."""
        self.flush()

    @property
    def closed(self) -> bool:
        return False

    def detach(self) -> _Binary:  # type: ignore[override]
        """The byte stream, as programs wrap it anew; this stream goes on too."""
        self.flush()
        return self._binary

    def reconfigure(
        self,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        line_buffering: bool | None = None,
        write_through: bool | None = None,
    ) -> None:
        """Accepted for programs that expect a file; notebooks are UTF-8 and unbuffered anyway."""
        if errors is not None:
            self.errors = errors  # type: ignore[misc]
        if line_buffering is not None:
            self.line_buffering = bool(line_buffering)
        if write_through is not None:
            self.write_through = bool(write_through)

    def set_parent(self, parent: object) -> None:
        """ipykernel's streams have one; ours look at the context variable."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name!r} encoding={self.encoding!r}>"


OutStream.__module__ = "ipykernel.iostream"


def _ask(prompt: object, password: bool) -> str:
    from IPython.core.error import StdinNotImplementedError

    sys.stdout.flush()
    sys.stderr.flush()
    try:
        answer = _kernel.input_request(jsontext.scrub(str(prompt)), password, PARENT.get())
    except RuntimeError as refused:
        word = "getpass" if password else "input"
        raise StdinNotImplementedError(f"{word}() cannot ask: {refused}") from None
    if answer == "\x04":
        raise EOFError("end of input")
    return answer


def ask(prompt: object = "") -> str:
    """`input()`: ask the person at the notebook for a line."""
    return _ask(prompt, password=False)


def ask_password(prompt: object = "Password: ", stream: object = None, **_: object) -> str:
    """`getpass.getpass()`: ask the person at the notebook for a secret."""
    return _ask(prompt, password=True)


def install() -> None:
    """Make the notebook the place where Python writes and asks."""
    for original in (sys.__stdout__, sys.__stderr__):
        if isinstance(original, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                original.flush()
                original.reconfigure(line_buffering=True, errors="backslashreplace")
    sys.stdout = OutStream("stdout")
    sys.stderr = OutStream("stderr")
    builtins.input = ask

    def use_ours(getpass: ModuleType) -> None:
        getpass.getpass = ask_password  # type: ignore[attr-defined]

    when_imported("getpass", use_ours)

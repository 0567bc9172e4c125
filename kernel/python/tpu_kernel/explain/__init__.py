"""Errors in plain words, with what to do, and new names of old things. Imported when there is an error.

errors     the known errors: one table
names      old names and what they are called now: plain records
lookup     a name looked up in them
looking    what the notebook tells about an error: which variable, which line
processes  which process holds the chip
silent     what a cell says that runs, and does not do what it seems to
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: Longest text of an error that is looked through, in characters.
_MOST_TEXT = 20_000
HINT = "Hint: "
#: An error whose text has none of these is not known: nothing more is imported for it.
_PERHAPS = (
    *("torch", "Torch", "tpu", "TPU", "cuda", "CUDA", "NVIDIA", "nccl", "NCCL", "xla", "XLA", "device"),
    *("EagerMode", "STRICT", "FUSED", "DEBUG", "backend", "'mode'", "process group", "ProcessExited"),
    *("nference tensor", "not implemented for", "EventSnapshot", "forbidden callable", "undefined symbol"),
    "failed state",
)


class Advice(NamedTuple):
    """What an error means and what to do: up to three lines. `code` may be ""."""

    words: str
    cure: str
    code: str = ""

    def lines(self) -> list[str]:
        """As text under a traceback."""
        lines = [HINT + self.words, self.cure, f"    {self.code}" if self.code else ""]
        return [line for line in lines if line]


def advice(error: BaseException) -> Advice | None:
    """What is known of this error, or of what it was raised from."""
    seen = 0
    cause: BaseException | None = error
    while cause is not None and seen < 5:
        text = f"{type(cause).__name__}: {_text(cause)}"
        if any(word in text for word in _PERHAPS):
            from .errors import KNOWN
            from .looking import spot

            for known in KNOWN:
                if (found := known.pattern.search(text)) is not None:
                    return known.advice(found, cause if spot(cause) is not None else error)
        cause, seen = cause.__cause__, seen + 1
    return None


def note(error: BaseException) -> None:
    """Let what is known of an error nobody caught be shown with it."""
    notes: Any = getattr(error, "__notes__", None) or []
    if any(str(each).startswith(HINT) for each in notes):
        return
    if (found := advice(error)) is not None:
        error.add_note("\n".join(found.lines()))


def unknown(error: BaseException) -> Advice:
    """What to do about an error of which nothing is known."""
    import sys

    words = "This is not one of the errors that are known here."
    if "torch_tpu" in sys.modules and isinstance(error, RuntimeError):
        return Advice(
            words,
            "To see the line that failed on the device, and not one after it, run the cell again under:",
            "%%tpu_eager --mode debug",
        )
    return Advice(words, "Its traceback ends where it was raised; your own line is the last one of a cell.")


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except Exception:  # noqa: BLE001  an exception of somebody's own
        return ""

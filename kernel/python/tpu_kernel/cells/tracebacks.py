"""What is shown of an error beyond what IPython shows: advice, groups, and very deep tracebacks."""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

LOOP_RUNS = (
    "asyncio.run() cannot be called from a running event loop",
    "This event loop is already running",
    "Cannot run the event loop while another loop is running",
)
LOOP_ADVICE = (
    "The notebook's event loop already runs: use `await ...` in the cell instead, "
    "or run `import nest_asyncio2; nest_asyncio2.apply()` once before."
)
MAX_CONTEXTS = 100
MAX_FRAMES = 200
KEPT_FRAMES = 20
#: Of an interrupt: where it landed is of no interest, and forty frames of a compiler take seconds to show.
MAX_INTERRUPTED, KEPT_INTERRUPTED = 16, 6


def advise(error: BaseException) -> None:
    """Add what to do about an error that notebooks or the device bring about; above a full device's, show its
    card."""
    if type(error) is RuntimeError and str(error) in LOOP_RUNS and not getattr(error, "__notes__", None):
        error.add_note(LOOP_ADVICE)
    with suppress(Exception):  # an error is shown, whatever can be said of it
        if hasattr(error, "_tpu_diagnosis"):
            from ..memory import shortage

            shortage.show_card(error)
        if isinstance(error, Exception):
            from .. import explain

            explain.note(error)


def has_group(error: BaseException | None) -> bool:
    """An exception group, or an error that came while one was handled."""
    seen = 0
    while error is not None and seen < MAX_CONTEXTS:
        if isinstance(error, BaseExceptionGroup):
            return True
        error, seen = error.__context__, seen + 1
    return False


def group_lines(etype: type[BaseException], value: BaseException, tb: TracebackType | None) -> list[str]:
    """Python's own picture of a group, from the cell's frame on."""
    while tb is not None and tb.tb_frame.f_globals.get("__name__", "").startswith("IPython.core."):
        tb = tb.tb_next
    return "".join(traceback.format_exception(etype, value, tb)).splitlines()


def break_circle(error: BaseException) -> None:
    """Let the frames of an error go with it, and what they hold: tensors, and with them HBM.

    IPython's frame in the traceback holds the cell's result, which holds the error: only the garbage
    collector would find that, many errors later.
    """
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_globals.get("__name__") == "IPython.core.interactiveshell":
        with suppress(RuntimeError):  # it still runs: a cell inside a cell
            tb.tb_frame.clear()
        tb = tb.tb_next


@contextmanager
def without_circles(formatter: Any) -> Iterator[None]:
    """While a traceback is shown: what is made to show it keeps its frames no longer than that.

    A frame's description has lines, and each of them the description.
    """
    if "get_records" not in vars(formatter):
        formatter.get_records = functools.partial(_noted_records, formatter)
    before, _made.records = getattr(_made, "records", None), []
    try:
        yield
    finally:
        records, _made.records = _made.records, before
        for record in records:
            description = getattr(record, "_sd", None)
            if description is not None:
                vars(description).clear()


def _noted_records(formatter: Any, *arguments: Any, **options: Any) -> list[Any]:
    records = type(formatter).get_records(formatter, *arguments, **options)
    if getattr(_made, "records", None) is not None:
        _made.records.extend(records)
    return records


#: What this thread made to show a traceback: subshells show theirs at the same time.
_made = threading.local()


def shorten(tb: TracebackType | None, interrupted: bool = False) -> tuple[TracebackType | None, int]:
    """A traceback without the middle of a deep recursion, and how many frames were left out.

    IPython looks each of a thousand frames up among all loaded modules, which takes seconds.
    """
    most, kept = (MAX_INTERRUPTED, KEPT_INTERRUPTED) if interrupted else (MAX_FRAMES, KEPT_FRAMES)
    links = []
    while tb is not None:
        links.append(tb)
        tb = tb.tb_next
    if interrupted:  # the signal was felt in the cell's own code: the handler's frame is no news
        while len(links) > 1 and links[-1].tb_frame.f_globals.get("__name__") == f"{__package__}.interrupts":
            links.pop()
            links[-1].tb_next = None
    if len(links) <= most:
        return (links[0] if links else None), 0
    short: TracebackType | None = None
    for link in reversed(links[:kept] + links[-kept:]):
        short = TracebackType(short, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return short, len(links) - 2 * kept

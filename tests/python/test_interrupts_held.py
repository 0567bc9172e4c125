"""No interrupt is lost, and none felt twice, where a cell's own code and the kernel's meet."""

from __future__ import annotations

import _thread
import operator
import signal
import sys
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
from tpu_kernel import _kernel
from tpu_kernel.cells import interrupts


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, and what did before is there again afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_comes_while_its_handler_is_changed_is_for_the_new_one() -> None:
    felt: list[int] = []
    swap = partial(_kernel.swap_sigint, lambda number, _: felt.append(number))
    # In one call, within which Python does not look for signals: `swap_sigint` is the first that does.
    _, before = map(operator.call, (_thread.interrupt_main, swap))
    assert before is signal.default_int_handler
    assert felt == [signal.SIGINT]
    # The new one may raise it.
    signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt):
        list(map(operator.call, (_thread.interrupt_main, partial(_kernel.swap_sigint, before))))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def statements() -> None:
    """Two statements of a cell, and what the kernel does around them."""
    with interrupts.held():
        for _ in range(2):
            with interrupts.felt():
                pass


def test_an_interrupt_between_any_two_lines_of_what_holds_it_is_felt_once() -> None:
    tried: set[tuple[str, int]] = set()
    came = True

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal came
        if frame.f_code.co_filename != interrupts.__file__:
            return None
        place = frame.f_code.co_name, frame.f_lineno
        if event == "line" and not came and place not in tried:
            came = True
            tried.add(place)
            sys.settrace(None)
            _thread.interrupt_main()
        return trace

    while came:
        came = False
        felt = 0
        sys.settrace(trace)
        try:
            statements()
        except KeyboardInterrupt:
            felt += 1
        finally:
            sys.settrace(None)
        try:
            statements()
        except KeyboardInterrupt:
            felt += 1
        assert felt == came, tried
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, tried
    assert {"held", "felt", "_take", "forget"} <= {name for name, _ in tried}

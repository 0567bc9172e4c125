"""The kernel's own threads, which are nobody's business but ours."""

from __future__ import annotations

from typing import TypeVar

Thread = TypeVar("Thread")


def own(thread: Thread) -> Thread:
    """Mark a thread as the kernel's: a debugger neither shows nor stops it."""
    thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
    thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]
    return thread


def is_own(thread: object) -> bool:
    """Marked as the kernel's."""
    return getattr(thread, "is_pydev_daemon_thread", False)

"""`python -m tpu_kernel -f CONNECTION_FILE`: the kernel.

The sockets are bound before anything heavy is imported: the Rust half answers while Python
is still starting.
"""

from __future__ import annotations

import gc
import os
import sys

from . import _kernel


def split_connection_file(argv: list[str]) -> tuple[str, list[str]]:
    """The value of `-f`, and the other arguments."""
    path, rest, words = "", [], iter(argv)
    for word in words:
        if word in ("-f", "--f"):
            path = next(words, "")
        elif word.startswith(("-f=", "--f=", "--IPKernelApp.connection_file=")):
            path = word.split("=", 1)[1]
        else:
            rest.append(word)
    return path, rest


def run() -> None:
    """Bind, then start Python's half."""
    path, rest = split_connection_file(sys.argv[1:])
    if not path:
        sys.exit("tpu_kernel: needs `-f CONNECTION_FILE`; a Jupyter front end gives it")
    try:
        _kernel.start(path)
    except (OSError, ValueError) as error:
        sys.exit(f"tpu_kernel: {error}")
    # `python -m` put the working directory first, before the standard library
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    # libraries recognise a notebook by this name
    sys.argv[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compat", "ipykernel_launcher.py")
    # what starts is all kept, so looking for garbage in it is lost time; `app` switches it on again
    gc.disable()
    try:
        from .app import main

        main(rest)
    except BaseException:  # noqa: BLE001
        fail()


def fail() -> None:
    """The kernel cannot start: say why where the person who started the server looks, and end."""
    import traceback

    with open(_kernel.original_fd(2), "w", encoding="utf-8", errors="replace") as log:
        log.write("tpu_kernel: the kernel ends, because Python's half failed:\n")
        traceback.print_exc(file=log)
    _kernel.exit(1)


if __name__ == "__main__":
    run()

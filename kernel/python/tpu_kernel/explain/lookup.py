"""An old name, looked up: what it is called now."""

from __future__ import annotations

import difflib

from .names import ALL, CUDA, INSTEAD, READ_AT_IMPORT, READ_ONCE, TORCH_TPU, TORCH_XLA, Renamed

#: Words that stand for a whole table.
_TABLES = {
    "cuda": CUDA,
    "torch.cuda": CUDA,
    "torch_xla": TORCH_XLA,
    "xla": TORCH_XLA,
    "xm": TORCH_XLA,
    "torch_tpu": TORCH_TPU,
    "torch.tpu": TORCH_TPU,
}


def old_names() -> list[str]:
    """All names that are known."""
    return sorted({each.old for each in (*ALL, *_variables())} | set(_TABLES))


def look_up(name: str) -> list[Renamed]:
    """What is known of a name: itself, else all that begin or end with it; nothing for a strange one.

    Of an argument, as `device="cuda"`, its value, else its name.
    """
    argument, _, value = name.partition("(")[0].rpartition("=")
    return _of(value) or (_of(argument) if argument else [])


def _of(name: str) -> list[Renamed]:
    wanted = name.strip(" \"'.").casefold()
    if wanted in _TABLES:
        return list(_TABLES[wanted])
    spelled = [(each.old.removesuffix("()").strip(".").casefold(), each) for each in (*ALL, *_variables())]
    return (
        [each for old, each in spelled if old == wanted]
        or [each for old, each in spelled if old.startswith(f"{wanted}.")]
        or [each for old, each in spelled if wanted.startswith(f"{old}.") and "." in old]
        or [each for old, each in spelled if old.endswith(f".{wanted}") or wanted.endswith(f".{old}")]
    )


def near(name: str) -> list[str]:
    """Known names that are spelled alike."""
    return difflib.get_close_matches(name, old_names(), 2)


def _variables() -> list[Renamed]:
    """Variables that have the right name, and when they are read."""
    found = []
    for names, when in ((READ_ONCE, "when the device starts"), (READ_AT_IMPORT, "by `import torch`")):
        for name in names:
            words = f"It is read once, {when}: set it before, in the first cell or where Jupyter is started."
            if name in INSTEAD:
                words += f" In a running kernel: `{INSTEAD[name]}`."
            found.append(Renamed(name, name, words))
    return found

"""The eager modes of TorchTPU under the names of the magics. Imports torch when it is needed."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from IPython.core.error import UsageError

# The magics' word, TorchTPU's constant, what it means.
MODES = {
    "strict": ("DEFER_NEVER", "each operation is queued as it is reached"),
    "fused": ("DEFER_AND_FUSE", "operations are recorded, fused, and run when a value is needed"),
    "debug": ("DEFER_NEVER_AND_LAUNCH_BLOCKING", "each operation has ended before the next line"),
}


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """TorchTPU announces what is experimental: not for calls that are ours."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"<TorchTpu/")
        yield


def torch_tpu(magic: str) -> Any:
    """`torch.tpu`, or one line about what is missing."""
    try:
        import torch
    except ImportError:
        raise UsageError(f"{magic}: torch is not installed in this kernel's Python") from None
    if not hasattr(torch, "tpu"):
        raise UsageError(f"{magic}: torch_tpu is not loaded, so there is no TPU here; install torch_tpu")
    return torch.tpu


def current() -> str | None:
    """The word for the mode in force, TorchTPU's own name for another, None without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "tpu"):
        return None
    with quietly():
        mode = torch.tpu.eager_mode
        for word, (constant, _) in MODES.items():
            if mode == getattr(torch.tpu.EagerMode, constant):
                return word
    return getattr(mode, "name", str(mode))


def in_force() -> str | None:
    """As `current`, but cheap, and without the public name whose use TorchTPU announces: for each cell."""
    module: Any = sys.modules.get("torch_tpu._internal.execution_mode")
    if module is None:
        return None
    name = getattr(module.execution_mode_impl._get_eager_mode(), "name", "")
    return next((word for word, (constant, _) in MODES.items() if constant == name), name)


def choose(magic: str, word: str) -> None:
    """Put a mode in force until another is chosen."""
    module = torch_tpu(magic)
    with quietly():
        module.eager_mode = getattr(module.EagerMode, MODES[word][0])


@contextlib.contextmanager
def within(magic: str, word: str | None) -> Iterator[None]:
    """A mode for the length of a block, whatever happens in it. None: leave it as it is."""
    if word is None:
        yield
        return
    module = torch_tpu(magic)
    with quietly():
        context = module.set_eager_mode(getattr(module.EagerMode, MODES[word][0]))
        context.__enter__()
    try:
        yield
    finally:
        with quietly():
            context.__exit__(None, None, None)

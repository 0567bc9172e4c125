"""What a cell says that runs without an error, and does not do what it seems to do. Each is told once.

Called after a cell whose text has one of a few words: see `execute`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from . import HINT, names

_told: set[str] = set()

#: What stands in a cell, when it is of interest, and what to say.
_SAID = (
    (
        r"torch\.cuda\.is_available\(\)",
        "`torch.cuda.is_available()` is False here, so such code runs on the CPU. "
        + 'For the TPU: device = "tpu" if torch.accelerator.is_available() else "cpu"',
    ),
    (
        r"torch\.cuda\.(?:max_)?memory_(?:allocated|reserved)\(|torch\.cuda\.memory_summary\(",
        "what `torch.cuda` says of memory is 0 here. Of the TPU: torch.accelerator.memory_allocated(), "
        + "torch.accelerator.max_memory_allocated(), `%tpu_mem`",
    ),
    (
        r"autocast\(\s*(?:device_type\s*=\s*)?[\"']cuda[\"']|torch\.cuda\.amp\.autocast\(",
        'autocast for "cuda" does nothing on a TPU: torch.amp.autocast("tpu", dtype=torch.bfloat16)',
    ),
    (
        r"\bGradScaler\(",
        "`GradScaler` is of no use on a TPU: bfloat16 has the range of float32. Leave it out.",
    ),
    (
        r"cuda\.matmul\.allow_tf32\s*=",
        "`allow_tf32` does nothing on a TPU: float32 products take one bfloat16 pass; "
        + 'torch.set_float32_matmul_precision("highest") takes six',
    ),
    (
        r"\bDataParallel\(",
        "`DataParallel` uses one device here: a process has one TPU. Leave it out.",
    ),
    (
        r"[\"']tpu:[1-9]\d*[\"']",
        'a process has one TPU: "tpu:1" and the like mean the same as "tpu"',
    ),
    (
        r"^(?!.*\bwith\b).*execution_mode\.set_eager_mode\(|^(?!.*\bwith\b)\s*em\.set_eager_mode\(",
        "`set_eager_mode` does nothing outside `with`: %tpu_mode fused, or "
        + "torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE",
    ),
)
_PATTERNS = [(re.compile(pattern, re.MULTILINE), words) for pattern, words in _SAID]


def tell(code: str, at_start: dict[str, bool]) -> None:
    """Say on stderr what the cell that has ended says in vain. `at_start`: what was there before it ran."""
    for words in (*_variables(code, at_start), *_idioms(code)):
        if words not in _told:
            _told.add(words)
            print(HINT + words, file=sys.stderr)


def _idioms(code: str) -> Iterator[str]:
    if "torch_tpu" in sys.modules:
        yield from (words for pattern, words in _PATTERNS if pattern.search(code))


def _variables(code: str, at_start: dict[str, bool]) -> Iterator[str]:
    if "environ" not in code and "env " not in code and "putenv" not in code:
        return
    for name in names.NO_VARIABLES:
        if name.old in os.environ and _sets(code, name.old):
            yield f"nothing reads `{name.old}`. {_in_place(name)}"
    for name, when in (
        *((each, "device") for each in names.READ_ONCE),
        *((each, "torch") for each in names.READ_AT_IMPORT),
    ):
        if at_start[when] and name in os.environ and _sets(code, name):
            start = "the device started" if when == "device" else "torch was imported"
            instead = f" For this kernel: {names.INSTEAD[name]}." if name in names.INSTEAD else ""
            yield (
                f"`{name}` was read when {start}: set now, it does nothing.{instead} Or restart the kernel and set "
                f"it in the first cell, before `import torch`."
            )


def _in_place(name: names.Renamed) -> str:
    if not name.new:
        return name.words
    return f"The variable is called `{name.new}`, and is read once, when the device starts. {name.words}".rstrip()


def _sets(code: str, name: str) -> bool:
    """Whether the text of a cell sets a variable of the environment, as far as it can be seen."""
    quoted = rf"[\"']{name}[\"']"
    return bool(
        re.search(
            rf"environ\s*\[\s*{quoted}\s*\]\s*=(?!=)|(?:setdefault|putenv)\(\s*{quoted}|{quoted}\s*:"
            rf"|^\s*%(?:set_)?env\s+{name}[\s=]|update\([^)]*\b{name}\s*=",
            code,
            re.MULTILINE,
        )
    )


def before(modules: dict[str, Any]) -> dict[str, bool]:
    """What is there before a cell runs: PyTorch, and a device in use."""
    device = modules.get("tpu_kernel.tpu.device")
    in_use = "torch_tpu" in modules and device is not None and device.used()
    return {"torch": "torch" in modules, "device": in_use}

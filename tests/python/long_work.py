"""Work that takes long on the device, and what is said of it under its cell meanwhile."""

from __future__ import annotations

from notebook import Message, Result


def chain(layers: int) -> str:
    """Code that makes `chain(x)`, whose compile takes the longer the more layers there are."""
    return f"""
import threading, time, torch
from tpu_kernel import _kernel
sizes = [3 + 2 * (i * 7 % 23) for i in range({layers + 1})]
weights = [torch.randn(a, b).to("tpu") for a, b in zip(sizes, sizes[1:])]
x = torch.randn(5, sizes[0]).to("tpu")
@torch.compile
def chain(x):
    for w in weights:
        x = torch.softmax((x @ w).sin() + x.sum(), -1)
    return x
"""


def states(result: Result, name: str = "") -> list[Message]:
    """The line under a cell as it changed: one place, with an id that starts with `name`, shown and then updated."""
    shown = [m for m in result.messages if m["msg_type"] in ("display_data", "update_display_data")]
    found = [m for m in shown if m["content"]["transient"].get("display_id", "").startswith(name)]
    assert [m["msg_type"] for m in found] == ["display_data", *["update_display_data"] * (len(found) - 1)]
    assert len({m["content"]["transient"]["display_id"] for m in found}) == 1
    return found


def texts(found: list[Message]) -> list[str]:
    """What the line said, one after the other."""
    return [m["content"]["data"]["text/plain"] for m in found]

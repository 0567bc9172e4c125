"""The kernel's side of the fifty cells: a fresh notebook for each run, and what a run left behind.

Imported in the kernel under test. Values are compared here, so that tensors never leave it.
"""

from __future__ import annotations

import inspect
import random
import sys
from typing import Any

import numpy as np
import torch
from IPython import get_ipython
from torch import nn
from torch.nn import functional
from tpu_kernel.magics import measure

TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
"""A wrong update of a weight is off by at least the learning rate, 0.01."""

SHELL: Any = get_ipython()
X = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(0))
kept: dict[str, dict[str, Any]] = {}
counted: dict[str, measure.Counters] = {}


def network() -> nn.Module:
    """The same network whenever it is made."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).to("tpu")


def begin(cold: bool) -> None:
    """A notebook as new. `cold`: no program is known either."""
    names = SHELL.user_ns
    for name in own_names():
        del names[name]
    if cold:
        torch._dynamo.reset()
        torch.tpu._clear_cache()
        kept.clear()
    names.update(torch=torch, nn=nn, F=functional, X=X.to("tpu"), Y=Y.to("tpu"), network=network, np=np)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def mark() -> None:
    """What is counted begins here."""
    counted["start"] = measure.counters(settle=True) or measure.Counters()


def observed(mode: str, spent: tuple[str, ...]) -> tuple[str, list[str]]:
    """Programs made and run by the cell before this one, and how what it left differs from the plain run.

    `spent`: names whose graph `backward()` has used up.
    """
    now = measure.counters(settle=True)
    assert now is not None
    used = now.since(counted["start"])
    left = {name: picture(SHELL.user_ns[name], name in spent) for name in own_names()}
    number = SHELL.execution_count - 1
    left["Out"] = picture(SHELL.user_ns["Out"].get(number), False)
    wanted = kept.setdefault("plain", left)
    programs = f"{used.compiles + used.cache_hits}/{used.executions}"
    return programs, list(differences("", left, wanted))


def own_names() -> list[str]:
    """Names that somebody bound, without IPython's and these tests' own."""
    return sorted(
        name
        for name in SHELL.user_ns
        if name not in SHELL.user_ns_hidden and not name.startswith(("_i", "_k")) and not name[1:].isdigit()
    )


def picture(value: Any, spent: bool) -> Any:
    """A value as something that can be compared with that of another run."""
    if isinstance(value, torch.Tensor):
        about = (str(value.dtype), value.device.type, tuple(value.shape), spent or value.requires_grad)
        return (
            "tensor",
            about,
            value.detach().cpu().clone(),
            picture(value.grad if value.is_leaf else None, False),
        )
    if isinstance(value, nn.Module):
        tensors = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        return (type(value).__name__, value.training, picture(tensors, False))
    if isinstance(value, torch.optim.Optimizer):
        state = value.state_dict()
        for group in state["param_groups"]:
            group.pop("capturable", None)  # a compiled cell switches it on, and says so
        for members in state["state"].values():
            if isinstance(members.get("step"), torch.Tensor):
                members["step"] = members["step"].item()
        return (type(value).__name__, picture(state, False))
    if isinstance(value, dict):
        return {name: picture(member, spent) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(picture(member, spent) for member in value))
    if inspect.isroutine(value) or inspect.isclass(value):
        module = getattr(value, "__module__", "")
        source: Any = ""
        if inspect.isfunction(value) and module == "__main__":
            source = source_of(value)
        elif inspect.isclass(value) and module == "__main__":
            source = [picture(member, False) for member in vars(value).values() if inspect.isfunction(member)]
        return (type(value).__name__, module, getattr(value, "__qualname__", ""), source)
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, set, np.ndarray)):
        return value
    attributes = getattr(value, "__dict__", None)
    if type(value).__module__ == "__main__" and isinstance(attributes, dict):
        return (type(value).__name__, picture(attributes, False))
    return type(value).__name__


def source_of(function: Any) -> str:
    """Its text; those that a decorator made have none."""
    try:
        return inspect.getsource(function)
    except OSError:
        return "none"


def differences(where: str, seen: Any, wanted: Any) -> Any:
    """In words."""
    if type(seen) is not type(wanted):
        yield f"{where}: {type(seen).__name__}, not {type(wanted).__name__}"
    elif isinstance(seen, torch.Tensor):
        if seen.shape == wanted.shape and not torch.allclose(seen, wanted, equal_nan=True, **TOLERANCE):
            yield f"{where}: off by {(seen.double() - wanted.double()).abs().max().item():.3g}"
    elif isinstance(seen, dict):
        for name in seen.keys() ^ wanted.keys():
            yield f"{where}.{name}: only {'here' if name in seen else 'in the plain run'}"
        for name in seen.keys() & wanted.keys():
            yield from differences(f"{where}.{name}", seen[name], wanted[name])
    elif isinstance(seen, (tuple, list)):
        if len(seen) != len(wanted):
            yield f"{where}: {len(seen)} members, not {len(wanted)}"
        for number, (one, other) in enumerate(zip(seen, wanted, strict=False)):
            yield from differences(f"{where}[{number}]", one, other)
    elif isinstance(seen, float):
        if not np.isclose(seen, wanted, equal_nan=True, **TOLERANCE):
            yield f"{where}: {seen}, not {wanted}"
    elif isinstance(seen, np.ndarray):
        if not np.allclose(seen, wanted, **TOLERANCE):
            yield f"{where}: another array"
    elif seen != wanted:
        yield f"{where}: {seen!r}, not {wanted!r}"


sys.modules.setdefault("_k", sys.modules[__name__])

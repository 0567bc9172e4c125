"""Which functions of the user's own train: found from their code, without running anything."""

from __future__ import annotations

import dis
import sys
from types import CodeType, FunctionType
from typing import Any

from .files import is_library
from .hazards import code_names

_TRAINING = frozenset({"backward", "zero_grad"})
_BY_HAND = frozenset({"autograd", "grad", "no_grad"})


def trains(target: Any, optimizer: Any = (), depth: int = 4, owner: Any = None) -> bool:
    """Does a function of the user's own run `backward()`, clear gradients or step an optimizer, itself
    or through functions it calls? Such a function may not be traced as part of a larger program.

    `optimizer`: torch's class; `owner`: an object whose methods it may call.
    """
    owner = getattr(target, "__self__", owner)
    function = getattr(target, "__func__", target)
    function = getattr(function, "__wrapped__", function)
    if type(function) is not FunctionType or depth == 0 or _is_torch(function):
        return False
    names = _code_names(function.__code__)
    if names & _TRAINING or names >= _BY_HAND:
        return True
    called = [function.__globals__.get(name) for name in code_names(function.__code__)[0]]
    called += [*_closed_over(function), *(_attributes(owner).get(name) for name in names)]
    if "step" in names:
        parameters = function.__code__.co_varnames
        if any(isinstance(each, optimizer) for each in called) or any("opt" in name for name in parameters):
            return True
    objects = [each for each in [owner, *called] if each is not None]
    called += [method_of(each, name) for each in objects if _is_users(type(each)) for name in names]
    classes = [each for each in called if isinstance(each, type) and _is_users(each)]
    called += [each.__dict__.get("__init__") for each in classes]
    # `def fit(trainer): trainer.step()`: a method of that name of any class of the notebook
    kinds = {each if isinstance(each, type) else type(each) for each in function.__globals__.values()}
    called += [kind.__dict__.get(name) for kind in kinds if _is_users(kind) for name in names]
    return any(
        trains(each, optimizer, depth - 1, owner)
        for each in {id(it): it for it in called if it is not None and it is not target}.values()
    )


_HOST_READS = frozenset({"item", "tolist", "numpy", "cpu"})


def reads_in_loop(target: Any) -> bool:
    """Is it a function with a loop that reads values on the host, such as one that evaluates a model?
    Dynamo leaves all of it eager; it is no program, but its turns can be."""
    function = getattr(target, "__func__", target)
    if type(function) is not FunctionType or is_library(function.__code__.co_filename):
        return False
    code = function.__code__
    reads = bool(_HOST_READS & set(code.co_names)) or "print" in code_names(code)[0]
    return reads and any(each.opname.startswith("JUMP_BACKWARD") for each in dis.get_instructions(code))


def _closed_over(function: FunctionType) -> list[Any]:
    values = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue
    return values


def _attributes(owner: Any) -> dict[str, Any]:
    attributes = getattr(owner, "__dict__", None)
    return attributes if type(attributes) is dict else {}


def _is_users(kind: type) -> bool:
    """A class of the notebook, or of a file of the user's own."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" or (file is not None and not is_library(file))


def method_of(owner: Any, name: str) -> Any:
    """A method of a user's object, found without running anything of theirs."""
    for base in type(owner).__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def _is_torch(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in ("torch", "torch_tpu")


def _code_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _code_names(constant)
    return names

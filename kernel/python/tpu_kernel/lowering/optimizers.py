"""`opt.step()` inside a program: an optimizer as plain Python that Dynamo can trace through.

`torch.optim.Optimizer.step` asks Dynamo for a graph break on both sides, and Dynamo treats an
optimizer object specially: a training step would be three programs or more. A `Stepper` has the
optimizer's own methods without those wrappers and shares its state, so forward, backward and
update become one program. Optimizers not known to be right this way step eagerly.

The step counter of Adam and its kin is a CPU scalar, which no program can take: such an
optimizer is made `capturable`, torch.optim's own option for a counter on the device. It stays
so: eager steps work with it too, and moving it back would compile every such cell again.
"""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Report
    from .values import Values

# Those whose compiled step was compared with the eager one (tests/python/test_lowering_tpu.py).
_KNOWN = frozenset({"SGD", "Adam", "AdamW", "Adamax", "RMSprop"})
#: A number that changed so often is taken to change at each step.
_CHANGES = 2
_CLASSES: dict[type, type] = {}
_STEPPERS: weakref.WeakKeyDictionary[Any, Stepper]


class Stepper:
    """Base of the classes made from optimizers; holds what `step` reads."""

    param_groups: list[dict[str, Any]]
    state: Any
    defaults: dict[str, Any]

    def step(self) -> None: ...


_STEPPERS = weakref.WeakKeyDictionary()


def step(stepper: Stepper) -> None:
    """What `opt.step()` becomes in an outlined function."""
    import torch

    # Dynamo meets them here first, not as keys of `state`: whose `.grad` it would know by identity, and trace
    # anew with each new gradient.
    for group in stepper.param_groups:
        for parameter in group["params"]:
            parameter.grad  # noqa: B018
    with torch.no_grad():
        stepper.step()


def refusal(optimizer: Any) -> str:
    """Why this optimizer's step cannot go into a program; empty when it can."""
    kind = type(optimizer)
    name = kind.__name__
    if not kind.__module__.startswith("torch.optim") or name not in _KNOWN:
        return f"the step of {name} runs eagerly"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return f"{name} has step hooks"
    patched = optimizer.__dict__.get("step")
    if patched is not None and not hasattr(patched, "_wrapped_by_lr_sched"):
        return f"the step of {name} was replaced"
    for group in optimizer.param_groups:
        if group.get("differentiable") or group.get("fused"):
            return f"{name} is differentiable or fused"
    if changing := getattr(_STEPPERS.get(optimizer), "changing", ""):
        return f"`{changing}` of {name} changes at each step"
    return ""


def stepper_of(optimizer: Any, values: Values, name: str, report: Report) -> Stepper:
    """The optimizer's stepper, up to date, its state made and on the device."""
    make_capturable(optimizer, values, name, report)
    stepper = _STEPPERS.get(optimizer)
    if stepper is None:
        stepper = _class_of(type(optimizer))()
        _STEPPERS[optimizer] = stepper
        stepper.param_groups = []
        stepper._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]
    if stepper.__dict__.get("state") is not optimizer.state:
        stepper.state = optimizer.state
        stepper.defaults = optimizer.defaults
    _share_groups(stepper, optimizer, values)
    _make_state(optimizer)
    return stepper


def stepped(optimizer: Any) -> None:
    """Tell a learning-rate scheduler, which watches for it, that the optimizer has stepped."""
    if "step" in optimizer.__dict__:
        optimizer._opt_called = True


def make_capturable(optimizer: Any, values: Values, name: str, report: Report) -> None:
    """Switch `capturable` on in every group that has it and works on the device."""
    if values.home == "cpu":
        return
    for group in optimizer.param_groups:
        if group.get("capturable", True) or not group["params"]:
            continue
        if group["params"][0].device.type != values.home:
            continue
        group["capturable"] = True
        # torch.optim warns about this option in eager steps; the user did not choose it.
        optimizer._warned_capturable_if_run_uncaptured = True
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            counter = state.get("step") if state else None
            if isinstance(counter, values.tensor) and counter.device.type != values.home:
                state["step"] = counter.to(parameter.device)
        kind = type(optimizer).__name__
        report.note(f"`{name}` ({kind}) is now capturable: its step counter is on the device")


def _class_of(kind: type) -> type:
    made = _CLASSES.get(kind)
    if made is None:
        members: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            for name, member in vars(base).items():
                if inspect.isfunction(member) and not name.startswith("__"):
                    members[name] = inspect.unwrap(member)
        members.pop("zero_grad", None)
        made = _CLASSES[kind] = type(f"{kind.__name__}Step", (Stepper,), members)
    return made


def _share_groups(stepper: Stepper, optimizer: Any, values: Values) -> None:
    """The stepper's groups are the optimizer's, but for a learning rate that has changed: that
    is a tensor on the device, so that a scheduler does not compile anew at each change."""
    groups = stepper.param_groups
    if len(groups) != len(optimizer.param_groups):
        groups[:] = [dict(group) for group in optimizer.param_groups]
    for ours, theirs in zip(groups, optimizer.param_groups, strict=True):
        for key, value in theirs.items():
            mine = ours.get(key)
            if key != "lr" or not isinstance(value, (int, float)):
                if mine is not value and not (key != "params" and mine == value):
                    ours[key] = value
                    _note_change(stepper, key, mine)
            elif isinstance(mine, values.tensor):
                if stepper.__dict__["rates"][id(ours)] != value:
                    mine.fill_(value)
                    stepper.__dict__["rates"][id(ours)] = value
            elif mine != value and theirs["params"]:  # without any, nothing is stepped at that rate
                device = theirs["params"][0].device
                ours[key] = values.torch.tensor(float(value), dtype=values.torch.float32, device=device)
                stepper.__dict__.setdefault("rates", {})[id(ours)] = value


def _note_change(stepper: Stepper, key: str, before: Any) -> None:
    """Another number than the rate, as `momentum`, is built into the program: one that changes again and
    again, as under `OneCycleLR`, would be compiled each time."""
    if isinstance(before, (int, float, tuple)):
        changes = stepper.__dict__.setdefault("changes", {})
        changes[key] = changes.get(key, 0) + 1
        if changes[key] >= _CHANGES:
            stepper.__dict__["changing"] = key


def _make_state(optimizer: Any) -> None:
    """Let the optimizer make the state it would make in its first step."""
    import torch

    if len(optimizer.state) == sum(len(group["params"]) for group in optimizer.param_groups):
        return  # as after every step but the first: to look for each parameter takes longer
    missing = [
        group for group in optimizer.param_groups if any(p not in optimizer.state for p in group["params"])
    ]
    if not missing:
        return
    lists = len(inspect.signature(type(optimizer)._init_group).parameters) - 2
    with torch.no_grad():
        for group in missing:
            gradients = [parameter.grad for parameter in group["params"]]
            try:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        parameter.grad = parameter.detach()
                optimizer._init_group(group, *[[] for _ in range(lists)])
            finally:
                for parameter, gradient in zip(group["params"], gradients, strict=True):
                    parameter.grad = gradient

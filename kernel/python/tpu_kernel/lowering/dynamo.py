"""What Dynamo did while a cell ran: graphs, where they ended, frames it gave up, guards that failed.

Read from Dynamo's own books (`torch._dynamo.utils`), nothing is hooked into it. A run in which it
traced nothing costs a few look-ups.
"""

from __future__ import annotations

import re
import reprlib
import sys
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from .files import is_library, text_of


@dataclass(frozen=True)
class Spot:
    """A line of Python that is not PyTorch's own."""

    file: str
    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Trouble:
    """A place where a graph ended, or that kept a function from having one."""

    #: Outermost first. Empty where Dynamo does not say where.
    stack: tuple[Spot, ...]
    #: Dynamo's words, or the exception of a compile that failed.
    reason: str
    #: The function it is in runs eagerly as a whole.
    whole: bool = False


@dataclass(frozen=True)
class Recompile:
    """A guard that failed, so that a function was traced once more."""

    file: str
    line: int
    function: str
    guard: str
    #: What the guarded expression is now; empty where it is not known.
    now: str = ""


@dataclass
class Trace:
    """What was added to Dynamo's books."""

    graphs: int = 0
    breaks: int = 0
    troubles: list[Trouble] = field(default_factory=list)
    recompiles: list[Recompile] = field(default_factory=list)
    #: Cells whose own functions were traced from their beginning: file and first line.
    begun: set[tuple[str, int]] = field(default_factory=set)


class Mark(NamedTuple):
    """Where Dynamo's books stood."""

    frames: int
    graphs: int
    breaks: int
    reasons: int
    moment: int


#: Failed guards read so far, by the code they belong to; and those of the cell that runs.
_read: weakref.WeakKeyDictionary[CodeType, int] = weakref.WeakKeyDictionary()
_found: list[Recompile] = []
_noted: list[Trouble] = []
_left: set[str] = set()
#: How a reason begins that is not Dynamo's: the name or text of a tensor follows.
ON_CPU = "on the CPU: "
APART = "`backward()` after a graph break"
OPEN_SIZES = "sizes that are not fixed"
HIDDEN = "`backward()` in a function that is called"
HOOKED = "a hook on a gradient"
#: What Dynamo calls the rest of a function after a break.
RESUMED = "torch_dynamo_resume_in_"


def mark() -> Mark:
    """Call it before a cell runs, `since` afterwards."""
    books = _books()
    if books is None:
        return Mark(0, 0, 0, 0, 0)
    counters = books.counters
    return Mark(
        counters["frames"]["total"],
        counters["stats"]["unique_graphs"],
        sum(counters["graph_break"].values()),
        len(books.graph_break_reasons),
        time.time_ns() // 1000,
    )


def since(before: Mark) -> Trace | None:
    """What Dynamo did since `before`; None when it traced nothing."""
    now = mark()
    if now[:-1] == before[:-1]:
        return None
    books = _books()
    read_guards({})
    recompiles, _found[:] = _found[:], []
    if now.frames < before.frames:  # the cell cleared the books
        before = Mark(0, 0, 0, 0, before.moment)
    reasons = books.graph_break_reasons[before.reasons :]
    troubles = [Trouble(_users(reason.user_stack), reason.reason) for reason in reasons]
    troubles += _noted
    _noted.clear()
    begun = set()
    for metrics in books.get_compilation_metrics():
        if (metrics.start_time_us or 0) < before.moment:
            continue
        begun.add((metrics.co_filename, metrics.co_firstlineno))
        if metrics.fail_type is not None and "_Refused" not in (metrics.fail_reason or ""):
            troubles.append(_failed(metrics))
    return Trace(now.graphs - before.graphs, now.breaks - before.breaks, troubles, recompiles, begun)


def read_guards(names: dict[str, Any]) -> None:
    """Note guards that failed since the last call. `names` are the values the function is given."""
    books = _books()
    for code, failures in books.guard_failures.items():
        known = _read.get(code, 0)
        if len(failures) == known:
            continue
        _read[code] = len(failures)
        # Against each version there is, the newest first: that is the one people compare with.
        guard = failures[known if len(failures) > known else 0].partition("\n")[0]
        guard, _, place = guard.partition("  #")
        guard = notebooks(guard.partition(": ")[2].strip())
        expression = guard.partition(" == ")[0] if " == " in guard else ""
        now = _shown(expression, names)
        line, function = _line_of(place, code), code.co_name
        _found.append(Recompile(code.co_filename, line, function, guard, now))


def forget() -> None:
    """A cell begins: what other code made Dynamo trace before is not its own."""
    books = _books()
    if books is not None:
        for code, failures in books.guard_failures.items():
            _read[code] = len(failures)
    _found.clear()
    _noted.clear()


def keep_names(namespace: dict[str, Any]) -> None:
    """Remember the names that Dynamo's code looks up in the notebook."""
    _left.update(name for name in namespace if name.startswith("__import_"))


def forget_without(namespace: dict[str, Any]) -> None:
    """Where `%reset` took them from the notebook, nothing that Dynamo made can run: let it begin anew."""
    if not _left <= namespace.keys():
        sys.modules["torch._dynamo"].reset()
        _left.clear()


def note(trouble: Trouble) -> None:
    """Add what the backend found to what Dynamo tells."""
    _noted.append(trouble)


def last_noted() -> Trouble | None:
    return _noted.pop() if _noted else None


def apart(code: CodeType, line: int, reason: str = APART) -> Trouble:
    """A `backward()` that must not be traced, or a function that cannot be compiled."""
    file = code.co_filename
    return Trouble((Spot(file, line, code.co_name, text_of(file, line)),), reason, whole=reason != APART)


def has_open_sizes(inputs: Any) -> bool:
    """Is a dimension of an input without a fixed size? Dynamo then gives the size as an input too."""
    import torch

    return any(isinstance(each, torch.SymInt) for each in inputs)


def trouble_of(error: BaseException, file: str) -> Trouble:
    """An exception of Dynamo's, or of a compile, as it ends the trace of a cell's function."""
    stack = _users(getattr(error, "real_stack", None) or ())
    message = getattr(error, "msg", None)
    if message is None or "Explanation:" not in message:
        inner = getattr(error, "inner_exception", None) or error
        message = f"{type(inner).__name__}: {message or inner}"
    return Trouble(stack or (Spot(file, 0, "<module>", ""),), message, whole=not stack)


def continues_gradients(graph: Any, function: str) -> bool:
    """Is this the rest of `function`, with inputs whose gradients come from before it?"""
    stacks = [spots(node.stack_trace) for node in graph.graph.nodes if node.stack_trace]
    if stacks and not any(stack and plain(stack[0].function) == function for stack in stacks):
        return False
    values = [node.meta.get("example_value") for node in graph.graph.find_nodes(op="placeholder")]
    return any(getattr(v, "requires_grad", False) and not v.is_leaf for v in values)


def notebooks(expression: str) -> str:
    """An expression without the way Dynamo takes to the notebook's names."""
    return re.sub(r"(?:G\[')?__import___main__(?:'\])?\.", "", expression)


def plain(function: str) -> str:
    """The function a part of which Dynamo resumed."""
    return function.removeprefix(RESUMED).rpartition("_at_")[0] if function.startswith(RESUMED) else function


def hides_backward(graph: Any) -> bool:
    """Did Dynamo trace a `backward()`, which adds to `.grad`?"""
    import torch

    nodes = graph.graph.nodes
    made = [n for n in nodes if n.target is torch.autograd.grad]
    parts = {user for n in made for user in n.users}
    added = any(n.target == "copy_" and parts & set(n.all_input_nodes) for n in nodes)
    return added or (
        bool(made) and any(_name_of(n).endswith(".grad") for n in nodes if n.op == "placeholder")
    )


def _name_of(node: Any) -> str:
    source = getattr(node, "_dynamo_source", None)
    name = source.name if source is not None else ""
    return str(name() if callable(name) else name)


def on_cpu(graph: Any) -> Trouble | None:
    """The first tensor on the CPU in a graph that works on another device too."""
    import torch

    left, kinds = None, set()
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            kinds.add(value.device.type)
            if value.device.type == "cpu" and left is None:
                left = node
    if left is None or kinds == {"cpu"}:
        return None
    stack = spots(left.stack_trace or next((n.stack_trace for n in left.users if n.stack_trace), ""))
    name = _name_of(left)
    if not name or name.startswith("random_value_"):
        name = stack[-1].text if stack else left.name
    return Trouble(_users_spots(stack), f"{ON_CPU}{notebooks(name)}")


def _books() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _failed(metrics: Any) -> Trouble:
    reason = metrics.fail_reason or ""
    if metrics.fail_type not in ("Unsupported", "UserError"):
        reason = f"{metrics.fail_type}: {reason}"
    function = metrics.co_name or ""
    file, line = metrics.co_filename or "", metrics.co_firstlineno or 0
    where, at = metrics.fail_user_frame_filename, metrics.fail_user_frame_lineno
    if not where or not at:
        return Trouble((Spot(file, line, function, ""),), reason, whole=True)
    spot = Spot(where, at, function if where == file else "", text_of(where, at))
    return Trouble((spot,) if where == file else (Spot(file, line, function, ""), spot), reason, whole=True)


def _users(stack: Iterable[Any]) -> tuple[Spot, ...]:
    """The frames of a stack up to the last one that is not of a library."""
    return _users_spots([Spot(f.filename, f.lineno or 0, f.name, (f.line or "").strip()) for f in stack])


def _users_spots(spots: list[Spot]) -> tuple[Spot, ...]:
    last = max((i for i, spot in enumerate(spots) if not is_library(spot.file)), default=-1)
    return tuple(spots[: last + 1] or spots)


def spots(stack: str) -> list[Spot]:
    """A stack that torch.fx keeps as text."""
    found = re.findall(r'File "(.+?)", line (\d+), in (\S+)(?:, code: |\n\s*)([^\n]*)', stack)
    return [Spot(file, int(line), function, text.strip()) for file, line, function, text in found]


def _line_of(place: str, code: CodeType) -> int:
    """The line in `w = x * n  # cell.py:2 in <module>`, where it is of the function itself."""
    _, _, where = place.rpartition("# ")
    number = where.partition(" in ")[0].rpartition(":")[2]
    inside = where.endswith(f" in {code.co_name}")
    return int(number) if inside and number.isdigit() else code.co_firstlineno


def _shown(expression: str, names: dict[str, Any]) -> str:
    """A number, a text or a truth value that a plain name stands for."""
    name = expression[3:-2] if expression.startswith("G['") else expression
    value = names.get(name) if name.isidentifier() else None
    return reprlib.repr(value) if isinstance(value, (bool, int, float, str)) else ""

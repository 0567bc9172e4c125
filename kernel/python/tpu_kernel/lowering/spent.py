"""What `backward()` has used up is handed out of a program without its graph; all else keeps it.

A program that runs `backward()` can hand out no tensor whose graph that used up. Which ones these are
only the traced program tells: `d_loss(real, fake)` may use `fake.detach()`, and `fake` is then to have
its graph still. So `backward()` is traced as if it used up nothing, and `without_spent` takes the graph
from the results that hang on one through which it goes.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .dynamo import Spot, plain, spots
from .gradients import method_call, spends

if TYPE_CHECKING:
    from .outline import Outlined

#: Whether it is traced for a program; run as Python `backward()` is what it was.
TRACED = "_tpu_traced"


def noting(statement: ast.stmt) -> ast.stmt:
    """A statement that computes gradients, keeping the graph while it is traced; another as it is."""
    if spends(statement) is None:
        return statement
    statement = copy.deepcopy(statement)
    call: Any = method_call(statement, "backward") or statement.value  # type: ignore[attr-defined]
    if len(call.args) <= 3:
        kept = ast.keyword("retain_graph", ast.Call(ast.Name(TRACED, ast.Load()), [], []))
        call.keywords.append(ast.fix_missing_locations(ast.copy_location(kept, call)))
    return statement


def without_spent(graph: Any, outlined: Outlined) -> bool:
    """Take their graphs from the results of a traced program through which `backward()` has gone. False
    where it goes through one twice: that is an error, and Python's to raise."""
    import torch

    calls = [
        node
        for node in graph.graph.nodes
        if node.target is torch.autograd.grad and _is_of(outlined, spots(node.stack_trace or ""))
    ]
    used: set[Any] = set()
    for call in calls:
        wanted = {each.grad_fn for each in _values(call.args[1:2])}
        gone_through = _reached(_values(call.args[:1]), wanted)
        if gone_through & used:
            return False
        used |= gone_through
    if not used:
        return True
    output = graph.graph.output_node()
    bare: dict[Any, Any] = {}

    def given(node: Any) -> Any:
        if node not in bare:
            bare[node] = node
            if _reached(_values([node])) & used:
                with graph.graph.inserting_before(output):
                    bare[node] = graph.graph.call_method("detach", (node,))
        return bare[node]

    output.args = torch.fx.map_arg(output.args, given)
    graph.recompile()
    return True


def are_hooked(inputs: Iterable[Any]) -> bool:
    """Has a parameter a hook that `backward()` is to call? A program would pass over it."""
    return any(
        getattr(each, "_backward_hooks", None) or getattr(each, "_post_accumulate_grad_hooks", None)
        for each in inputs
    )


def _is_of(outlined: Outlined, stack: list[Spot]) -> bool:
    """Is it made by a statement of the function's own, not by one that it calls?"""
    code = outlined.function.__code__
    where = stack[-1] if stack else None
    return (
        where is not None
        and where.line in outlined.spending
        and (where.file, plain(where.function)) == (code.co_filename, code.co_name)
    )


def _values(nodes: Iterable[Any]) -> list[Any]:
    """The tensors that stood for nodes, or lists of them, while they were traced."""
    found = []
    for node in nodes:
        found += _values(node) if isinstance(node, (list, tuple)) else [node.meta.get("example_value")]
    return found


def _reached(tensors: Iterable[Any], ends: Iterable[Any] = ()) -> set[Any]:
    """The steps of the graphs of tensors, up to `ends` and without those that only add to a leaf."""
    pending = [getattr(each, "grad_fn", None) for each in tensors]
    reached: set[Any] = set()
    seen = {None, *ends}
    while pending:
        step = pending.pop()
        if step not in seen:
            seen.add(step)
            pending += [inner for inner, _ in step.next_functions]
            if step.name() != "torch::autograd::AccumulateGrad":
                reached.add(step)
    return reached

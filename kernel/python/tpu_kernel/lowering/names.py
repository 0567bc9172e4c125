"""What one statement reads, binds and may not do when it leaves module scope.

Owns the static half of the lowering: pure functions over syntax trees, no torch, no notebook.
A statement with an `obstacle` always stays module code; one without may be outlined when the
run-time half (`classify`) finds that it works on the device.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from .gradients import clears_by_hand, stores_gradient, trains_inside

# Names whose meaning depends on the frame or on the notebook's namespace as a whole.
SCOPE_READERS = frozenset(
    {"exec", "eval", "compile", "locals", "globals", "vars", "dir", "get_ipython", "super", "__import__"}
)
# What may run code that is no part of the cell, and so make functions.
CODE_RUNNERS = frozenset({"exec", "eval", "compile", "get_ipython", "__import__"})
HOST_CALLS = {
    "print": "prints",
    "display": "displays",
    "input": "asks for input",
    "breakpoint": "enters the debugger",
    "open": "opens a file",
    "float": "`float()` needs a host value",
    "int": "`int()` needs a host value",
    "bool": "`bool()` needs a host value",
    "str": "`str()` needs a host value",
    "repr": "`repr()` needs a host value",
    "format": "`format()` needs a host value",
    "next": "takes from an iterator",
    "iter": "makes an iterator",
    "id": "needs the object's identity",
    "hash": "needs the object's identity",
    "setattr": "sets an attribute by name",
    "delattr": "deletes an attribute by name",
}
HOST_METHODS = {
    "item": "`.item()` needs a host value",
    "tolist": "`.tolist()` needs a host value",
    "numpy": "`.numpy()` needs a host value",
    "cpu": "`.cpu()` copies to the host",
    "to": "`.to()` moves data",
    "tpu": "`.tpu()` moves data",
    "cuda": "`.cuda()` moves data",
    "requires_grad_": "`.requires_grad_()` marks a leaf",
    "register_hook": "registers a hook",
    "retain_grad": "`.retain_grad()` marks a tensor",
    "share_memory_": "moves data to shared memory",
    "pin_memory": "moves data to pinned memory",
}
# Builtins that use up a generator before they return.
CONSUMERS = frozenset({"sum", "max", "min", "any", "all", "tuple", "list", "set", "dict", "sorted"})


@dataclass
class Names:
    """Names of one statement, as module scope sees them."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    # Bound on some paths only (inside a loop that may run zero times).
    maybe: set[str] = field(default_factory=set)
    obstacle: str | None = None


def is_simple(statement: ast.stmt) -> bool:
    """May stand in a run: an expression, an assignment, or a block that can be outlined whole."""
    if isinstance(statement, (ast.With, ast.For)):
        if names_of(statement).obstacle is not None:
            return False
        return clears_by_hand(statement) or not (stores_gradient(statement) or trains_inside(statement))
    if isinstance(statement, ast.Expr):
        # IPython runs a string on its own as a module, whose docstring it then is.
        return not isinstance(statement.value, ast.Constant)
    return isinstance(statement, (ast.Assign, ast.AugAssign))


def names_of(statement: ast.stmt) -> Names:
    """Names of one statement; `obstacle` says in plain words why it cannot leave module scope."""
    names = Names()
    _statement(statement, names)
    names.maybe -= names.writes
    return names


def _statement(node: ast.stmt, names: Names) -> None:
    match node:
        case ast.Expr(value=value):
            _expression(value, names)
        case ast.Assign(targets=targets, value=value):
            _expression(value, names)
            for target in targets:
                _target(target, names)
        case ast.AugAssign(target=target, value=value):
            _expression(value, names)
            if isinstance(target, ast.Name):
                names.reads.add(target.id)
            _target(target, names)
        case ast.With(items=items, body=body) if all(changes_mode(item) for item in items):
            for item in items:
                _expression(item.context_expr, names)
            _block(body, names)
        case ast.For(target=target, iter=iterator, body=body, orelse=[]) if walks_parameters(iterator):
            _expression(iterator, names)
            inner = Names()
            _target(target, inner)
            _block(body, inner)
            if inner.obstacle:
                _refuse(names, inner.obstacle)
            names.reads |= inner.reads
            names.maybe |= inner.writes | inner.maybe
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            _refuse(names, "defines a function")
        case ast.ClassDef():
            _refuse(names, "defines a class")
        case ast.Import() | ast.ImportFrom():
            _refuse(names, "imports")
        case ast.AnnAssign():
            _refuse(names, "is an annotation")
        case ast.Delete():
            _refuse(names, "deletes a name")
        case ast.Global():
            _refuse(names, "declares a global")
        case ast.For() | ast.While():
            _refuse(names, "the loop itself is Python")
        case ast.With():
            _refuse(names, "the context manager is Python")
        case ast.If() | ast.Match():
            _refuse(names, "the branch itself is Python")
        case _:
            _refuse(names, "is control flow")


def changes_mode(item: ast.withitem) -> bool:
    """`torch.no_grad()`, `torch.enable_grad()`, `torch.autocast(...)`: the contexts that go into a program."""
    call = item.context_expr
    if item.optional_vars is not None or not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "autocast":
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        return all(isinstance(each, (ast.Constant, ast.Name, ast.Attribute)) for each in given)
    return name in {"no_grad", "enable_grad"} and not call.args and not call.keywords


# What asks a tensor for something other than its values.
_ASKS_NO_VALUE = frozenset(
    {
        "shape",
        "ndim",
        "dtype",
        "device",
        "size",
        "numel",
        "dim",
        "requires_grad",
        "grad",
        "is_leaf",
        "data_ptr",
    }
)
_NO_VALUE_CALLS = frozenset({"len", "isinstance", "hasattr", "type", "callable", "id"})


def decides_on(test: ast.expr) -> set[str]:
    """Names whose values a condition depends on."""
    match test:
        case ast.Name(id=name):
            return {name}
        case ast.Attribute(attr=attribute) if attribute in _ASKS_NO_VALUE:
            return set()
        case ast.Call(func=ast.Name(id=name)) if name in _NO_VALUE_CALLS:
            return set()
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return set()
    found = (decides_on(child) for child in ast.iter_child_nodes(test) if isinstance(child, ast.expr))
    return set().union(*found)


_WALKS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})


def walks_parameters(iterator: ast.expr) -> bool:
    """`for p in model.parameters()` and the like: short, fixed, unrolled into the program."""
    return walked(iterator) is not None


def walked(iterator: ast.expr) -> ast.expr | None:
    """The module whose parameters a loop goes through, by itself or in a `zip`."""
    if not isinstance(iterator, ast.Call):
        return None
    function = iterator.func
    if isinstance(function, ast.Name) and function.id == "zip" and not iterator.keywords:
        return next((found for each in iterator.args if (found := walked(each)) is not None), None)
    if isinstance(function, ast.Attribute) and function.attr in _WALKS:
        return function.value
    return None


def counted_name(statement: ast.stmt) -> str | None:
    """`self.count` of `self.count += 1`, `self.sums` of `self.sums["loss"] += 1`."""
    target = statement.target if isinstance(statement, ast.AugAssign) else None
    while isinstance(target, ast.Subscript):
        target = target.value
    if not isinstance(target, ast.Attribute):
        return None
    owner = target.value
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return ast.unparse(target) if isinstance(owner, ast.Name) else None


def _block(body: list[ast.stmt], names: Names) -> None:
    for statement in body:
        inner = Names()
        _statement(statement, inner)
        if inner.obstacle:
            _refuse(names, inner.obstacle)
        if inner.reads & names.maybe:
            _refuse(names, "reads a name that may not be bound")
        # What the block itself bound for certain is no read of the outside.
        names.reads |= inner.reads - names.writes
        names.writes |= inner.writes
        names.maybe |= inner.maybe


def _target(target: ast.expr, names: Names) -> None:
    match target:
        case ast.Name(id=name):
            names.writes.add(name)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                _target(element, names)
        case ast.Starred(value=value):
            _target(value, names)
        case ast.Attribute(value=value):
            _expression(value, names)
        case ast.Subscript(value=value, slice=index):
            _expression(value, names)
            _expression(index, names)


def _expression(node: ast.expr, names: Names, hidden: frozenset[str] = frozenset()) -> None:
    """Adds the free names of an expression; `hidden` are variables of enclosing comprehensions."""
    match node:
        case ast.Name(id=name):
            if name in SCOPE_READERS and name not in hidden:
                _refuse(names, f"`{name}` reaches the notebook's names")
            elif name not in hidden:
                names.reads.add(name)
            return
        case ast.Lambda():
            _refuse(names, "a lambda keeps the notebook's names")
        case ast.NamedExpr():
            _refuse(names, "`:=` binds a name inside an expression")
        case ast.Await() | ast.Yield() | ast.YieldFrom():
            _refuse(names, "waits")
        case ast.JoinedStr():
            _refuse(names, "formats text")
        case ast.BoolOp() | ast.IfExp() | ast.UnaryOp(op=ast.Not()):
            _refuse(names, "decides on a host value")
        case ast.Compare(ops=ops):
            if len(ops) > 1 or isinstance(ops[0], (ast.In, ast.NotIn)):
                _refuse(names, "decides on a host value")
        case ast.Call(func=ast.Name(id=name), args=arguments):
            if name in HOST_CALLS:
                _refuse(names, HOST_CALLS[name])
            if name in CONSUMERS and len(arguments) == 1 and isinstance(arguments[0], ast.GeneratorExp):
                names.reads.add(name)
                _comprehension(arguments[0], names, hidden)
                for keyword in node.keywords:
                    _expression(keyword.value, names, hidden)
                return
        case ast.Call(func=ast.Attribute(attr=method)) if method in HOST_METHODS:
            _refuse(names, HOST_METHODS[method])
        case ast.GeneratorExp():
            _refuse(names, "a generator keeps the notebook's names")
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            _comprehension(node, names, hidden)
            return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            _expression(child, names, hidden)
        elif isinstance(child, ast.keyword):
            _expression(child.value, names, hidden)


def _comprehension(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, names: Names, hidden: frozenset[str]
) -> None:
    for generator in node.generators:
        _expression(generator.iter, names, hidden)
        if generator.is_async:
            _refuse(names, "waits")
        hidden |= {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
        for condition in generator.ifs:
            _expression(condition, names, hidden)
    for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
        _expression(part, names, hidden)


def _refuse(names: Names, why: str) -> None:
    names.obstacle = names.obstacle or why

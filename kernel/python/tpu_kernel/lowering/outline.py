"""Builds and calls the functions that runs of statements are outlined into.

A function's parameters are the names it reads and the names it may or may not bind; it returns
the values it bound. When it is stopped by an exception, what it had bound so far is read off
its frames, so that the notebook sees every assignment that happened.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from .gradients import runs_backward, stepped_name
from .hazards import code_names
from .optimizers import step
from .spent import TRACED, noting
from .views import Slices

Compiler = Callable[[ast.AST, str, str], CodeType]
_RESULT, _STEP, _STEPPER = "_tpu_result", "_tpu_step", "_tpu_stepper_"


class _Unbound:
    """Stands for a name that has no value (yet)."""


UNBOUND = _Unbound()


@dataclass
class Outlined:
    """One outlined function with what it needs and what it gives."""

    function: FunctionType
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    lines: tuple[int, ...]
    returns: bool
    # Names it looks up in the notebook: functions, modules, classes.
    tools: tuple[str, ...] = ()
    # Names of the optimizers it steps; their steppers are its last parameters.
    optimizers: tuple[str, ...] = ()
    # The line of its `backward()`; 0 without one.
    backward: int = 0
    # All lines of statements that compute gradients.
    spending: tuple[int, ...] = ()
    call: Callable[..., Any] | None = None
    # Counted by the backend wrapper: programs captured from this function, and calls of them.
    graphs: int = 0
    executed: int = 0

    def run(self, namespace: dict[str, Any], steppers: list[Any] | None = None) -> Any:
        """Call it on the notebook and write back what it bound; the value of a last expression."""
        assert self.call is not None
        torch = sys.modules.get("torch")
        is_traced = None if torch is None else torch.compiler.is_compiling
        arguments = [namespace.get(name, getattr(builtins, name, UNBOUND)) for name in self.parameters]
        slices = Slices(arguments)
        own = self.function.__globals__
        for name in self.tools:
            if name in namespace:
                own[name] = namespace[name]
        try:
            values = self.call(*arguments, step, is_traced, *(steppers or ()))
        except BaseException as error:
            self._keep_bindings(error.__traceback__, namespace, slices)
            raise
        finally:
            slices.settle()
            for name in self.tools:
                own.pop(name, None)  # what the notebook deletes is gone
        for name, value in zip(self.outputs, values, strict=False):
            if value is not UNBOUND:
                namespace[name] = slices.result(value)
        return slices.result(values[-1]) if self.returns else None

    def _keep_bindings(
        self, traceback: TracebackType | None, namespace: dict[str, Any], slices: Slices
    ) -> None:
        code = self.function.__code__
        outputs = set(self.outputs)
        while traceback is not None:
            frame = traceback.tb_frame
            if belongs(frame, code):
                for name, value in frame.f_locals.items():
                    if name in outputs and value is not UNBOUND:
                        namespace[name] = slices.result(value)
            traceback = traceback.tb_next


def belongs(frame: FrameType, code: CodeType) -> bool:
    """Is this the outlined function, or the rest of it after a graph break?"""
    running = frame.f_code
    return running.co_filename == code.co_filename and (
        running is code
        or (running.co_name == code.co_name and running.co_firstlineno == code.co_firstlineno)
        or running.co_name.startswith("torch_dynamo_resume_in_")
    )


def outline(
    statements: list[ast.stmt],
    parameters: tuple[str, ...],
    outputs: tuple[str, ...],
    namespace: dict[str, Any],
    filename: str,
    compiler: Compiler,
    returns: bool,
    optimizers: frozenset[str] = frozenset(),
    named: str = "<module>",
) -> Outlined:
    """The statements as a function over `namespace`. `returns`: the last one's value is wanted;
    `optimizers`: names whose plain `step()` is to go into the program; `named`: what tracebacks call it."""
    stepping = tuple(sorted({stepped_name(s) or "" for s in statements} & optimizers))
    body = [_step_call(s) if stepped_name(s) in stepping else noting(s) for s in statements]
    last = body[-1]
    place = {
        "lineno": last.lineno,
        "col_offset": last.col_offset,
        "end_lineno": last.end_lineno,
        "end_col_offset": last.end_col_offset,
    }

    returned: list[ast.expr] = [ast.Name(name, ast.Load(), **place) for name in outputs]
    if returns:
        assert isinstance(last, ast.Expr)
        body[-1] = ast.Assign([ast.Name(_RESULT, ast.Store(), **place)], last.value, **place)
        returned.append(ast.Name(_RESULT, ast.Load(), **place))
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body.insert(0, ast.Pass(**place))  # a string here is no docstring
    body.append(ast.Return(ast.Tuple(returned, ast.Load(), **place), **place))
    arguments = ast.arguments(
        posonlyargs=[],
        args=[
            ast.arg(name, **place)
            for name in (*parameters, _STEP, TRACED, *(stepper_name(name) for name in stepping))
        ],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    extra = {"type_params": []} if hasattr(ast, "TypeAlias") else {}
    first = {**place, "lineno": statements[0].lineno, "col_offset": 0}
    definition = ast.FunctionDef("_tpu_run", arguments, body, [], None, None, **extra, **first)
    module = compiler(ast.Module([definition], []), filename, "exec")
    code = next(constant for constant in module.co_consts if isinstance(constant, CodeType))
    code = code.replace(co_name=named, co_qualname=named)
    lines = _lines(statements)
    # Dynamo writes names of its own into a function's globals: those are not the notebook's, which it
    # would fill, and which `%reset` empties.
    own = {"__name__": namespace.get("__name__", "__main__"), "__builtins__": builtins}
    tools = tuple(sorted(code_names(code)[0]))
    backward = [s for s in statements if runs_backward(s)]
    first_backward = backward[0].lineno if backward else 0
    function = FunctionType(code, own)
    return Outlined(
        function, parameters, outputs, lines, returns, tools, stepping, first_backward, _lines(backward)
    )


def _lines(statements: list[ast.stmt]) -> tuple[int, ...]:
    return tuple(n for each in statements for n in range(each.lineno, (each.end_lineno or 0) + 1))


def stepper_name(optimizer: str) -> str:
    return _STEPPER + optimizer.replace(".", "_of_")


def _step_call(statement: ast.stmt) -> ast.stmt:
    name = stepper_name(stepped_name(statement) or "")
    call = ast.Expr(ast.Call(ast.Name(_STEP, ast.Load()), [ast.Name(name, ast.Load())], []))
    return ast.fix_missing_locations(ast.copy_location(call, statement))

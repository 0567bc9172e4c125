"""How an outlined function is compiled and called: through `torch.compile`, TorchTPU's backend.

Imports torch only when a cell that already has it is run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from .classify import Classifier, Verdict
from .optimizers import stepped, stepper_of
from .outline import Outlined
from .values import Values, device_type, torch_module

if TYPE_CHECKING:
    from .cell import LoweredCell


class _Fallbacks(logging.Filter):
    """Keeps what Dynamo logs about falling back to eager out of the cell's output: the card tells
    it in one line. Logs somebody asked for (`TORCH_LOGS`) pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        return hasattr(record, "artifact_name") or not record.name.startswith(_TALKATIVE)


_TALKATIVE = tuple(
    f"torch.{part}" for part in ("_dynamo", "_functorch", "_guards", "_inductor", "_logging", "_subclasses")
)


_NO_PROGRAM = "PyTorch's compiler made no program of it"
_loggers: tuple[int, list[logging.Logger]] = (0, [])


def _loggers_of_torch() -> list[logging.Logger]:
    """There are hundreds of loggers, so they are gone through only when there are more."""
    global _loggers
    known = logging.root.manager.loggerDict
    if len(known) != _loggers[0]:
        loggers = [it for it in list(known.values()) if isinstance(it, logging.Logger)]
        _loggers = len(known), [it for it in loggers if it.name.startswith("torch")]
    return _loggers[1]


#: The function that is called now, and perhaps compiled for it.
running: Outlined | None = None
#: While a cell is profiled: told the lines of a function that was called, and how many programs it ran.
watch: Callable[[tuple[int, ...], int], None] | None = None


class TorchBackend:
    """`torch.compile` with static shapes; a failure to compile runs that part eagerly."""

    def values(self) -> Values:
        return Values(device_type())

    def classifier(self, values: Values, namespace: dict[str, Any]) -> Classifier:
        return Classifier(values, namespace)

    @contextlib.contextmanager
    def session(self, cell: LoweredCell) -> Iterator[None]:
        """Around one run of a cell."""
        if cell.values.torch is None and torch_module() is not None:
            cell.values = self.values()
            cell.classifier = self.classifier(cell.values, cell.namespace)
        handlers = {handler for logger in _loggers_of_torch() for handler in logger.handlers}
        quiet = _Fallbacks()
        for handler in handlers:
            handler.addFilter(quiet)
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(quiet)

    def compile(self, outlined: Outlined) -> Callable[..., Any]:
        torch = torch_module()
        inner = _default_backend()

        def backend(graph: Any, inputs: Any, **options: Any) -> Any:
            outlined.graphs += 1
            program = inner(graph, inputs, **options)

            def counted(*arguments: Any) -> Any:
                outlined.executed += 1
                return program(*arguments)

            return counted

        return torch.compile(outlined.function, backend=backend, dynamic=False)

    def call(self, cell: LoweredCell, outlined: Outlined) -> Any:
        import torch._dynamo as dynamo

        global running
        report = cell.report
        optimizers = [cell.namespace[name] for name in outlined.optimizers]
        steppers = [
            stepper_of(optimizer, cell.values, name, report)
            for name, optimizer in zip(outlined.optimizers, optimizers, strict=True)
        ]
        graphs, executed = outlined.graphs, outlined.executed
        before = dynamo.config.suppress_errors
        dynamo.config.suppress_errors = True
        running = outlined
        try:
            value = outlined.run(cell.namespace, steppers)
            for optimizer in optimizers:
                stepped(optimizer)
            return value
        except BaseException:
            # What Dynamo learnt from a run that failed is not kept.
            _renew(outlined)
            outlined.call = self.compile(outlined)
            raise
        finally:
            running = None
            dynamo.config.suppress_errors = before
            report.graphs += outlined.graphs - graphs
            report.executed += outlined.executed - executed
            if watch is not None:
                watch(outlined.lines, outlined.executed - executed)
            if outlined.executed > executed:
                report.compiled.update(outlined.lines)
            else:
                limit = dynamo.config.recompile_limit
                full = outlined.graphs >= limit
                why = f"PyTorch compiles for {limit} shapes at most" if full else _NO_PROGRAM
                report.ran_eagerly(outlined.lines, why)


class EagerBackend(TorchBackend):
    """Outlines nothing: the cell is run as it is."""

    def classifier(self, values: Values, namespace: dict[str, Any]) -> Classifier:
        return _NothingIsDeviceWork(values, namespace)

    def session(self, cell: LoweredCell) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class _NothingIsDeviceWork(Classifier):
    outlines = False

    def judge(self, *_: Any) -> Verdict:
        return Verdict(False)


def _renew(outlined: Outlined) -> None:
    """Give the function a code object of its own: Dynamo keeps what it knows with the code."""
    code: CodeType = outlined.function.__code__
    outlined.function.__code__ = code.replace()


def _default_backend() -> Callable[..., Any]:
    """TorchTPU's choice (TPU when an input is there), or PyTorch's own plain one without it."""
    import sys

    loader = sys.modules.get("torch_tpu._loader")
    chosen = getattr(loader, "_default_backend_selector", None)
    if chosen is None:
        from torch._dynamo.backends.registry import lookup_backend

        chosen = lookup_backend("aot_eager")
    return chosen

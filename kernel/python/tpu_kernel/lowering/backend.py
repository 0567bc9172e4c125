"""How an outlined function is compiled and called: through `torch.compile`, TorchTPU's backend.

Imports torch only when a cell that already has it is run.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from . import dynamo as books
from .causes import is_error
from .classify import Classifier, Verdict
from .errors import NotWhole
from .optimizers import stepped, stepper_of
from .outline import Outlined
from .report import NO_PROGRAM
from .spent import are_hooked, without_spent
from .values import Values, device_type, torch_module

if TYPE_CHECKING:
    from .body import Body
    from .cell import LoweredCell


class _Fallbacks(logging.Filter):
    """Keeps what Dynamo logs about falling back to eager out of the cell's output: the card tells
    it in one line. Logs somebody asked for (`TORCH_LOGS`) pass.

    Entered for the time in which it does. It stays on the handlers: to put it on and off costs a cell
    more than to ask it.
    """

    _entered = 0

    def forget(self) -> None:
        """Nothing is running: what an interrupt left behind is over."""
        self._entered = 0

    def __enter__(self) -> None:
        self._entered += 1
        for logger in _loggers_of_torch():
            for handler in logger.handlers:
                if self not in handler.filters:
                    handler.addFilter(self)

    def __exit__(self, *failure: object) -> None:
        self._entered -= 1

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._entered or hasattr(record, "artifact_name"):
            return True
        return not record.name.startswith(_TALKATIVE)


#: For a block: what Dynamo could not follow is told by a card, not logged.
quiet_fallbacks = _Fallbacks()

_TALKATIVE = tuple(
    f"torch.{part}" for part in ("_dynamo", "_functorch", "_guards", "_inductor", "_logging", "_subclasses")
)


_loggers: tuple[int, list[logging.Logger]] = (0, [])


def _loggers_of_torch() -> list[logging.Logger]:
    """Those that write. There are hundreds of loggers, so they are gone through only when there are more."""
    global _loggers
    known = logging.root.manager.loggerDict
    if len(known) != _loggers[0]:
        loggers = [it for it in list(known.values()) if isinstance(it, logging.Logger) and it.handlers]
        _loggers = len(known), [it for it in loggers if it.name == "torch" or it.name.startswith(_TALKATIVE)]
    return _loggers[1]


#: The function that is called now, and perhaps compiled for it.
running: Outlined | None = None
#: While a cell is profiled: told the lines of a function that was called, and how many programs it ran.
watch: Callable[[tuple[int, ...], int], None] | None = None
_cell: Body | None = None


#: While a function is called, what Dynamo's setting was that lets it run eagerly what it fails to compile.
_suppressed: bool | None = None


class TorchBackend:
    """`torch.compile` with static shapes; a failure to compile runs that part eagerly."""

    fullgraph = False

    @property
    def program_of(self) -> Callable[..., Any]:
        """What Dynamo hands graphs to. Always the same: Dynamo compiles anew for another."""
        return program_of

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
        global _suppressed, running, _cell
        if _cell is not None or running is not None:  # an interrupt came between two lines of `call`
            running = _cell = None
        quiet_fallbacks.forget()
        books.forget_without(cell.namespace)
        before = books.mark()
        books.forget()
        suppressed = _suppressed
        with quiet_fallbacks:
            try:
                yield
            finally:
                # An interrupt may have come between any two lines of `call`.
                if suppressed is None and _suppressed is not None:
                    sys.modules["torch._dynamo"].config.suppress_errors = _suppressed
                    _suppressed = None
                trace = books.since(before)
                if trace is not None and self.fullgraph:
                    # Where it ended is known better by the one who ended it.
                    trace.troubles.clear()
                    trace.begun.clear()
                if trace is not None:
                    books.keep_names(cell.namespace)
                cell.learn(trace)

    def compile(self, outlined: Outlined) -> Callable[..., Any]:
        return torch_module().compile(outlined.function, backend=self.program_of, dynamic=False)

    def call(self, cell: Body, outlined: Outlined) -> Any:
        import torch._dynamo as dynamo

        global running, _cell, _suppressed
        report = cell.report
        optimizers = [cell.classifier.named(name) for name in outlined.optimizers]
        steppers = [
            stepper_of(optimizer, cell.values, name, report)
            for name, optimizer in zip(outlined.optimizers, optimizers, strict=True)
        ]
        graphs, executed = outlined.graphs, outlined.executed
        outer = _suppressed
        before = _suppressed = dynamo.config.suppress_errors
        try:
            dynamo.config.suppress_errors = not self.fullgraph
            running = outlined
            _cell = cell
            try:
                value = outlined.run(cell.namespace, steppers)
            except _Hooked:  # before anything was computed: traced again, it is refused
                _renew(outlined)
                outlined.call = self.compile(outlined)
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
            running = _cell = None
            dynamo.config.suppress_errors = before
            _suppressed = outer
            report.graphs += outlined.graphs - graphs
            report.executed += outlined.executed - executed
            if watch is not None:
                watch(cell.shown_lines(outlined.lines), outlined.executed - executed)
            if outlined.executed > executed:
                cell.ran(outlined.lines)
            elif not self.fullgraph:
                limit = dynamo.config.recompile_limit
                full = outlined.graphs >= limit
                why = f"PyTorch compiles for {limit} shapes at most" if full else NO_PROGRAM
                cell.stayed(outlined.lines, why)


class FullGraphBackend(TorchBackend):
    """Ends the cell at the first thing that touches the device and is in no program."""

    fullgraph = True

    def call(self, cell: Body, outlined: Outlined) -> Any:
        import torch._dynamo as dynamo
        from torch._dynamo.exc import TorchDynamoException

        try:
            # Unlike `fullgraph`, this does not let sizes and numbers that depend on values pass.
            with dynamo.error_on_graph_break(True):
                return super().call(cell, outlined)
        except TorchDynamoException as error:
            trouble = books.last_noted() or books.trouble_of(error, cell.filename)
        if is_error(trouble.reason):
            return self._as_it_is(cell, outlined)
        found = cell.findings.add(trouble)
        first = cell.shown_lines(outlined.lines)[0]
        raise NotWhole(found.line or first, found.why, found.place, first)

    def _as_it_is(self, cell: Body, outlined: Outlined) -> Any:
        """The code is wrong, whoever runs it: its error is to be its own."""
        optimizers = [(name, cell.classifier.named(name)) for name in outlined.optimizers]
        steppers = [stepper_of(optimizer, cell.values, name, cell.report) for name, optimizer in optimizers]
        outlined.call = outlined.function
        try:
            return outlined.run(cell.namespace, steppers)
        finally:
            outlined.call = self.compile(outlined)


class DynamicBackend(TorchBackend):
    """Sizes that change become dimensions without a fixed size, in TorchTPU's buckets."""

    #: TorchTPU makes a program for each bucket, a multiple of this size.
    buckets, bucket_size = 4, 128

    def compile(self, outlined: Outlined) -> Callable[..., Any]:
        return torch_module().compile(outlined.function, backend=self.program_of, dynamic=None)

    @property
    def program_of(self) -> Callable[..., Any]:
        return _bucketed


def _bucketed(graph: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
    sizes = {
        "num_dynamic_buckets": DynamicBackend.buckets,
        "bucket_size": DynamicBackend.bucket_size,
    }
    return program_of(graph, inputs, options=sizes, **options)


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


class _Refused(Exception):
    """No program may be made of this graph: Dynamo then lets its statements run as they are."""


class _Hooked(Exception):
    """A parameter has had a gradient hook since the program was made."""


def program_of(graph: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
    """The backend: TorchTPU's, counted for the function that runs.

    One for all functions: Dynamo compiles what they call again for each backend it meets.
    """
    if running is not None and _cell is not None:
        running.graphs += 1
        books.read_guards(_cell.namespace)
    left = books.on_cpu(graph)
    if left is not None:
        # TorchTPU can take no tensor that is on the CPU into a program: it fails, or ends the process.
        books.note(left)
        if _cell is not None and _cell.backend.fullgraph:
            raise _Refused(left.reason)
        return graph.forward
    if running is not None and (why := _refusal(running, graph, inputs)):
        raise _Refused(why)
    if running is not None and not without_spent(graph, running):
        raise _Refused("backward() goes through a graph a second time")
    program = _default_backend()(graph, inputs, **options)

    spending = running is not None and bool(running.spending)

    def counted(*arguments: Any) -> Any:
        if spending and are_hooked(arguments):
            raise _Hooked
        if running is not None:
            running.executed += 1
        return program(*arguments)

    return counted


def _refusal(outlined: Outlined, graph: Any, inputs: Any) -> str:
    """Why no program may be made of a graph of this function, also noted; empty when one may."""
    code = outlined.function.__code__
    why, line = "", outlined.backward or outlined.lines[0]
    if outlined.spending and are_hooked(inputs):
        why = books.HOOKED
    elif outlined.backward and books.continues_gradients(graph, code.co_name):
        # Dynamo's `backward()` passes over what came before the break, and says nothing: parameters
        # would stop moving.
        why = books.APART
    elif not outlined.backward and books.hides_backward(graph):
        # The function that is called may clear gradients too, which Dynamo gets wrong.
        why = books.HIDDEN
    elif books.has_open_sizes(inputs) and is_emulated():
        why, line = books.OPEN_SIZES, outlined.lines[0]
    if why:
        books.note(books.apart(code, line, why))
    return why


def is_emulated() -> bool:
    """The emulated chip's compiler, XLA for CPUs, has no dimensions without a fixed size."""
    from ..tpu import device

    identity = device.identity()
    return identity is None or bool(identity["emulated"])


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

"""`%%tpu_compile --compare`: the cell eagerly and compiled in turn, on the same inputs and state.

What the first run starts from is kept and put back before each further one (`restoring`), so the notebook is left
in the state of one run, a compiled one.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from IPython.core.error import UsageError
from IPython.utils.capture import capture_output

from ..cards import show
from ..introspection.live import module_of, own_space
from ..lowering import CellError, Lowering
from ..lowering.backend import EagerBackend
from ..tpu import compiles
from . import measure
from .restoring import Snapshot, has_attributes, listed, reached
from .running import eagerly, run_body

_MOST_PAIRS = 5
#: Seconds after which no further pair of runs begins.
_ENOUGH = 20.0
_MOST_WARM_UPS = 4
_NONE: Mapping[int, Any] = {}


@dataclass
class Result:
    """How one of the cell's results differs between the two."""

    name: str
    what: str
    largest: float = 0.0
    relative: float = 0.0
    #: Said instead of numbers, where there are none to compare.
    said: str = ""


@dataclass
class Comparison:
    """What was measured. Seconds."""

    eager: list[float] = field(default_factory=list)
    compiled: list[float] = field(default_factory=list)
    #: The first run of each, which compiles.
    first: tuple[float, float] = (0.0, 0.0)
    warm_ups: int = 1
    results: list[Result] = field(default_factory=list)
    restored: str = ""
    lost: list[str] = field(default_factory=list)
    same_output: bool = True
    report: Any = None

    @property
    def speed_up(self) -> float:
        return statistics.median(self.eager) / statistics.median(self.compiled)


def compare(shell: Any, lowering: Lowering, magic: str, body: str) -> Any:
    """Run the cell both ways in turn, show the card; the value of the last (compiled) run."""
    try:
        with lowering.alone():
            return _compare_alone(shell, lowering, magic, body)
    except CellError as error:
        raise UsageError(f"{magic}: {error}") from None


def _compare_alone(shell: Any, lowering: Lowering, magic: str, body: str) -> Any:
    from ..cards.compare import CompareCard

    compiles.overlook()
    names = _refuse(shell, magic, body)
    snapshot = Snapshot(shell.user_ns, names)
    if snapshot.used_up:
        path, kind = snapshot.used_up[0]
        raise UsageError(
            f"{magic}: `{path}` ({kind}) is used up by a run and cannot be put back: "
            f"make it in the cell, or turn it into a list"
        )
    turn = _Turn(shell, lowering, magic, body, snapshot)
    found = Comparison(restored=_restored(snapshot))
    found.lost = [f"`{path}` ({kind})" for path, kind in snapshot.lost]

    first_eager = turn.eager()  # an error here is the cell's own, and the only run
    eager_values, eager_output = turn.values(), turn.output
    first_compiled = turn.compiled_again()
    while turn.compiles and found.warm_ups < _MOST_WARM_UPS:
        turn.compiled_again()
        found.warm_ups += 1
    found.first = first_eager, first_compiled
    started = time.perf_counter()
    while not found.compiled or (
        len(found.compiled) < _MOST_PAIRS and time.perf_counter() - started < _ENOUGH
    ):
        found.eager.append(turn.eager_again())
        found.compiled.append(turn.compiled_again())
    found.results = differences(eager_values, turn.values(), turn.before)
    found.same_output = eager_output == turn.output
    found.report = turn.report
    turn.show_output()
    show(CompareCard(found))
    return turn.value


class _Turn:
    """One run after the other."""

    def __init__(self, shell: Any, lowering: Lowering, magic: str, body: str, snapshot: Snapshot) -> None:
        self._shell, self._lowering, self._magic, self._body = shell, lowering, magic, body
        self._eager = Lowering(shell, EagerBackend())
        self._snapshot = snapshot
        names, copies = shell.user_ns, snapshot.copies
        self.before = dict(leaves([(name, names[name]) for name in snapshot.roots], names, copies))
        self.value: Any = None
        self.report: Any = None
        self.compiles = 0
        self._captured: Any = None

    @property
    def output(self) -> tuple[str, str]:
        """What the last run printed."""
        return self._captured.stdout, self._captured.stderr

    def show_output(self) -> None:
        """What the last run printed and displayed."""
        self._captured.show()

    def values(self) -> dict[str, Any]:
        """What the last run left, by path."""
        namespace = self._shell.user_ns
        bound = [
            name
            for name, value in namespace.items()
            if not name.startswith("_") and value is not self._snapshot.name_before(name)
        ]
        names = sorted({*self._snapshot.roots, *bound} & namespace.keys())
        left = leaves([(name, namespace[name]) for name in names], namespace)
        before = self.before
        # what is as it was is not kept a second time
        return {
            path: before[path] if path in before and _same(value, before[path]) else value
            for path, value in itertools.chain(left, leaves([("Out", self.value)], namespace))
        }

    def eager(self) -> float:
        with eagerly():
            return self._run(self._eager)

    def eager_again(self) -> float:
        return self._again(self.eager, "eager")

    def compiled_again(self) -> float:
        return self._again(lambda: self._run(self._lowering), "compiled")

    def _again(self, run: Any, word: str) -> float:
        self._snapshot.restore()
        try:
            return run()
        except Exception as error:
            error.add_note(
                f"{self._magic}: the cell ran once, eagerly; this is its {word} run on what was put back. "
                "A cell that uses up something made before it can run only once."
            )
            self.show_output()
            raise

    def _run(self, lowering: Lowering) -> float:
        before = measure.counters(settle=True)
        started = time.perf_counter()
        self.value = None
        with _captured() as self._captured:
            self.value, self.report = run_body(self._shell, lowering, self._magic, self._body)
            now = measure.counters(settle=True)
        seconds = time.perf_counter() - started
        self.compiles = now.since(before).compiles if now is not None else 0
        return seconds


@contextlib.contextmanager
def _captured() -> Iterator[Any]:
    """Keeps what a run prints and displays; an error shows what came before it."""
    with capture_output() as captured:
        try:
            yield captured
            return
        except BaseException as error:  # noqa: BLE001  it is raised again, below what was printed before it
            failure = error
    captured.show()
    raise failure


def _refuse(shell: Any, magic: str, body: str) -> set[str]:
    """The names the cell mentions; one line about what cannot run again."""
    source = shell.transform_cell(body)
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()  # it is told when the cell is run
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Global):
            names.update(node.names)
    for word, why in (
        ("get_ipython", "has magics or commands, whose effects cannot be put back"),
        ("input", "asks for input"),
        ("open", "opens files, which cannot be put back"),
        ("exit", "ends the kernel"),
        ("quit", "ends the kernel"),
    ):
        if word in names:
            raise UsageError(f"{magic}: the cell runs several times, but it {why} (`{word}`)")
    return names


def _restored(snapshot: Snapshot) -> str:
    many = "tensor" if snapshot.tensors == 1 else "tensors"
    return f"{snapshot.tensors:,} {many}, random numbers ({', '.join(snapshot.generators)})"


def leaves(
    roots: list[tuple[str, Any]], namespace: dict[str, Any], copies: Mapping[int, Any] = _NONE
) -> Iterator[tuple[str, Any]]:
    """Values that can be compared, by the path that leads to them. Tensors as they are on the host: the copies
    there are, by the tensors' ids, or new ones."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    for path, value in roots:
        if issubclass(type(value), (bool, int, float, complex, str)):
            yield path, value
    for path, value in reached(roots, namespace):
        kind, copy = type(value), copies.get(id(value))
        if issubclass(kind, torch.Tensor):
            if value.layout is not torch.strided:
                continue
            host = value.detach().cpu() if copy is None else copy
            yield path, host.clone() if host.data_ptr() == value.data_ptr() else host
        elif numpy is not None and issubclass(kind, numpy.ndarray):
            numeric = value.dtype.kind in "fiub"
            yield path, torch.from_numpy(value.copy() if copy is None else copy) if numeric else str(value)
        elif issubclass(kind, (list, tuple, dict)):
            members = dict.items(value) if issubclass(kind, dict) else enumerate(listed(value))
            for key, member in list(members):
                if _is_number(member) and issubclass(type(key), (int, str)):
                    yield f"{path}[{key!r}]", member
        elif module_of(kind) == "__main__" and has_attributes(value):
            for name, member in list(own_space(value).items()):
                if _is_number(member):
                    yield f"{path}.{name}", member


def _is_number(value: Any) -> bool:
    return issubclass(type(value), (int, float)) and type(value) is not bool


def differences(eager: dict[str, Any], compiled: dict[str, Any], before: dict[str, Any]) -> list[Result]:
    """The largest differences of each name that the cell gave another value, or a first one."""
    results: dict[str, Result] = {}
    counts: dict[str, int] = {}
    for path in sorted(eager.keys() | compiled.keys()):
        name = path.partition(".")[0].partition("[")[0]
        if path in before and all(
            path in run and _same(run[path], before[path]) for run in (eager, compiled)
        ):
            continue  # no result: it is as it was
        result = results.setdefault(name, Result(name, ""))
        counts[name] = counts.get(name, 0) + 1
        if path not in eager or path not in compiled:
            # An optimizer made capturable has its counters elsewhere, an attribute may be a cache.
            counts[name] -= 1
            continue
        result.what = result.what or _what(compiled[path])
        _compare(result, eager[path], compiled[path])
    for name, count in counts.items():
        if count > 1:
            results[name].what = f"{count:,} values"
    return [result for name, result in results.items() if counts[name]]


def _what(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind} {' × '.join(map(str, shape))}" if len(shape) else kind


def _same(one: Any, other: Any) -> bool:
    torch = sys.modules["torch"]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def _compare(result: Result, eager: Any, compiled: Any) -> None:
    torch = sys.modules["torch"]
    if isinstance(eager, (int, float)) and isinstance(compiled, (int, float)):
        eager, compiled = (torch.tensor(float(value), dtype=torch.float64) for value in (eager, compiled))
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        if type(eager) is not type(compiled) or eager != compiled:
            result.said = (
                f"{_what(eager)} eagerly, {_what(compiled)} compiled"
                if type(eager) is not type(compiled)
                else "another value"
            )
        return
    if eager.shape != compiled.shape or eager.dtype != compiled.dtype:
        result.said = f"{_what(eager)} eagerly, {_what(compiled)} compiled"
        return
    if eager.numel() == 0:
        return
    wide = torch.complex128 if eager.is_complex() else torch.float64
    one, other = eager.to(wide), compiled.to(wide)
    alike = (one == other) | (one.isnan() & other.isnan())
    gap = torch.where(alike, torch.zeros((), dtype=torch.float64), (one - other).abs())
    if gap.isnan().any() or gap.isinf().any():
        result.said = "NaN or infinite in one of the two"
        return
    result.largest = max(result.largest, gap.max().item())
    scale = one.abs().max().item()
    result.relative = max(result.relative, gap.max().item() / scale if scale else float(gap.max() > 0))

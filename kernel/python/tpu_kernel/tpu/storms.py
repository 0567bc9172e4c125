"""A loop that compiles at every step, found while it runs: which program, what differs, what to do.

A model's first step compiles the same operation for many shapes too, one for each layer. What tells
them apart is that a loop reads a result between two compiles, or that it goes on for long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .reasons import Program, size, telling

#: Different sizes of one program in one cell: with a result read in between, or of compiled code.
_FEW = 3
#: The same where nothing is read in between: only one size changes, or several do.
_MANY, _MORE = 8, 16
#: Steps that made programs unlike any before.
_STEPS = 12
_MOST_SHOWN = 6


@dataclass(frozen=True)
class Spot:
    """Where the thread that compiles was when it began."""

    place: str = ""
    #: The loop of a cell it was in, or "".
    loop: str = ""
    #: PyTorch's compiler was at work for the line, so this is where the program comes from.
    exact: bool = False
    #: It makes the program of a compiled function, not one of an operation.
    compiled: bool = False


@dataclass
class Cause:
    """What is different at every step."""

    words: str
    advice: str
    place: str = ""


@dataclass
class _Variants:
    """The programs of one family that differ in the same places."""

    #: What is there in each, and the step in which it came.
    steps: dict[Any, int] = field(default_factory=dict)


class Storm:
    """What one run of a cell compiles."""

    def __init__(self, mode: str | None = None) -> None:
        self.cause: Cause | None = None
        self.mode = mode
        self._steps: dict[int, int] = {}
        self._variants: dict[Any, _Variants] = {}
        self._looping: set[int] = set()

    def see(self, program: Program, step: int, spot: Spot) -> None:
        """A program is compiled; `step` counts the results that were read before."""
        self._steps[program["number"]] = step
        if spot.loop:
            self._looping.add(step)
        if program["why"] != "differs":
            self._judge_steps(spot)
            return
        where, was, now, single = _changes(program["differences"])
        variants = self._variants.setdefault((program["family"], where), _Variants())
        if program["nearest"] in self._steps:
            variants.steps.setdefault(was, self._steps[program["nearest"]])
        # What has no value to tell is another at each compile.
        variants.steps.setdefault(now if now is not None else program["number"], step)
        count, steps = len(variants.steps), len(set(variants.steps.values()))
        few = count >= _FEW and (spot.compiled or steps >= _FEW) and spot.loop
        if few or count >= (_MANY if single else _MORE):
            self.cause = self._cause(program, list(variants.steps), spot)

    def _judge_steps(self, spot: Spot) -> None:
        if self.cause is None and len(self._looping) >= _STEPS:
            words = f"each of {len(self._looping)} steps made programs unlike those before"
            self.cause = Cause(words, _sentence(self._strict() or _SAME), spot.loop)

    def _cause(self, program: Program, values: list[Any], spot: Spot) -> Cause:
        told = _told(program["differences"])
        which = telling(told)
        first = told[which]
        kind = first["differs"]
        shown = [value[which] for value in values if isinstance(value, tuple)]
        if kind == "size":
            part = "the result " if first["part"] == "result" else ""
            sizes = _list([size(each) for each in shown])
            words = f"dimension {first['dimension']} of {part}`{first['tensor']}` was {sizes}"
            advice = "pad to one size"
            if first["dimension"] == 0:
                advice += ", and leave out a short last batch (`DataLoader(…, drop_last=True)`)"
        elif kind == "type":
            words = f"an argument was {_list([f'`{each}`' for each in shown])}"
            advice = _SAME
        elif kind == "number":
            words = f"a number in the program was {_list(shown)}"
            advice = "keep the number in a tensor on the device"
        elif kind == "built_in":
            words = f"`{first['operation']}` works with other numbers in each program"
            advice = "let a tensor on the device say where (`torch.index_select`), or slice on the CPU"
        else:
            words, advice = "the options of the compiler changed", "choose them once, before the loop"
        strict = self._strict()
        return Cause(
            words,
            _sentence(f"{advice}; or {strict}" if strict else advice),
            spot.place if spot.exact else spot.loop,
        )

    def _strict(self) -> str | None:
        if self.mode in (None, "strict", "debug"):
            return None
        return "run operation by operation (`%tpu_mode strict`), where fewer programs are made"


_SAME = "give each step tensors of the same shapes and types"


def _told(differences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Differences of shapes and types; where there are none, of numbers; else the first."""
    shapes = [found for found in differences if found["differs"] in ("size", "type")]
    return shapes or [found for found in differences if found["differs"] == "number"] or differences[:1]


def _changes(differences: list[dict[str, Any]]) -> tuple[Any, Any, Any, bool]:
    """Where programs differ, what was there, what is; and whether one size changed, everywhere."""
    told = _told(differences)
    if told[0]["differs"] not in ("size", "type", "number"):
        return (told[0]["differs"], told[0].get("operation")), None, None, False
    where = tuple(
        (found["differs"], found.get("part"), found.get("index"), found.get("dimension")) for found in told
    )
    was, now = (tuple(found[when] for found in told) for when in ("was", "is"))
    return where, was, now, len(set(zip(was, now, strict=True))) == 1


def _list(values: list[str]) -> str:
    if len(values) > _MOST_SHOWN:
        return ", ".join([*values[:3], "…", values[-1]])
    return ", ".join(values)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."

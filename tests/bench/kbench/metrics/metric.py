"""What a metric is, and the list of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

MB = 1_000_000


@dataclass
class Metric:
    name: str
    func: Callable
    reps: int
    limit: float  # hard limit in seconds for one repetition on one kernel
    floor: bool  # does it mean something for the floor kernel?
    fresh: bool  # does it start its own kernels?
    doc: str


METRICS: dict[str, Metric] = {}


def metric(name: str, reps: int = 3, limit: float = 120, floor: bool = False, fresh: bool = False):
    def register(func):
        METRICS[name] = Metric(name, func, reps, limit, floor, fresh, (func.__doc__ or "").strip())
        return func

    return register


def ms(seconds: float) -> float:
    return seconds * 1000

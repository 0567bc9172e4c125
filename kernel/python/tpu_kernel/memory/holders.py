"""Who holds device memory: each live storage traced to the names a person knows it by.

Nothing here touches the device: tensors are found by the garbage collector and named by walking
from the notebook's variables through modules, optimizers, containers, objects and tracebacks.
A tensor, property or `repr` of the user's is never called.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .roots import roots
from .storages import Holding, find, root_of
from .walk import Walk


@dataclass
class Table:
    """All storages, largest first, against what tpu-core counts."""

    holdings: list[Holding]
    #: Bytes tpu-core counts.
    live: int
    #: Tensors whose computation failed: they have no memory, and reading them raises.
    gone: list[Holding] = field(default_factory=list)
    #: Paths of modules and their classes.
    modules: dict[str, str] = field(default_factory=dict)

    @property
    def lost(self) -> list[str]:
        """Names of tensors whose computation failed."""
        from .lost import names_of

        return names_of(self.gone)

    @property
    def named(self) -> int:
        """Bytes with a name."""
        return sum(holding.bytes for holding in self.holdings if holding.names)

    @property
    def unnamed(self) -> int:
        """Bytes of tensors Python has but the notebook has no name for."""
        return sum(holding.bytes for holding in self.holdings if not holding.names)

    @property
    def rest(self) -> int:
        """Bytes no Python tensor holds: scalars TorchTPU keeps, results of a program that wait for others.

        Below zero by the bytes of copies that share memory until one is written.
        """
        return self.live - self.named - self.unnamed

    def by_root(self) -> list[tuple[str, str, int, int]]:
        """Name, kind, number of storages and bytes for each thing to let go of, largest first."""
        return [(group.name, group.kind, len(group.members), group.bytes) for group in self.groups()]

    def groups(self) -> list[Group]:
        """Storages by the thing to let go of, largest first. What keeps each alive is known after
        `table(shares=True)`."""
        groups: dict[str, list[Holding]] = {}
        for holding in self.holdings:
            groups.setdefault(holding.root, []).append(holding)
        made = [Group(name, members) for name, members in groups.items()]
        return sorted(made, key=lambda group: -group.bytes)

    def freed_by(self, names: Collection[str]) -> int:
        """Bytes that are free when these have gone: what nothing else holds."""
        gone = frozenset(names)
        return sum(each.bytes for each in self.holdings if each.holders and each.holders <= gone)


class Group:
    """What hangs from one thing to let go of."""

    def __init__(self, name: str, members: list[Holding]) -> None:
        self.name = name
        #: Largest first.
        self.members = members
        self.bytes = sum(member.bytes for member in members)
        kinds = {member.kind for member in members}
        self.kind = kinds.pop() if len(kinds) == 1 else "variable"
        graph = name.removeprefix("graph of ") if self.kind == "graph" else name
        #: What to let go of: the root itself, or that of the tensor whose graph it is.
        self.root = root_of(graph, "variable") if self.kind == "graph" else graph
        #: Bytes that nothing but this root holds.
        self.alone = sum(member.bytes for member in members if member.holders == {self.root})

    @property
    def others(self) -> list[str]:
        """What else holds some of it."""
        return sorted({name for member in self.members for name in member.holders} - {self.root})


def table(
    namespace: dict[str, Any],
    live: int,
    error: BaseException | None = None,
    failures: bool = False,
    shares: bool = False,
) -> Table:
    """Who holds the device's memory now. `live` is tpu-core's count; `error` is being reported.

    `failures`: something failed on the device in this session, so each tensor is asked whether it
    was lost. That waits for what is being computed into it. `shares`: find for each storage all that keep
    it, not only the first.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return Table([], live)
    found, makers = find(torch, failures)
    walk = Walk(torch, found, makers, namespace)
    walk.run(roots(namespace, error))
    if shares:
        walk.shares()
    gone = [holding for holding in found.values() if holding.lost]
    kept = [holding for holding in found.values() if not holding.lost]
    return Table(sorted(kept, key=lambda holding: -holding.bytes), live, gone, walk.modules)

"""The cards of `%tpu_mem`: who holds HBM, by variable, by module, by cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..memory.lost import words
from . import blocks

if TYPE_CHECKING:
    from ..memory.holders import Group, Table
    from ..memory.storages import Holding

_MOST_ROWS = 8
_MOST_BARS = 7
_WIDTH = 80
#: What memory is for, in the order of the card.
_KINDS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer": "optimizer state",
    "graph": "for backward()",
    "variable": "in variables",
    "output": "Out[]",
    "traceback": "last traceback",
    "running": "running code",
    "": "without a name",
}
_REST = "TorchTPU's own"
_SHORT = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "uint8": "u8",
}


class MemoryCard:
    """Who holds HBM, by what it is for and by what to let go of."""

    def __init__(self, device: str, counters: dict[str, Any], table: Table) -> None:
        self.device = device
        self.counters = counters
        self.table = table
        self.groups = table.groups()

    def html(self) -> str:
        live = self.counters["live_bytes"] or 1
        rows = [(name, count / live, blocks.size(count)) for name, count in self._bars()]
        return blocks.card(
            headline(self.device, self.counters),
            blocks.bars(rows),
            blocks.table(_HEAD, self._rows(), numbers=(2,)) if self.groups else "",
            *(blocks.paragraph(line) for line in self._advice()),
            blocks.paragraph(self._sum(), muted=True),
        )

    def text(self) -> str:
        lines = [first_line(self.device, self.counters)]
        lines += aligned([(name, blocks.size(count)) for name, count in self._kinds() if count > 0])
        if self.groups:
            rows = [tuple(cell.replace("`", "") for cell in row) for row in self._rows(30)]
            lines += aligned([_HEAD, *rows])
        said = [line.replace("`", "") for line in self._advice()]
        return "\n".join([*lines, *blocks.wrapped([*said, self._sum()])])

    def _bars(self) -> list[tuple[str, int]]:
        """The largest kinds, and the rest in one."""
        kinds = [row for row in self._kinds() if row[1] > 0]
        if len(kinds) <= _MOST_BARS:
            return kinds
        kept = sorted(kinds, key=lambda row: -row[1])[: _MOST_BARS - 1]
        others = sum(count for _, count in kinds) - sum(count for _, count in kept)
        return [row for row in kinds if row in kept] + [("others", others)]

    def _kinds(self) -> list[tuple[str, int]]:
        sums = dict.fromkeys(_KINDS, 0)
        for holding in self.table.holdings:
            sums[holding.kind if holding.names else ""] += holding.bytes
        return [(_KINDS[kind], count) for kind, count in sums.items()] + [(_REST, self.table.rest)]

    def _rows(self, longest: int = 48) -> list[tuple[str, str, str, str]]:
        rows = [
            (name_of(group, longest), shape(group.members), blocks.size(group.bytes), self._freed(group))
            for group in self.groups[:_MOST_ROWS]
        ]
        rest = self.groups[_MOST_ROWS:]
        if rest:
            bytes_ = sum(group.bytes for group in rest)
            rows.append((f"{len(rest):,} more", "", blocks.size(bytes_), ""))
        return rows

    def _freed(self, group: Group) -> str:
        """What deleting it frees."""
        if not group.name:
            return "not by a name: `%tpu_free`"
        if group.kind == "traceback":
            return f"{blocks.size(group.alone)} by `%tpu_free`"
        if group.alone == group.bytes:
            return "all of it"
        others = [f"`{name}`" if name else "other code" for name in group.others]
        said = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        freed = blocks.size(group.alone) if group.alone else "nothing"
        return f"{freed}: also in {said}" if others else freed

    def _advice(self) -> list[str]:
        """What goes together with what."""
        lines = []
        for group in self.groups[:_MOST_ROWS]:
            others = [name for name in group.others if name]
            deletable = all(name.isidentifier() or name.startswith("Out[") for name in others)
            if group.kind in _DELETED and deletable and 1 <= len(others) <= 3 and group.alone < group.bytes:
                names = sorted({group.root, *others}, key=lambda name: (name != group.root, name))
                freed = self.table.freed_by(names)
                if freed and not any(set(names) == set(known) for known, _ in lines):
                    lines.append((names, freed))
        said = [f"`{delete(names)}` together free {blocks.size(freed)}." for names, freed in lines[:2]]
        if self.table.lost:
            said.append(f"Without memory, because what computes them failed: {words(self.table.lost)}.")
        return said

    def _sum(self) -> str:
        table = self.table
        if not (table.live or table.holdings):
            return "Nothing is on the device. What is queued is not waited for."
        text = f"{table.live:,} bytes are in use: {table.named:,} by name, {table.unnamed:,} in tensors without one, "
        if table.rest >= 0:
            return text + f"{table.rest:,} in no tensor of Python's (scalars and results TorchTPU keeps)."
        return text + f"less {-table.rest:,} that copies share until one is written."


_HEAD = ("held by", "what", "bytes", "deleting it frees")
_DELETED = ("variable", "parameter", "output", "optimizer", "gradient", "graph")


class ModulesCard:
    """Modules and their layers."""

    def __init__(self, device: str, counters: dict[str, Any], table: Table) -> None:
        self.device = device
        self.counters = counters
        self.rows, self.others = _by_module(table)

    def html(self) -> str:
        rows = [(f"`{name}`", *cells) for name, *cells in self.rows]
        return blocks.card(
            headline(self.device, self.counters),
            blocks.table(_MODULES, rows, numbers=(2, 3, 4, 5)) if rows else "",
            blocks.paragraph(self._sum(), muted=True),
        )

    def text(self) -> str:
        rows = [(shortened(name, 24), kind[:14], *cells) for name, kind, *cells in self.rows]
        lines = [first_line(self.device, self.counters)]
        lines += aligned([_MODULES, *rows], numbers=(2, 3, 4, 5)) if rows else []
        return "\n".join([*lines, *blocks.wrapped([self._sum().replace("`", "")])])

    def _sum(self) -> str:
        start = "No module has memory on the device. " if not self.rows else ""
        return f"{start}{blocks.size(self.others)} are held by no module: `%tpu_mem` says by whom."


_MODULES = ("module", "class", "weights", "gradients", "optimizer", "sum")


def _by_module(table: Table) -> tuple[list[tuple[str, ...]], int]:
    """Rows for the outermost modules and their direct parts, and the bytes outside of all."""
    sums: dict[str, dict[str, int]] = {}
    others = table.live
    for holding in table.holdings:
        name = holding.names[0] if holding.names else ""
        kind = holding.kind if holding.kind in ("gradient", "optimizer") else "weight"
        if kind == "optimizer" and "[" in name:
            name = name[name.index("[") + 1 : name.rindex("]")]
        owners = [path for path in _parents(name) if path in table.modules]
        if owners and holding.kind not in ("traceback", "graph"):
            others -= holding.bytes
        else:
            continue
        for path in owners[-2:]:
            sums.setdefault(path, dict.fromkeys(("weight", "gradient", "optimizer"), 0))[kind] += (
                holding.bytes
            )
    outermost = [path for path in sums if not any(part in sums for part in _parents(path))]
    rows = []
    for path in sorted(outermost, key=lambda each: -sum(sums[each].values())):
        rows.append(_module_row(path, path, sums, table))
        inner = [each for each in sums if path in _parents(each)]
        for each in sorted(inner, key=lambda each: -sum(sums[each].values())):
            rows.append(_module_row("  " + each[len(path) :], each, sums, table))
    if len(rows) > 2 * _MOST_ROWS:
        rows = [*rows[: 2 * _MOST_ROWS], (f"… {len(rows) - 2 * _MOST_ROWS:,} more", "", "", "", "", "")]
    return rows, max(0, others)


def _module_row(name: str, path: str, sums: dict[str, dict[str, int]], table: Table) -> tuple[str, ...]:
    counts = sums[path]
    sizes = [blocks.size(count) if count else "–" for count in counts.values()]
    return (name, table.modules[path], *sizes, blocks.size(sum(counts.values())))


def _parents(path: str) -> list[str]:
    """The paths a path begins with, innermost first."""
    return [path[:end] for end in range(len(path) - 1, 0, -1) if path[end] in ".[("]


class CellsCard:
    """The cells that made what is live now."""

    def __init__(
        self,
        device: str,
        counters: dict[str, Any],
        cells: list[dict[str, Any]],
        name: Callable[[str], tuple[str, str]],
    ) -> None:
        self.device = device
        self.counters = counters
        live = sorted((each for each in cells if each["live_bytes"]), key=lambda each: -each["live_bytes"])
        self.rows = [self._row(each, *name(each["cell"])) for each in live[: 2 * _MOST_ROWS]]
        self.more = len(live) - len(self.rows)
        self.rest = counters["live_bytes"] - sum(each["live_bytes"] for each in live)

    @staticmethod
    def _row(cell: dict[str, Any], name: str, code: str) -> tuple[str, str, str, str]:
        made = blocks.size(cell["made_bytes"])
        name = name or ("an earlier cell" if cell["cell"] else "no cell")
        return name, blocks.size(cell["live_bytes"]), made, shortened(code, 36)

    def html(self) -> str:
        rows = [(*row[:3], f"`{row[3]}`" if row[3] else "") for row in self.rows]
        return blocks.card(
            headline(self.device, self.counters),
            blocks.table(_CELLS, rows, numbers=(1, 2)) if rows else "",
            *(blocks.paragraph(line, muted=True) for line in self._notes()),
        )

    def text(self) -> str:
        lines = [first_line(self.device, self.counters)]
        lines += aligned([_CELLS, *self.rows], numbers=(1, 2)) if self.rows else []
        return "\n".join([*lines, *blocks.wrapped(self._notes())])

    def _notes(self) -> list[str]:
        notes = [f"{self.more:,} more cells hold less."] if self.more else []
        if not self.rows:
            notes.append("Nothing is on the device. What is queued is not waited for.")
        if self.rest:
            notes.append(f"{self.rest:,} bytes came or went while this was counted.")
        return notes


_CELLS = ("made by", "live now", "made in all", "which begins")


def headline(device: str, counters: dict[str, Any]) -> str:
    """The card's first line."""
    return blocks.headline("HBM", "good", device, *_facts(counters))


def first_line(device: str, counters: dict[str, Any]) -> str:
    """The text's first line."""
    return " · ".join([f"HBM of {device}", *_facts(counters)])


def _facts(counters: dict[str, Any]) -> list[str]:
    live, limit = counters["live_bytes"], counters["limit_bytes"]
    if not limit:
        return [f"{blocks.size(live)} in use"]
    return [
        f"{blocks.size(live)} of {blocks.size(limit)} in use",
        f"{blocks.size(max(0, limit - live))} free",
    ]


def name_of(group: Group, longest: int = 48) -> str:
    """What a group is called on a card."""
    return f"`{shortened(group.name, longest)}`" if group.name else "no name in the notebook"


def shape(members: list[Holding]) -> str:
    """One tensor's shape and type, or how many there are."""
    if len(members) > 1:
        return f"{len(members):,} tensors"
    return shape_of(members[0].shape, members[0].dtype)


def shape_of(sides: tuple[int, ...], dtype: str) -> str:
    """A tensor's type and shape."""
    return f"{_SHORT.get(dtype, dtype)} {'×'.join(map(str, sides)) or 'scalar'}"


def delete(names: Iterable[str]) -> str:
    """The line that lets go of these."""
    plain = list(names)
    if all(name.isidentifier() for name in plain):
        return f"del {', '.join(plain)}"
    return f"%tpu_free {' '.join(plain)}"


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def aligned(rows: list[tuple[str, ...]], numbers: tuple[int, ...] = ()) -> list[str]:
    """Rows in columns, cut to the width of a terminal."""
    if numbers:
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        rows = [
            tuple(cell.rjust(widths[i]) if i in numbers else cell for i, cell in enumerate(row))
            for row in rows
        ]
    return [shortened(line, _WIDTH) for line in blocks.columns(rows)]

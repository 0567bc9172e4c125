"""Why a program had to be compiled, in words: from what tpu-core found to differ."""

from __future__ import annotations

from typing import Any

Program = dict[str, Any]


def reason(program: Program) -> str:
    """Why this program was not there already."""
    if program["why"] == "again":
        return "the same was compiled before, and is neither in memory nor on disk any more"
    if program["why"] != "differs":
        return "the first of its kind"
    differences = program["differences"]
    words = difference(differences[telling(differences)])
    others = len(differences) - 1
    return f"{words}, and {others} more" if others and not alike(differences) else words


def difference(found: dict[str, Any]) -> str:
    """One difference; text between backticks is code."""
    kind = found["differs"]
    if kind == "size":
        result = "the result " if found["part"] == "result" else ""
        return f"dimension {found['dimension']} of {result}`{found['tensor']}` was {size(found['was'])}"
    if kind == "type":
        return f"`{found['is']}` was `{found['was']}`"
    if kind == "number":
        return f"the number {found['is']} in it was {found['was']}"
    if kind == "built_in":
        return f"`{found['operation']}` in it works with other numbers, such as an axis or a place"
    return "other options of the compiler"


def size(number: int) -> str:
    return str(number) if number >= 0 else "not fixed"


def alike(differences: list[dict[str, Any]]) -> bool:
    """The same size changed everywhere, as when a batch is larger; numbers computed from it follow."""
    sizes = {(found["was"], found["is"]) for found in differences if found["differs"] == "size"}
    return len(sizes) == 1 and all(found["differs"] in ("size", "number") for found in differences)


def telling(differences: list[dict[str, Any]]) -> int:
    """Which difference says most: of sizes that of the tensor with most dimensions, else the first."""
    ranks = [found["tensor"].count(",") if found["differs"] == "size" else -1 for found in differences]
    return ranks.index(max(ranks))


def short_batch(program: Program, known: dict[int, Program]) -> str | None:
    """What to say when this program was compiled for a last batch that is shorter than the others."""
    if program["why"] != "differs" or not alike(program["differences"]):
        return None
    sizes = [found for found in program["differences"] if found["differs"] == "size"]
    first, usual = sizes[telling(sizes)], known.get(program["nearest"])
    shorter = all(found["dimension"] == 0 and found["part"] == "argument" for found in sizes)
    if not shorter or usual is None or not 0 <= first["is"] < first["was"] or usual["runs"] < 2:
        return None
    if usual["runs"] <= program["runs"]:
        return None
    return (
        f"a last short batch: {first['is']} in `{first['tensor']}` instead of {first['was']}. "
        "Drop it (`DataLoader(…, drop_last=True)`) or pad it"
    )

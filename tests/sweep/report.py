"""What a sweep came to: compared with what is known, and as the table of docs/OPS.md."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
KNOWN = HERE / "known.tsv"
TABLE = HERE.parents[1] / "docs" / "OPS.md"
#: The operator did what it does on the CPU.
GOOD = ("passed", "no gradient", "random", "ties")
#: The CPU has nothing to compare with, or TorchTPU has no such operator.
OUTSIDE = ("no such type", "no reference", "not implemented")
BEGIN, END = "<!-- sweep -->", "<!-- /sweep -->"

Result = dict[str, str]


def cause(result: Result) -> str | None:
    """Why an operator fails, if that is known."""
    for entry in tomllib.loads((HERE / "causes.toml").read_text())["cause"]:
        if re.fullmatch(entry.get("names", ".*"), result["name"]) and re.search(
            entry["detail"], result["detail"]
        ):
            return entry["text"]
    return None


def read() -> dict[tuple[str, str], str]:
    """Outcome of each operator TorchTPU implements, by name and type."""
    rows = (line.split("\t") for line in KNOWN.read_text().splitlines())
    return {(name, dtype): outcome for name, dtype, outcome in rows}


def differences(results: list[Result], known: dict[tuple[str, str], str]) -> list[str]:
    """What is not as it is known to be, and what fails for no known reason."""
    found = []
    for result in results:
        name, dtype, outcome = result["name"], result["dtype"], result["outcome"]
        expected = known.get((name, dtype))
        if outcome == expected or (outcome in GOOD and expected in GOOD):
            continue
        if outcome in OUTSIDE and expected is None:
            continue
        found.append(f"{name} {dtype}: {outcome}, not {expected or 'in known.tsv'}: {result['detail']}")
    return found


def unexplained(results: list[Result]) -> list[str]:
    return [
        f"{result['name']} {result['dtype']}: {result['outcome']}: {result['detail']}"
        for result in results
        if result["outcome"] not in GOOD + OUTSIDE and cause(result) is None
    ]


def write(results: list[Result]) -> None:
    """Make the results what is known."""
    kept = [result for result in results if result["outcome"] not in OUTSIDE]
    lines = ["\t".join((result["name"], result["dtype"], result["outcome"])) for result in kept]
    KNOWN.write_text("\n".join(lines) + "\n")
    text = TABLE.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    TABLE.write_text(f"{head}{BEGIN}\n\n{table(results)}\n{END}{tail}")


def table(results: list[Result]) -> str:
    dtypes = list(dict.fromkeys(result["dtype"] for result in results))
    counts = Counter((result["dtype"], result["outcome"]) for result in results)
    failures = [result for result in results if result["outcome"] not in GOOD + OUTSIDE]
    unknown = Counter(result["dtype"] for result in failures if cause(result) is None)
    aborts = Counter(result["dtype"] for result in failures if result["outcome"] in ("aborted", "hung"))

    def row(title: str, count: dict[str, int]) -> str:
        return f"| {title} | " + " | ".join(str(count[dtype]) for dtype in dtypes) + " |"

    def number(*outcomes: str) -> dict[str, int]:
        return {dtype: sum(counts[dtype, outcome] for outcome in outcomes) for dtype in dtypes}

    listed = Counter(result["dtype"] for result in failures)
    lines = [
        "| | " + " | ".join(dtypes) + " |",
        "|---|" + "--:|" * len(dtypes),
        row("as on the CPU", number("passed")),
        row("as on the CPU, without a gradient in TorchTPU", number("no gradient")),
        row("random: shapes and types as on the CPU, another stream of numbers", number("random")),
        row("as on the CPU where no two elements are equal", number("ties")),
        row("fails for a reason of TorchTPU's own (below)", {d: listed[d] - unknown[d] for d in dtypes}),
        row("fails because of the emulation", {d: unknown[d] - aborts[d] for d in dtypes}),
        row("ends the process, or hangs", {d: aborts[d] for d in dtypes}),
        row("not implemented in TorchTPU", number("not implemented")),
        row("no such type, or no reference on the CPU", number("no such type", "no reference")),
        "",
        "| operator | type | what comes out | why |",
        "|---|---|---|---|",
    ]
    for result in failures:
        detail = result["detail"].replace("|", "\\|")[:120]
        lines.append(
            f"| `{result['name']}` | {result['dtype']} | {detail} | {cause(result) or 'not known'} |"
        )
    missing = sorted({result["name"] for result in results if result["outcome"] == "not implemented"})
    lines += ["", "Not implemented in TorchTPU: " + ", ".join(f"`{name}`" for name in missing) + ".", ""]
    return "\n".join(lines)

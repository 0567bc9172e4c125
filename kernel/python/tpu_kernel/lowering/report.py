"""What one run of a lowered cell did: the facts a card is made of. Only what was observed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """Lines by what happened to them, programs, and what was changed for the user's sake."""

    # Line -> why it ran eagerly; "" for ordinary Python that has nothing to do with the device.
    eager: dict[int, str] = field(default_factory=dict)
    compiled: set[int] = field(default_factory=set)
    # Programs captured by Dynamo in this run, and calls of captured programs.
    graphs: int = 0
    executed: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def ran_eagerly(self, lines: tuple[int, ...], why: str) -> None:
        for line in lines:
            if why or line not in self.eager:
                self.eager[line] = why

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def compiled_lines(self) -> list[int]:
        """Lines that ran in programs and never eagerly."""
        return sorted(line for line in self.compiled if not self.eager.get(line))

    def eager_lines(self) -> list[tuple[int, str]]:
        """Device lines that ran eagerly, with the reason."""
        return sorted((line, why) for line, why in self.eager.items() if why)

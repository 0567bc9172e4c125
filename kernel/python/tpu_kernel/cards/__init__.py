"""Cards: results as HTML without JavaScript and as aligned text, from the same facts.

blocks   what cards are built of: colours, tiles, bars, tables
compile  what %%tpu_compile did
compare  how a cell differs eagerly and compiled
explain  what an error means, what old names are called now
free     what was freed
hlo      programs as text
memory   who holds HBM
preview  what %%tpu_compile would do
shortage what did not fit into HBM
stats    what the session did
lanes    things on one axis of time
profile  what a cell did, on an axis of time
storm    a loop that compiles at every step
watch    the line of %tpu_watch
tensor   what a tensor on the device holds
"""

from __future__ import annotations

from typing import Any, Protocol


class Card(Protocol):
    """Something that can be shown in a notebook and in a terminal."""

    def html(self) -> str: ...
    def text(self) -> str: ...


def show(card: Card, shell: Any = None) -> None:
    """Display a card in the running cell of the shell."""
    if shell is None:
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
    shell.display_pub.publish({"text/html": card.html(), "text/plain": card.text()})

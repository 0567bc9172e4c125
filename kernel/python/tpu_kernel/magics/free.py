"""`%tpu_free`: let go of HBM."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from ..cards import show
from ..cards.free import FreeCard
from ..memory.freeing import Freeing
from ..tpu import device
from . import measure, memory, options

_MAGIC = "%tpu_free"


@magics_class
class FreeMagics(Magics):
    """Lets go of device memory."""

    @line_magic
    def tpu_free(self, line: str) -> None:
        """Free device memory (HBM): what nobody names, what you name, or all of it.

        Usage:

          %tpu_free [--out] [--cache] [--all] [NAME...]

        Alone it frees what nobody in the notebook names: reference cycles, and what the last
        traceback keeps (`%debug` has nothing to look at afterwards). It says what was freed by what.
        What an error of a full device keeps goes by itself when the next cell begins, unless that is
        a magic such as `%debug`.

        Names of variables, or of outputs as `Out[3]`, are deleted too. Where something else holds the
        same memory, that is said and the memory stays.

        Options:

          --out    also forget `Out` and `_`, `__`, `_3`, …
          --cache  also unload programs; one that is wanted again comes back from the cache on disk
          --all    empty the device

        With `--all`, variables and outputs that are tensors, modules or optimizers on the device are
        deleted. Device tensors inside of anything else (lists, dictionaries, objects, closures, modules
        with parts on the host) keep shape and type and lose their values: they are on the device `meta`
        then. What is on the host stays: numbers, arrays, CPU tensors, functions, the containers
        themselves. What was lost is named.
        """
        chosen = options.read(_MAGIC, line)
        names = list(dict.fromkeys(word.rstrip(",") for word in chosen.get("", "").split()))
        if device.snapshot() is None:
            print(measure.NO_DEVICE)
            return
        if names and "all" in chosen:
            raise UsageError(f"{_MAGIC}: `--all` takes no names: it frees everything")
        freeing = Freeing(self.shell)
        for name in names:
            if not freeing.has(name):
                raise UsageError(f"{_MAGIC}: the notebook has no variable or output `{name}`")
        card: dict[str, Any] = {}
        if "all" in chosen:
            card["gone"], card["emptied"] = freeing.everything()
        else:
            card["kept"] = _delete(freeing, names) if names else []
            freeing.unnamed()
            if "out" in chosen:
                freeing.outputs()
            if "cache" in chosen:
                freeing.programs()
        table, counters = memory.held(shares=False)
        show(
            FreeCard(
                measure.device_name(), counters, freeing.steps, freeing.before - freeing.now, table, **card
            )
        )


def _delete(freeing: Freeing, names: list[str]) -> list[tuple[str, int, list[str]]]:
    """Delete variables; of those whose memory stays, how many bytes and what holds it."""
    table, _ = memory.held()
    kept = []
    for name in names:
        mine = [each for each in table.holdings if name in each.holders]
        freeing.variable(name)
        stays = [each for each in mine if not each.holders <= set(names)]
        others = sorted({other for each in stays for other in each.holders} - set(names))
        if stays:
            kept.append((name, sum(each.bytes for each in stays), others))
    return kept

"""`%tpu_watch`: a line under each cell."""

from __future__ import annotations

from IPython.core.magic import Magics, line_magic, magics_class

from ..tpu import cell_line
from . import options

_MAGIC = "%tpu_watch"


@magics_class
class WatchMagics(Magics):
    """Turns the line under each cell on and off."""

    @line_magic
    def tpu_watch(self, line: str) -> None:
        """Show one line under each cell: what it did on the device.

        Usage:

          %tpu_watch [on|off]

        From the next cell on the line says how long the cell took; how long the device was busy with
        it; how many programs were compiled and how long that took, how many came from the cache on
        disk, how many were launched and how many of those were in memory already; how much more or
        less HBM is in use afterwards, how much is, and the most there was while the cell ran. A cell
        that did not use the device has its time only.

        While a cell runs for longer than a second the line is brought up to date every second. It is
        there after an error or an interrupt too. In front ends that show no HTML it is a line of text.

        Alone it says whether it is on. A kernel starts with it when the variable `TPU_KERNEL_WATCH` is
        `on`.
        """
        chosen = options.read(_MAGIC, line).get("")
        if chosen is not None:
            cell_line.turn(chosen == "on")
        print(f"{_MAGIC} is {'on' if cell_line.is_on() else 'off'}")

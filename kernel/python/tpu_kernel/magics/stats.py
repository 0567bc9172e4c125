"""`%tpu_stats`: what the session did."""

from __future__ import annotations

from IPython.core.magic import Magics, line_magic, magics_class

from ..cards import show
from ..cards.stats import StatsCard
from ..tpu import device
from . import limit, measure, options
from .mode import describe

_MAGIC = "%tpu_stats"


@magics_class
class StatsMagics(Magics):
    """Shows the counters of the session."""

    @line_magic
    def tpu_stats(self, line: str) -> None:
        """Show what the TPU session of this kernel did since it started.

        Usage:

          %tpu_stats [--live]

        HBM in use, its peak and its limit; programs compiled and the time that took; programs found
        in a cache on disk, and launches that found theirs in memory; programs executed and how long
        the device was busy; transfers and bytes to the device and from it. All of it is counted by
        the runtime session itself. It waits first until what was queued has ended.

        Below stand the programs that took longest to compile, with the memory each takes while it
        runs and how often it ran, and the last ones that were compiled again, with the reason: the
        size, type or number in which it differs from the nearest program that does the same. The
        place is the line that Python had come to when the compile began. For compiled functions, and
        in `debug` mode, that is the line itself. Otherwise Python hands operations over and goes on,
        so the operation stands there *or before*.

        With `--live`, in the first line of a cell, it shows under that cell what the device does while
        the rest of it runs, also where Python waits for a compile: HBM and how busy the device is, over
        time, and what was compiled and executed since. What it showed last stays, with a picture.

        Options:

          --live  follow this cell
        """
        if "live" in options.read(_MAGIC, line):
            _follow()
            return
        now = measure.counters(settle=True)
        if now is None:
            print(measure.NO_DEVICE)
            return
        identity = device.identity()
        why = limit.why(identity, now.limit_bytes) if identity else ""
        programs = measure.programs()
        show(StatsCard(measure.device_name(), now, describe(self.shell), why, programs))


def _follow() -> None:
    """Have the io thread show what the device does, until this cell ends."""
    from .. import _kernel
    from ..parent import PARENT

    parent = PARENT.get() or _kernel.running()
    if parent is not None:
        _kernel.feed_live(parent)

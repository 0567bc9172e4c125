"""`%tpu_stats`: what the session did."""

from __future__ import annotations

from IPython.core.magic import Magics, line_magic, magics_class

from .. import device
from ..cards import show
from ..cards.stats import StatsCard
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

          %tpu_stats

        HBM in use, its peak and its limit; programs compiled and the time that took; programs
        found in the cache on disk, and launches that found theirs in memory; executions; bytes
        moved to and from the device; which programs took longest to compile, and which were
        compiled again and why. All of it is counted by the runtime session itself.
        """
        options.read(_MAGIC, line)
        now = measure.counters(settle=True)
        if now is None:
            print('No device is in use yet: make a tensor on it first, e.g. torch.ones(3, device="tpu").')
            return
        identity = device.identity()
        why = limit.why(identity, now.limit_bytes) if identity else ""
        _, programs = measure.programs()
        show(StatsCard(measure.device_name(), now, describe(self.shell), why, programs))

"""The metrics.  Each takes a kernel and a recorder and adds rows.

Row names carry their unit.  A row whose value is a list keeps every sample, so
that percentiles are over all repetitions.  Cells carry a `#floor:NAME` comment
where the floor kernel must know which output is asked for.

lifetime  start, idleness, shutdown and restart
requests  cells, completion and inspection, comms
output    prints, displays, output of processes
busy      what goes on while a cell runs, and interrupts
metric    what a metric is
"""

from . import lifetime, requests, output, busy  # noqa: F401  each registers its own, in this order
from .metric import METRICS

__all__ = ["METRICS"]

"""The release of ipykernel whose behaviour libraries can expect."""

from __future__ import annotations

version_info = (7, 4, 0)
__version__ = "7.4.0"
kernel_protocol_version_info = (5, 5)
kernel_protocol_version = "5.5"

"""Making values fit for JSON."""

from __future__ import annotations

from typing import Any

from tpu_kernel.output.jsontext import clean as json_clean


def encode_images(format_dict: dict[str, Any]) -> dict[str, Any]:
    """Binary images are encoded when the message is written."""
    return format_dict


__all__ = ["encode_images", "json_clean"]

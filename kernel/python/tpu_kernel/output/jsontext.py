"""Python values to JSON text in UTF-8, whatever users put into displays and metadata.

Strict JSON comes out: no NaN, no lone surrogates. What JSON has no word for (bytes, dates,
numpy scalars, keys that are not strings) is written as ipykernel writes it.
"""

from __future__ import annotations

import json
import math
import numbers
from binascii import b2a_base64
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any


def scrub(text: str) -> str:
    """`text` with lone surrogates made U+FFFD (pairs of them become the character)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def simple(value: Any) -> Any:
    """For values `json` has no word for: something it can write."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b2a_base64(bytes(value), newline=False).decode("ascii")
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return clean(float(value))
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    if isinstance(value, Iterable) and not hasattr(type(value), "__torch_function__"):
        return list(value)
    raise TypeError(
        f"a value of type `{type(value).__module__}.{type(value).__qualname__}` cannot be sent as JSON"
    )


def clean(value: Any) -> Any:
    """The slow way: a copy that `json.dumps(allow_nan=False)` accepts."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return clean(simple(value))


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=simple).encode


def dumps(value: Any) -> bytes:
    """`value` as JSON in UTF-8."""
    try:
        text = _encode(value)
    except (ValueError, TypeError, RecursionError):
        text = _encode(clean(value))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return scrub(text).encode()


def loads(data: bytes) -> Any:
    """What JSON in `data` says."""
    return json.loads(data)

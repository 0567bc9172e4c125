"""Whose a source file is, and its lines."""

from __future__ import annotations

import linecache
import sys


def is_library(file: str) -> bool:
    """Does a file belong to Python or to an installed package?"""
    return "site-packages" in file or file.startswith((sys.base_prefix, "<frozen"))


def text_of(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()

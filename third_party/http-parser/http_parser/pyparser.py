# SPDX-License-Identifier: MIT
"""Imported by pymesos when a parser has an attribute ``errno``; ours has none, so the constant is never compared."""

from typing import Final

from http_parser.parser import HttpParser

INVALID_CHUNK: Final = 2

__all__ = ["INVALID_CHUNK", "HttpParser"]

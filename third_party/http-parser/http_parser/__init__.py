# SPDX-License-Identifier: MIT
"""The part of http-parser's interface that pymesos uses, on top of httptools.

The original is C code that no current Python can compile. Only names are shared with it.
"""

from http_parser.parser import HttpParser

__all__ = ["HttpParser"]

# SPDX-License-Identifier: MIT
"""Where pymesos imports the parser from."""

from http_parser.parser import HttpParser

__all__ = ["HttpParser"]

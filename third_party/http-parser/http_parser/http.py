# SPDX-License-Identifier: MIT
"""Module from which pymesos imports the parser."""

from http_parser.parser import HttpParser

__all__ = ["HttpParser"]

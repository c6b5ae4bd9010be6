"""The YAML files that commands take, ``-`` for standard input among them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

MessageT = TypeVar("MessageT", bound="Message")
STANDARD_INPUT = Path("-")


def load_config(path: Path, message_class: type[MessageT]) -> MessageT:
    """Raises ConfigError, which names the place."""
    from peloton.api.yaml_config import load_message, read_bounded

    if path == STANDARD_INPUT:
        name = "standard input"
        return load_message(read_bounded(sys.stdin.buffer, name), message_class, name)
    return load_message(path, message_class)

"""Protobuf JSON: keys in camelCase, 64-bit integers as text, enums by name, without zero and empty values.

The parser also accepts keys as in the .proto file, and enums by number.
"""

from __future__ import annotations

from typing import TypeVar

import orjson
from google.protobuf import json_format
from google.protobuf.message import Message

from peloton.api.wire_faults import missing
from peloton.errors import InvalidArgument
from peloton.model.text import shorten

M = TypeVar("M", bound=Message)

DEPTH_MAX = 100
"""Maximum nesting of messages."""
FAULT_CHARS_MAX = 300
"""Maximum length of quoted protobuf errors in characters, which contain the invalid input."""


def read_message(kind: type[M], text: bytes) -> M:
    """Parse a message. Raises InvalidArgument, naming the key."""
    message = kind()
    name = kind.DESCRIPTOR.name
    try:
        json_format.Parse(_object(text.decode()), message, max_recursion_depth=DEPTH_MAX)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the body is not UTF-8: byte {error.start} of {len(text)}") from error
    except (json_format.Error, ValueError, TypeError, RecursionError) as error:
        raise InvalidArgument(f"the body is no {name}: {shorten(str(error), FAULT_CHARS_MAX)}") from error
    if not message.IsInitialized():
        raise InvalidArgument(f"{name} lacks required fields: {missing(message)}")
    return message


def written(message: Message) -> bytes:
    return orjson.dumps(json_format.MessageToDict(message))


def _object(text: str) -> str:
    """Return the text if it is an object, since an empty list would be accepted as one. Raises ValueError."""
    if not text.lstrip(" \t\r\n").startswith("{"):
        raise ValueError("want an object, {...}")
    return text

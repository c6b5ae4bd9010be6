"""Messages as protobuf JSON: keys in camelCase, 64-bit integers as text, enums by name, what is zero or empty left out.

When it is read, keys may also be spelled as in the .proto file, and enums given by number.
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
"""Of messages in messages."""
FAULT_CHARS_MAX = 300
"""Characters of what protobuf says is wrong with a body: it quotes what it could not read."""


def read_message(kind: type[M], text: bytes) -> M:
    """Raises InvalidArgument, which names the key."""
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
    """An empty list would count as one. Raises ValueError."""
    if not text.lstrip(" \t\r\n").startswith("{"):
        raise ValueError("want an object, {...}")
    return text

"""Comments of the public .proto files on each service, method, message, field and enum.

Generated modules do not contain comments; they are in a table that is generated next to these modules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

TABLE = "comments.json"
"""File in the folder of this module."""

# Numbers of fields in descriptors of files, messages, enums and services: see google/protobuf/descriptor.proto.
_HEADING = (12,)
_FILE = {4: "message_type", 5: "enum_type", 6: "service"}
_BELOW = {
    "message_type": {2: "field", 3: "nested_type", 4: "enum_type"},
    "nested_type": {2: "field", 3: "nested_type", 4: "enum_type"},
    "enum_type": {2: "value"},
    "service": {2: "method"},
}


@cache
def _table() -> dict[str, str]:
    table: dict[str, str] = json.loads((Path(__file__).parent / TABLE).read_text(encoding="utf-8"))
    return table


def comment_of(name: str) -> str:
    """Return the comment of a full name, in which a value follows its enum, or of the path of a file. Empty lines
    separate paragraphs; "" without a comment."""
    return _table().get(name, "")


def comments_in(descriptors: Any) -> dict[str, str]:
    """Return the comments in a FileDescriptorSet with source info."""
    return {name: text for file in descriptors.file for name, text in _comments_of(file) if text}


def table_of(comments: dict[str, str]) -> str:
    return json.dumps(comments, indent=0, sort_keys=True) + "\n"


def _comments_of(file: Any) -> Iterator[tuple[str, str]]:
    for location in file.source_code_info.location:
        text = _join_lines(location.leading_comments)
        if tuple(location.path) == _HEADING:
            yield file.name, text
        elif name := _name_at(file, location.path):
            yield f"{file.package}.{name}", text


def _name_at(file: Any, path: Sequence[int]) -> str:
    """Return the name of the element at this path of a descriptor; "" for a part without a name."""
    names, at, kinds = [], file, _FILE
    if len(path) % 2:
        return ""
    for number, index in zip(path[::2], path[1::2], strict=True):
        kind = kinds.get(number, "")
        if not kind:
            return ""
        at = getattr(at, kind)[index]
        names.append(at.name)
        kinds = _BELOW.get(kind, {})
    return ".".join(names)


def _join_lines(comment: str) -> str:
    lines = [line.strip() for line in comment.strip().splitlines()]
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in "\n".join(lines).split("\n\n"))

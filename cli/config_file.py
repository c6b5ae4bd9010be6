"""The YAML files that commands take; ``-`` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli.errors import Failed

if TYPE_CHECKING:
    from google.protobuf.message import Message

MessageT = TypeVar("MessageT", bound="Message")
STANDARD_INPUT = Path("-")


def load_config(path: Path | str, message_class: type[MessageT]) -> MessageT:
    """Load a file, or the text of a template. Raises ConfigError, which names the place, and Failed for a file of
    another kind."""
    from peloton.api.yaml_config import BYTES_MAX, ConfigError, load_message
    from peloton.files import read_file, read_stream

    if isinstance(path, str):
        return load_message(path, message_class, "the template")
    name = "standard input" if path == STANDARD_INPUT else str(path)
    if path == STANDARD_INPUT:
        content = read_stream(sys.stdin.buffer, name, BYTES_MAX)
    else:
        content = read_file(path, "file", BYTES_MAX)
    try:
        return load_message(content, message_class, name)
    except ConfigError as error:
        if text := kind_refusal(content, name, message_class):
            raise Failed(text) from error
        raise


def kind_refusal(content: bytes, name: str, wanted: type[Message]) -> str:
    """Return why a file is not of the wanted kind, or "".

    It is of another kind if each of its top keys is one of some other kind, and not each is one of the wanted kind.
    """
    from cli.wire import v0, v1
    from peloton.api.respell import squash
    from peloton.api.yaml_config import top_keys

    kinds: dict[type[Message], tuple[str, str]] = {
        v0.job.JobConfig: ("a job", "peloton job create"),
        v1.job.JobSpec: ("a service in the words of v1alpha", "peloton job stateless create"),
        v0.respool.ResourcePoolConfig: ("a resource pool", "peloton respool create"),
    }
    if wanted not in kinds:
        return ""
    fields = {kind: {squash(field.name) for field in kind.DESCRIPTOR.fields} for kind in kinds}
    keys = top_keys(content, name)
    odd = sorted(keys - fields[wanted])
    if not odd:
        return ""
    for kind, (what, command) in kinds.items():
        if kind is not wanted and keys <= fields[kind]:
            return (
                f"{name} is the file of {what}: it has the key {odd[0]}; create it by `{command}`, "
                f"or give the file of {kinds[wanted][0]}"
            )
    return ""

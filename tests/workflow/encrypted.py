"""Recorded histories as they would be with the encrypting codec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import MarkerRecordedEventAttributes
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from services.secrets.keyring import Keyring, KeyringFile, write_keyring
from services.secrets.stores import make_converter
from services.settings import Settings

READ_BY_TEMPORAL = "search_attributes"
"""Field whose payloads no codec encodes."""


def make_encrypting(folder: Path) -> DataConverter:
    """Return the converter of a process that encrypts by a keyring in a folder."""
    path = folder / "keyring.json"
    write_keyring(path, Keyring("", {}).add("first", is_active=True), is_new=True)
    return make_converter(Settings(temporal_encryption=True, secrets_keyring_file=str(path)), KeyringFile(str(path)))


async def encrypt(history: WorkflowHistory, converter: DataConverter) -> int:
    """Encrypt all payloads of a history in place, those of headers among them; return their number."""
    assert converter.payload_codec is not None
    found = [payload for event in history.events for payload in find_payloads(event)]
    for payload in found:
        payload.CopyFrom((await converter.payload_codec.encode([payload]))[0])
    return len(found)


def find_payloads(message: Message) -> Iterator[Payload]:
    """Yield the payloads in a message that a codec encodes."""
    for field, value in message.ListFields():
        if field.name == READ_BY_TEMPORAL or field.message_type is None:
            continue
        if (
            isinstance(message, MarkerRecordedEventAttributes) and field.name == "details"
        ):  # the SDK reads the other details
            yield from value["result"].payloads if "result" in value else ()
            continue
        if field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"].message_type
            each: list[Any] = list(value.values()) if kind is not None else []
        else:
            each = list(value) if field.is_repeated else [value]
        for one in each:
            if isinstance(one, Payload):
                yield one
            else:
                yield from find_payloads(one)

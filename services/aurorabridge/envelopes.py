"""The encodings of calls: the original's bare structs, and the messages of Thrift in binary and in JSON."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TCyMemoryBuffer

from peloton.model.text import quote
from services.aurorabridge.bounds import DEPTH_MAX, VALUES_MAX, Malformed, scan
from services.aurorabridge.json_structs import read_json, to_json
from services.aurorabridge.splice import encode_spliced
from services.aurorabridge.thrift import api

SERVICES = {"ReadOnlyScheduler": api.ReadOnlyScheduler, "AuroraSchedulerManager": api.AuroraSchedulerManager}
JSON, BINARY, GENERIC = (
    "application/vnd.apache.thrift.json",
    "application/vnd.apache.thrift.binary",
    "application/x-thrift",
)
MEDIA_TYPES = (JSON, BINARY, GENERIC, "application/json", "application/octet-stream")
NAME_BYTES_MAX = 100
TOKENS_MAX = 4 * VALUES_MAX
"""Maximum number of commas and brackets in JSON, which bounds the memory of the parsed tree."""
_HEAD = struct.Struct("!HxBi")
_SEQUENCE = struct.Struct("!i")


class Encoding(Enum):
    BARE = "bare"  # a binary struct; the headers name the method
    BINARY = "binary"
    JSON = "json"


class Fault(Exception):
    """Failure of a call, with the status of HTTP, and the type that it has in a message of Thrift."""

    def __init__(self, text: str, status: int = 400, kind: int = TApplicationException.PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


@dataclass(frozen=True)
class Head:
    """The head of a call: which method, and where its arguments are."""

    encoding: Encoding
    service: str
    method: str
    body: Any  # bytes, or the parsed JSON of the arguments
    start: int = 0  # of the arguments in the bytes
    seqid: int = 0


def encoding_of(headers: Mapping[str, str]) -> Encoding | None:
    """Return the encoding that the headers name; None: the first byte of the body decides. Raises Fault."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if "rpc-procedure" in headers:
        if headers.get("rpc-encoding", "thrift") != "thrift":
            raise Fault(f"Rpc-Encoding is {quote(headers['rpc-encoding'])}, want thrift", 415)
        return Encoding.BARE
    if kind not in MEDIA_TYPES:
        raise Fault(f"the content type is {quote(kind)}, want one of {', '.join(MEDIA_TYPES)}", 415)
    return {JSON: Encoding.JSON, "application/json": Encoding.JSON, BINARY: Encoding.BINARY}.get(kind)


def read_head(encoding: Encoding | None, procedure: str, body: bytes) -> Head:
    """Read service and method of a call. Raises Fault."""
    if body[:2] == b"\x80\x01":  # no struct begins so, and no JSON
        return _read_binary_head(body)
    if encoding is Encoding.BARE:
        service, separator, method = procedure.partition("::")
        if not separator:
            raise Fault(f"Rpc-Procedure is {quote(procedure)}, want SERVICE::METHOD")
        return Head(Encoding.BARE, service, method, body)
    if encoding is Encoding.JSON or (encoding is None and body.lstrip()[:1] == b"["):
        return _read_json_head(body)
    raise Fault("the body is no message of Thrift: it does not begin with the version of the binary protocol")


def _read_binary_head(body: bytes) -> Head:
    at = _HEAD.size
    try:
        _, kind, size = _HEAD.unpack_from(body)
        if not 0 < size <= NAME_BYTES_MAX:
            raise Fault(f"the name of the method claims {size:,} bytes, want 1 to {NAME_BYTES_MAX}")
        [seqid] = _SEQUENCE.unpack_from(body, at + size)
        name = body[at : at + size].decode()
    except (struct.error, UnicodeDecodeError):
        raise Fault("the head of the message is cut off, or its method is not UTF-8") from None
    _check_call(kind)
    return Head(Encoding.BINARY, "AuroraSchedulerManager", name, body, at + size + _SEQUENCE.size, seqid)


def _read_json_head(body: bytes) -> Head:
    if sum(map(body.count, (b",", b"[", b"{"))) > TOKENS_MAX:
        raise Fault(f"the JSON has more than {TOKENS_MAX:,} values")
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Fault(f"the body is no JSON: {error}") from None
    if not isinstance(found, list) or len(found) != 5 or found[0] != 1:
        raise Fault("the JSON is not [1, method, type, sequence number, arguments]")
    _, name, kind, seqid, tree = found
    if not isinstance(name, str) or not 0 < len(name) <= NAME_BYTES_MAX:
        raise Fault(f"the method is no name of 1 to {NAME_BYTES_MAX} characters")
    _check_call(kind)
    if type(seqid) is not int or seqid.bit_length() > 31:
        raise Fault("the sequence number is no whole number of 32 bits")
    return Head(Encoding.JSON, "AuroraSchedulerManager", name, tree, seqid=seqid)


def _check_call(kind: object) -> None:
    if kind != TMessageType.CALL:
        raise Fault(f"the message is of type {kind}, want {TMessageType.CALL}, a call")


def read_arguments(head: Head) -> tuple[Any, int]:
    """Return the struct of the arguments, and the number of its values. Raises Fault."""
    service = SERVICES.get(head.service)
    if service is None or head.method not in service.thrift_services:
        text = f"there is no method {quote(f'{head.service}::{head.method}')}"
        raise Fault(text, 501, TApplicationException.UNKNOWN_METHOD)
    kind = getattr(service, f"{head.method}_args")
    try:
        if head.encoding is Encoding.JSON:
            return read_json(head.body, kind)
        end, values = scan(head.body, head.start, kind)
        if end != len(head.body):
            raise Malformed(f"{len(head.body) - end:,} bytes follow the arguments")
    except Malformed as error:
        raise Fault(f"{head.method}: {error}") from None
    arguments = kind()
    transport = TCyMemoryBuffer(head.body[head.start :])
    TCyBinaryProtocol(transport, strict_decode=True, max_depth=2 * DEPTH_MAX).read_struct(arguments)
    return arguments, values


def write_answer(head: Head, response: Any) -> bytes:
    """Return the message that answers a call: the result of the method, or a fault of the transport."""
    if isinstance(response, Fault):
        answer, kind = TApplicationException(response.kind, str(response)), TMessageType.EXCEPTION
    else:
        result = getattr(SERVICES[head.service], f"{head.method}_result")
        answer, kind = result(success=response), TMessageType.REPLY
    if head.encoding is Encoding.JSON:
        return orjson.dumps([1, head.method, kind, head.seqid, to_json(answer)])
    transport = TCyMemoryBuffer()
    if head.encoding is Encoding.BINARY:
        TCyBinaryProtocol(transport).write_message_begin(head.method, kind, head.seqid)
    return b"".join([transport.getvalue(), *encode_spliced(answer)])

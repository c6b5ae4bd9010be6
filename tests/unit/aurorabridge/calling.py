"""Calls of Aurora's API as clients of each encoding write them, and the readers of their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.testclient import TestClient
from thriftpy2.protocol.apache_json import TApacheJSONProtocol
from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TCyMemoryBuffer

from services.aurorabridge.app import create_app
from services.aurorabridge.backend import Backend
from services.aurorabridge.envelopes import BINARY, JSON, SERVICES
from services.aurorabridge.method import Method
from services.aurorabridge.thrift import api

SEQUENCE = 7


def service_of(method: str) -> str:
    return "ReadOnlyScheduler" if method in api.ReadOnlyScheduler.thrift_services else "AuroraSchedulerManager"


@dataclass(frozen=True)
class Encoding:
    """A client's encoding: its protocol, whether it sends messages, and the headers of its requests."""

    protocol: Any
    has_messages: bool
    media_type: str

    def headers(self, method: str) -> dict[str, str]:
        if self.has_messages:
            return {"content-type": self.media_type}
        return {
            "Rpc-Service": "peloton-aurorabridge",
            "Rpc-Procedure": f"{service_of(method)}::{method}",
            "Rpc-Encoding": "thrift",
            "Rpc-Caller": "test",
            "Context-TTL-MS": "30000",
        }

    def write(self, method: str, **arguments: Any) -> bytes:
        buffer = TCyMemoryBuffer()
        protocol = self.protocol(buffer)
        if self.has_messages:
            protocol.write_message_begin(method, TMessageType.CALL, SEQUENCE)
        protocol.write_struct(getattr(SERVICES[service_of(method)], f"{method}_args")(**arguments))
        return bytes(buffer.getvalue())

    def read(self, method: str, data: bytes) -> Any:
        """Return the answer of the method, or the exception of Thrift."""
        protocol = self.protocol(TCyMemoryBuffer(data))
        kind = TMessageType.REPLY
        if self.has_messages:
            name, kind, sequence = protocol.read_message_begin()
            assert (method, SEQUENCE) == (name, sequence)
        if kind == TMessageType.EXCEPTION:
            found = TApplicationException()
            protocol.read_struct(found)
            return found
        result = getattr(SERVICES[service_of(method)], f"{method}_result")()
        protocol.read_struct(result)
        return result.success


ENCODINGS = {
    "bare": Encoding(TCyBinaryProtocol, False, ""),
    "binary": Encoding(TCyBinaryProtocol, True, BINARY),
    "generic": Encoding(TCyBinaryProtocol, True, "application/x-thrift"),
    "json": Encoding(TApacheJSONProtocol, True, JSON),
    "generic json": Encoding(TApacheJSONProtocol, True, "application/x-thrift"),
}


def client_of(**methods: Method) -> TestClient:
    return TestClient(create_app(Backend("127.0.0.1:1"), methods), base_url="http://bridge")


def details_of(response: Any) -> tuple[int, list[str]]:
    """Return the code and the texts of an answer."""
    return response.responseCode, [one.message for one in response.details]

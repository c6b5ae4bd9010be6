"""Frames of WebSockets."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.lab.shared.http.websocket import (
    BINARY,
    CLOSE,
    MESSAGE_BYTES_MAX,
    PING,
    Messages,
    WebSocketError,
    chosen_protocol,
    frame,
    handshake,
)
from tests.unit.lab.shared.websockets import mask_frame

SIZES = st.sampled_from([0, 1, 125, 126, 65_535, 65_536])


@given(sizes=st.lists(SIZES, max_size=4), cut=st.integers(1, 70_000))
def test_messages_come_out_as_they_went_in(sizes: list[int], cut: int) -> None:
    """Messages of every frame size are read whole, however the bytes are cut."""
    sent = [os.urandom(size) for size in sizes]
    data = b"".join(mask_frame(BINARY, payload) for payload in sent)
    messages = Messages()

    found = [message for at in range(0, len(data), cut) for message in messages.feed(data[at : at + cut])]

    assert [(BINARY, payload) for payload in sent] == found


def test_a_message_in_pieces() -> None:
    """A fragmented message is joined, with a ping between its fragments."""
    data = mask_frame(BINARY, b"one ", False) + mask_frame(PING, b"p") + mask_frame(0, b"two") + mask_frame(CLOSE, b"")

    assert [(PING, b"p"), (BINARY, b"one two"), (CLOSE, b"")] == list(Messages().feed(data))


@pytest.mark.parametrize(
    "data", [frame(BINARY, b"x"), bytes((0x82, 0xFF)) + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big")]
)
def test_what_no_client_may_send(data: bytes) -> None:
    """Frames without a mask and frames above the size limit are rejected."""
    with pytest.raises(WebSocketError):
        list(Messages().feed(data))


def test_the_handshake() -> None:
    """The handshake is the example of RFC 6455, with the first supported protocol that the client offers."""
    headers = {
        "upgrade": "websocket",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol": "b, a",
    }

    assert "a" == chosen_protocol(headers, ("a", "b"))
    assert chosen_protocol(headers, ("c",)) is None
    assert chosen_protocol({}, ("a",)) is None
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in handshake(headers, "a")

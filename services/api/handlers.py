"""Handlers of gRPC methods, as interceptors change them."""

from __future__ import annotations

from typing import Any

import grpc


def answering(handler: Any) -> Any:
    """What gives the one response of a method; None for a method that streams them."""
    return handler.unary_unary or handler.stream_unary


def changed(handler: Any, answer: Any = None, stream: Any = None) -> Any:
    """A handler of the same kind that does this instead: ``answer`` for one response, ``stream`` for many."""
    make: Any = grpc.unary_unary_rpc_method_handler
    if handler.unary_stream is not None:
        make, answer = grpc.unary_stream_rpc_method_handler, stream
    elif handler.stream_unary is not None:
        make = grpc.stream_unary_rpc_method_handler
    return make(answer, handler.request_deserializer, handler.response_serializer)

"""Channels to servers with TLS, which follow their files: new calls go by a new connection when a file has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import grpc
import grpc.aio

from peloton.api.tls_files import PemFiles

Options = Sequence[tuple[str, Any]]
NAME_OPTION = "grpc.ssl_target_name_override"


class PlainChannels:
    """Opens channels of plain text."""

    def open(self, target: str, options: Options) -> grpc.Channel:
        return grpc.insecure_channel(target, options=list(options))

    def open_async(self, target: str, options: Options, interceptors: Sequence[Any] = ()) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(target, options=list(options), interceptors=interceptors)


class TlsChannels(PlainChannels):
    """Opens channels whose servers prove by a certificate who they are, and which show one if there is one."""

    def __init__(self, files: PemFiles, server_name: str = "") -> None:
        """``server_name``: the name that certificates of servers must have; empty: that by which each is reached."""
        self.files = files
        self._server_name = server_name

    def open(self, target: str, options: Options) -> grpc.Channel:
        def make() -> grpc.Channel:
            return grpc.secure_channel(target, self._credentials(), options=self._with_name(target, options))

        return cast("grpc.Channel", ReloadingChannel(make, self.files))

    def open_async(self, target: str, options: Options, interceptors: Sequence[Any] = ()) -> grpc.aio.Channel:
        def make() -> grpc.aio.Channel:
            return grpc.aio.secure_channel(
                target, self._credentials(), options=self._with_name(target, options), interceptors=interceptors
            )

        return cast("grpc.aio.Channel", ReloadingChannel(make, self.files))

    def _credentials(self) -> grpc.ChannelCredentials:
        pem = self.files.get()
        return grpc.ssl_channel_credentials(pem.ca or None, pem.key or None, pem.cert or None)

    def _with_name(self, target: str, options: Options) -> list[tuple[str, Any]]:
        name = self._server_name or _name_of_several(target)
        return [*options, *([(NAME_OPTION, name)] if name else ())]


def _name_of_several(target: str) -> str:
    """Return the name that certificates of several addresses must have: the first of them. gRPC checks one address by
    itself.
    """
    first, comma, _ = target.removeprefix("ipv4:").partition(",")
    return first.rpartition(":")[0] if comma else ""


class ReloadingChannel:
    """A channel of either kind that is opened again, for new calls, when files have changed.

    Calls in flight stay on the connection of the channel before, which ends with the last of them.
    """

    def __init__(self, make: Callable[[], Any], files: PemFiles) -> None:
        self._make, self._files = make, files
        self._opened = (files.generation, make())

    def current(self) -> Any:
        self._files.get()
        generation = self._files.generation
        if self._opened[0] != generation:
            self._opened = (generation, self._make())
        return self._opened[1]

    def unary_unary(self, *args: Any, **options: Any) -> Method:
        return Method(self, "unary_unary", args, options)

    def unary_stream(self, *args: Any, **options: Any) -> Method:
        return Method(self, "unary_stream", args, options)

    def stream_unary(self, *args: Any, **options: Any) -> Method:
        return Method(self, "stream_unary", args, options)

    def stream_stream(self, *args: Any, **options: Any) -> Method:
        return Method(self, "stream_stream", args, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current(), name)


class Method:
    """A method of a service, called on the current channel."""

    def __init__(self, channel: ReloadingChannel, kind: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._channel = channel

        def bind(current: Any) -> Any:
            return getattr(current, kind)(*args, **options)

        self._bind = bind
        self._bound: tuple[Any, Any] = (None, None)

    def _current(self) -> Any:
        channel, bound = self._channel.current(), self._bound
        if bound[0] is not channel:
            bound = self._bound = (channel, self._bind(channel))
        return bound[1]

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._current()(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)


class HeadersChannel:
    """Adds headers where calls begin. It has no interceptors, which would hide how a stream is sent."""

    def __init__(self, channel: Any, headers: Callable[[], Sequence[tuple[str, str]]]) -> None:
        self._channel, self._headers = channel, headers

    def unary_unary(self, *words: Any, **named: Any) -> Any:
        return self._adding(self._channel.unary_unary(*words, **named))

    def unary_stream(self, *words: Any, **named: Any) -> Any:
        return self._adding(self._channel.unary_stream(*words, **named))

    def stream_unary(self, *words: Any, **named: Any) -> Any:
        return self._adding(self._channel.stream_unary(*words, **named))

    def stream_stream(self, *words: Any, **named: Any) -> Any:
        return self._adding(self._channel.stream_stream(*words, **named))

    def _adding(self, method: Any) -> Any:
        def call(*words: Any, **named: Any) -> Any:
            if headers := self._headers():
                named["metadata"] = (*(named.get("metadata") or ()), *headers)
            return method(*words, **named)

        return call

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    async def __aenter__(self) -> HeadersChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

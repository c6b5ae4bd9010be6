"""A proxy that ends TLS before a Temporal server, as the development server has none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from services.lab.shared.http.tls import tls_context

CERTIFICATES = Path(__file__).parents[2] / "certificates"


@asynccontextmanager
async def behind_tls(
    address: str,
    port: int = 0,
    certificate: Path = CERTIFICATES / "server.pem",
    authority: Path = CERTIFICATES / "ca.pem",
    issuers: list[str] | None = None,
) -> AsyncIterator[str]:
    """A proxy that requires a certificate of the authority, and passes bytes on in the clear. ``issuers`` has those of
    the certificates on open connections.
    """
    context = tls_context(certificate, authority)
    context.set_alpn_protocols(["h2"])
    host, _, there_port = address.rpartition(":")
    connections: set[asyncio.Task[None]] = set()
    issuers = [] if issuers is None else issuers

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        issuer = str(writer.get_extra_info("peercert")["issuer"])
        issuers.append(issuer)
        there, back = await asyncio.open_connection(host, int(there_port))
        pumps = [asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer))]
        with suppress(asyncio.CancelledError):
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        issuers.remove(issuer)
        for one in pumps:
            one.cancel()
        for end in (writer, back):
            end.transport.abort()
            with suppress(OSError):
                await end.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

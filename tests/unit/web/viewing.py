"""A viewer without a network, whose connection a test opens and closes."""

from __future__ import annotations

import asyncio
from typing import Any

from services.web.gateway import Gateway


async def answer_of(
    gateway: Gateway, path: str, body: bytes, gone: asyncio.Event | None = None, begun: asyncio.Event | None = None
) -> tuple[int, Any, bytes]:
    """Return status, headers and body for a viewer that stays until ``gone`` is set."""
    service, _, name = path.partition("/")
    sent: list[Any] = []
    incoming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if begun is not None:
            begun.set()

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/api/{path}",
        "path_params": {"service": service, "method": name},
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "server": ("web", 80),
        "scheme": "http",
    }
    route = gateway.routes()[-1]
    await route.app(scope, receive, send)
    head: dict[str, Any] = sent[0] if sent else {"status": 0, "headers": []}
    headers = {name.decode(): text.decode() for name, text in head["headers"]}
    return head["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])


def code_text_reason(problem: dict[str, Any]) -> tuple[str, str, str]:
    """Return code and text of an error as pages receive it, and its reason."""
    (info,) = (one for one in problem["details"] if one["type"] == "google.rpc.ErrorInfo")
    return problem["code"], problem["message"], info["debug"]["reason"]

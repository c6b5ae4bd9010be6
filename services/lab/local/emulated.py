"""Calls of `peloton up` to the clusters that it emulates."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from peloton.errors import InvalidArgument, NotFound, Unavailable

TIMEOUT_S = 10.0


def ask(
    name: str, address: str, token: str, method: str, path: str, body: object = None, *, ca_file: Path | None = None
) -> Any:
    """Return the parsed answer of an emulation. Raises Unavailable, or NotFound or InvalidArgument with its message.

    ``ca_file``: authority of its certificate; None: it speaks plain text.
    """
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    if ca_file is not None:
        context = ssl.create_default_context(cafile=ca_file)
        connection = http.client.HTTPSConnection(address, timeout=TIMEOUT_S, context=context)
    try:
        text = json.dumps(body) if body is not None else None
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection.request(method, path, body=text, headers=headers)
        response = connection.getresponse()
        answer = response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{name} does not answer: {error}") from error
    finally:
        connection.close()
    parsed = json.loads(answer) if answer.startswith(("[", "{")) else answer
    if response.status == 200:
        return parsed
    kind = NotFound if response.status == 404 else InvalidArgument
    raise kind(str(parsed.get("message", answer)) if isinstance(parsed, dict) else answer)

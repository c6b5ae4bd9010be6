"""What `peloton up` asks the Mesos clusters that it emulates."""

from __future__ import annotations

import http.client
import json
from typing import Any

from peloton.errors import InvalidArgument, NotFound, Unavailable

TIMEOUT_S = 10.0


def ask(master: str, token: str, method: str, path: str, body: object = None) -> Any:
    """The parsed answer of minicluster. Raises Unavailable, NotFound or InvalidArgument with its words."""
    connection = http.client.HTTPConnection(master, timeout=TIMEOUT_S)
    try:
        text = json.dumps(body) if body is not None else None
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection.request(method, path, body=text, headers=headers)
        response = connection.getresponse()
        answer = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"minicluster does not answer: {error}") from error
    finally:
        connection.close()
    if response.status == 404:
        raise NotFound(answer.strip())
    if response.status != 200:
        raise InvalidArgument(answer.strip())
    return json.loads(answer) if answer.strip().startswith(("[", "{")) else answer

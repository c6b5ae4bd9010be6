"""`/minicluster/images`: which images are on which hosts, and fetching them ahead. Mesos has no such endpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import orjson

from services.minicluster.agents.images import Images
from services.minicluster.http.cross_site import body_fault
from services.minicluster.http.server import Request, Response, json_response, plain
from services.minicluster.model import Agent

PATH = "/minicluster/images"
PREFETCH_MAX = 10_000
"""Images on hosts in one call."""
_SHAPE = 'Expected {"images": [{"image": NAME, "hosts": [NAME, ...]}, ...]}'


class ImagesApi:
    def __init__(self, images: Images, agents: Mapping[str, Agent]) -> None:
        """``agents`` by host."""
        self._images = images
        self._agents = agents

    def handle(self, request: Request) -> Response:
        """GET lists images by host; POST makes hosts fetch images, and answers at once with the outcomes."""
        if request.method == "GET":
            return json_response(orjson.dumps(self._images.page()))
        if request.method != "POST":
            return plain(405, f"Images are listed with GET and fetched with POST, not {request.method}")
        if (fault := body_fault(request.headers)) is not None:
            return plain(415, fault)
        try:
            wanted = _parsed(request.body)
        except ValueError as error:
            return plain(400, str(error))
        return json_response(orjson.dumps(Counter(self._prefetch(host, image) for image, host in wanted)))

    def _prefetch(self, host: str, image: str) -> str:
        """The outcome; also `unknown` for a host that does not exist, and `away` while its agent is not online."""
        agent = self._agents.get(host)
        if agent is None:
            return "unknown"
        return self._images.prefetch(host, image) if agent.online else "away"


def _parsed(body: bytes) -> list[tuple[str, str]]:
    """(image, host); raises ValueError."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"The body is not JSON: {error}") from error
    rows = parsed.get("images") if isinstance(parsed, dict) else None
    if not isinstance(rows, list):
        raise ValueError(_SHAPE)
    wanted: list[tuple[str, str]] = []
    for row in rows:
        image, hosts = (row.get("image"), row.get("hosts")) if isinstance(row, dict) else (None, None)
        if not isinstance(image, str) or not image or not isinstance(hosts, list):
            raise ValueError(_SHAPE)
        if not all(isinstance(host, str) for host in hosts):
            raise ValueError(_SHAPE)
        wanted += [(image, host) for host in hosts]
    if len(wanted) > PREFETCH_MAX:
        raise ValueError(f"{len(wanted)} images on hosts are more than the {PREFETCH_MAX} of one call")
    return wanted

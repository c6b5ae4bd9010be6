"""Prefetching of images on hosts through an HTTP endpoint, if one is configured; cluster drivers do not prefetch."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from peloton.errors import InvalidArgument, Unavailable
from peloton.model.host import Prefetched
from peloton.model.ids import Hostname
from peloton.ports import ImagePrefetcher

TIMEOUT_S = 3.0
CALLS_MAX = 4
"""Limit of concurrent calls, so that an endpoint that hangs does not occupy all threads of the host manager."""
_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


class NoPrefetcher:
    """Implements ``ports.ImagePrefetcher`` without prefetching: hosts fetch images when a pod requires them."""

    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        return Prefetched(is_possible=False)


class HttpPrefetcher:
    """Implements ``ports.ImagePrefetcher`` with an endpoint that accepts ``{"images": [{"image", "hosts"}]}`` and has
    hosts fetch them, as minicluster's does. The endpoint answers at once, and does not report the result of the
    downloads."""

    def __init__(self, url: str) -> None:
        """Raise InvalidArgument for a URL without HTTP scheme or host."""
        parts = urlsplit(url)
        if parts.scheme not in _CONNECTIONS or not parts.hostname:
            raise InvalidArgument(f"image prefetch at {url!r}: want http://HOST[:PORT]/PATH or https://...")
        self._url = url
        self._connection = _CONNECTIONS[parts.scheme]
        self._address = parts.netloc.rpartition("@")[2]
        self._path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        self._permits = threading.BoundedSemaphore(CALLS_MAX)

    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        if not images:
            return Prefetched()
        if not self._permits.acquire(blocking=False):
            raise Unavailable(f"image prefetch at {self._url}: {CALLS_MAX} calls are under way already")
        try:
            self._post({"images": [{"image": image, "hosts": hosts} for image, hosts in images.items()]})
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"image prefetch at {self._url}: {error}") from error
        finally:
            self._permits.release()
        return Prefetched(sum(map(len, images.values())))

    def _post(self, body: object) -> None:
        connection = self._connection(self._address, timeout=TIMEOUT_S)
        try:
            connection.request("POST", self._path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
            if response.status >= 300:
                raise OSError(f"HTTP {response.status} {text[:200].decode(errors='replace')}")
        finally:
            connection.close()


def prefetcher(url: str) -> ImagePrefetcher:
    """Return the prefetcher for the ``url`` of the endpoint; without a URL none is used."""
    return HttpPrefetcher(url) if url else NoPrefetcher()

"""Images on hosts: the present ones, and the downloads of others.

An image is a name and a time to wait: nothing is downloaded, and tasks run as plain processes all the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from services.lab.shared.clock import Clock, Timer

IMAGES_MAX = 100
"""Limit of the images, and of the downloads, of one host."""


@dataclass
class ImageCounts:
    """The counts of all hosts since the start."""

    hits: int = 0  # tasks that found their image
    joined: int = 0  # tasks that waited for a download under way
    misses: int = 0  # tasks that began a download
    prefetched: int = 0  # downloads that a prefetch began
    evicted: int = 0


class ImageCache:
    """The images of one host, at most `images_max`; the least recently used one is removed first."""

    def __init__(self, clock: Clock, download_s: Callable[[str], float], images_max: int, counts: ImageCounts) -> None:
        self._clock = clock
        self._download_s = download_s
        self._images_max = images_max
        self._counts = counts
        self._present: OrderedDict[str, None] = OrderedDict()
        self._downloads: dict[str, float] = {}  # image -> end of its download

    def use(self, image: str, begin: Callable[[], None]) -> Timer | None:
        """Begin now if the image is present; otherwise at the end of its download, unless the timer is cancelled."""
        if image in self._present:
            self._present.move_to_end(image)
            self._counts.hits += 1
            begin()
            return None
        due = self._downloads.get(image)
        if due is None:
            self._counts.misses += 1
            due = self._download(image)
        else:
            self._counts.joined += 1
        return self._clock.call_at(due, begin)

    def prefetch(self, image: str) -> str:
        """Begin a download ahead of use, and return the outcome.

        The image is `present` or `downloading` already, its download has `begun`, or it is `refused` because the host
        has its limit of downloads under way.
        """
        if image in self._present:
            self._present.move_to_end(image)
            return "present"
        if image in self._downloads:
            return "downloading"
        if len(self._downloads) >= self._images_max:
            return "refused"
        self._counts.prefetched += 1
        self._download(image)
        return "begun"

    def _download(self, image: str) -> float:
        due = self._downloads[image] = self._clock.now() + self._download_s(image)
        self._clock.call_at(due, self._finish_download, image)  # before the waiting tasks, which are called later
        return due

    def _finish_download(self, image: str) -> None:
        del self._downloads[image]
        self._present[image] = None
        if len(self._present) > self._images_max:
            self._present.popitem(last=False)
            self._counts.evicted += 1

    def row(self) -> dict[str, Any]:
        """Return the images by name, the least recently used one first."""
        return {"present": list(self._present), "downloading": list(self._downloads)}


class Images:
    """The caches of all hosts. They keep their images when agents stop or leave."""

    def __init__(self, clock: Clock, download_s: Callable[[str, str], float]) -> None:
        """Take ``download_s``: seconds to download an image (the second argument) to a host (the first one)."""
        self._clock = clock
        self._download_s = download_s
        self._hosts: dict[str, ImageCache] = {}
        self.counts = ImageCounts()

    def use(self, host: str, image: str, begin: Callable[[], None]) -> Timer | None:
        """Begin as `ImageCache.use` does; a task without an image begins now."""
        if image:
            return self._cache_of(host).use(image, begin)
        begin()
        return None

    def _cache_of(self, host: str) -> ImageCache:
        cache = self._hosts.get(host)
        if cache is None:
            download_s = partial(self._download_s, host)
            cache = self._hosts[host] = ImageCache(self._clock, download_s, IMAGES_MAX, self.counts)
        return cache

    def prefetch(self, host: str, image: str) -> str:
        return self._cache_of(host).prefetch(image)

    def page(self) -> dict[str, Any]:
        return {"counts": asdict(self.counts), "hosts": {host: self._hosts[host].row() for host in sorted(self._hosts)}}

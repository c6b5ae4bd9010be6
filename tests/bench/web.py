"""Cost of pages: CPU of roles web and api while many viewers have a page of a busy cluster open, and the time to draw
it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from services.lab.local.cluster import LocalSettings
from tests.bench.busy import Busy
from tests.bench.cluster import Cluster, peak_memory_mib
from tests.bench.figures import Missing, cpu_s
from tests.bench.paint import measure_trace
from tests.bench.wide import hold
from tests.browser.chromium import lacking
from tests.browser.pages import pages
from tests.browser.views import chromium, open_view

TARGET_PERCENT = 5.0
"""Percent of one core of the api, for all viewers of a page."""
TARGET_DRAWN_MS = 2_000.0
TIMEOUT_S = 120.0
REPLACED_PER_S = 1 / 5_000
"""Pods replaced a second, so that figures change meanwhile: unchanged ones are not sent. As many short pods come and
go.
"""
READ_BYTES = 1 << 16
EVENT_BYTES_MAX = 16 << 20


def web(host_count: int = 50_000, pods_per_host: int = 2, viewers: int = 50, seconds: float = 30.0) -> dict[str, Any]:
    """Each page of which a cluster without services has one, one after the other."""
    if why := lacking():
        raise Missing(why)
    with Cluster(LocalSettings(port=0, simulate=host_count, web=True)) as cluster:
        job, _ = hold(cluster, host_count * pods_per_host)
        given = {"jobs/:id": job, "hosts/:name": "sim-00000", "pools/:path*": "wide"}
        shown = [page for page in pages() if page.is_given(given)]
        instances = host_count * pods_per_host
        with Busy(cluster, job, instances, max(1, round(instances * REPLACED_PER_S))) as busy:
            busy.warm(cluster)
            alone = _percent(cluster, seconds)  # before the first page: topics are polled without viewers, too
            found = {page.name: _of_page(cluster, busy, page.address(given), viewers, seconds) for page in shown}
        memory_mib = peak_memory_mib(cluster)["web"]
    ratios = [
        ratio
        for one in found.values()
        for ratio in (
            (one["percent_of_a_core"]["api"] - alone["api"]) / TARGET_PERCENT,
            one["drawn_ms"] / TARGET_DRAWN_MS,
        )
    ]
    return {
        "hosts": host_count,
        "pods": host_count * pods_per_host,
        "viewers": viewers,
        "percent_of_a_core_without": alone,
        "pages": found,
        "web_peak_memory_mib": memory_mib,
        "ratio_to_target": round(max(ratios), 2),
    }


def web_paint(host_count: int = 50_000, pods_per_host: int = 2) -> dict[str, Any]:
    """The maps of all instances of a job and of all hosts, each with a trace for the developer tools of Chromium."""
    if why := lacking():
        raise Missing(why)
    with Cluster(LocalSettings(port=0, simulate=host_count, web=True)) as cluster:
        job, _ = hold(cluster, host_count * pods_per_host)
        drawn = {}
        for name, address in (("job", f"/jobs/{job}"), ("hosts", "/hosts")):
            trace = Path(tempfile.gettempdir(), f"peloton-web-paint-{name}.json")
            drawn[name] = measure_trace(cluster.local.web_url + address, trace) | {"trace": str(trace)}
    return {
        "hosts": host_count,
        "instances": host_count * pods_per_host,
        "pages": drawn,
        "ratio_to_target": round(max(one["drawn_ms"] for one in drawn.values()) / TARGET_DRAWN_MS, 2),
    }


def _of_page(cluster: Cluster, busy: Busy, address: str, viewers: int, seconds: float) -> dict[str, Any]:
    drawn_ms, stream = _drawn(cluster.local.web_url + address)
    with _Viewers(stream, viewers if stream else 0) as watching:
        cluster.wait(lambda: watching.heard == watching.count, "news for all viewers", TIMEOUT_S)
        before, since_ns = watching.bytes, time.time_ns()
        used = _percent(cluster, seconds)
        read, until_ns = watching.bytes - before, time.time_ns()
    return {
        "drawn_ms": round(drawn_ms),
        "percent_of_a_core": used,
        "first_event_bytes": watching.first_bytes,
        "bytes_per_viewer_second": round(read / viewers / seconds),
        "pods": busy.figures(since_ns, until_ns),
        "load": round(os.getloadavg()[0], 1),
    }


def _drawn(url: str) -> tuple[float, str]:
    """Return the seconds from the first byte until the page is drawn with live data, and the stream that it reads. It
    is loaded twice: a browser that has just started is slower.
    """
    with chromium() as browser:
        with open_view(browser, url):
            pass
        with open_view(browser, url) as page:
            return float(page.view.evaluate("performance.now()")), page.stream


def _percent(cluster: Cluster, seconds: float) -> dict[str, float]:
    """Return the percent of one core that the roles of pages use."""
    before, began_s = _cpu_s(cluster), time.monotonic()
    time.sleep(seconds)
    took_s, after = time.monotonic() - began_s, _cpu_s(cluster)
    return {role: round(100 * (after[role] - before[role]) / took_s, 2) for role in after}


def _cpu_s(cluster: Cluster) -> dict[str, float]:
    parts = [(role, cluster.local.part(role).process) for role in ("web", "api")]
    return {role: cpu_s(process.pid, digits=2) for role, process in parts if process is not None}


class _Viewers:
    """Streams of so many open pages, without a browser."""

    def __init__(self, stream: str, count: int) -> None:
        self._stream, self.count = stream, count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.bytes = 0
        self.heard = 0
        """Viewers that have had their first event."""
        self.first_bytes = 0

    def __enter__(self) -> _Viewers:
        self._thread.start()
        self._all = asyncio.run_coroutine_threadsafe(self._read_all(), self._loop)
        return self

    def __exit__(self, *exc: object) -> None:
        self._all.cancel()
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _drain(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _read_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.count):
                group.create_task(self._read(self._stream))

    async def _read(self, stream: str) -> None:
        url = urlsplit(stream)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=EVENT_BYTES_MAX)
        try:
            writer.write(f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
            await reader.readuntil(b"\nevent: ")
            self.first_bytes = len(await reader.readuntil(b"\n\n"))
            self.heard += 1
            while data := await reader.read(READ_BYTES):
                self.bytes += len(data)
        finally:
            writer.close()
            await writer.wait_closed()

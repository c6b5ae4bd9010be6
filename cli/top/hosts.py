"""The pages of hosts and of one host: whether it takes pods, and the pods on it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rich.text import Text

from cli.errors import Failed
from cli.host.why import reasons
from cli.output import silent_clusters_text
from cli.times import seconds_text
from cli.top.job import InstancePage
from cli.top.page import Page, Picture
from cli.top.reading import OneHost, Reader
from cli.top.rows import HOST_ORDERS, host_grid, pod_grid
from cli.wire import v0


class HostsPage(Page):
    title = "Hosts"
    orders = HOST_ORDERS

    def make_query(self) -> Callable[[Reader], Picture]:
        order, wanted = HOST_ORDERS[self.order_index], self.wanted

        def ask(reader: Reader) -> Picture:
            answer = reader.hosts()
            silent = [Text(silent_clusters_text(answer.silent_clusters), "red")] if answer.silent_clusters else []
            return Picture(host_grid(answer, order, wanted), silent, f"{len(answer.host_infos)} hosts")

        return ask

    def same_as(self) -> str:
        return "peloton host query"

    def open_page(self, key: str) -> Page:
        return HostPage(key)


class HostPage(Page):
    def __init__(self, hostname: str) -> None:
        super().__init__()
        self.hostname = hostname
        self.title = hostname

    def make_query(self) -> Callable[[Reader], Picture]:
        hostname, wanted = self.hostname, self.wanted

        def ask(reader: Reader) -> Picture:
            found = reader.host(hostname)
            if found.info is None:
                raise Failed(f"unknown host {hostname}")
            pods = found.pods.answer or v0.overview.GetHostPodsResponse()
            more = f"only the first {len(pods.pods)}" if pods.has_more else ""
            return Picture(pod_grid(pods.pods, wanted, datetime.now(UTC)), list(head(found)), more)

        return ask

    def same_as(self) -> str:
        host = shlex.quote(self.hostname)
        return f"peloton host why {host}; peloton host events {host}; peloton host drain {host} --plan"

    def open_page(self, key: str) -> Page:
        job_id, _, instance_id = key.rpartition("-")
        return InstancePage(job_id, int(instance_id))


def head(found: OneHost) -> Iterator[Text]:
    assert found.info is not None
    for line in reasons(found.info, list(found.drains)):
        yield Text(line)
    for event in found.events.answer.events if found.events.answer else ():
        yield Text(f"{seconds_text(event.time)}  {event.text}", style="dim")
    if found.events.error:
        yield Text(f"Its events are unavailable: {found.events.error}", style="red")
    if found.pods.error:
        yield Text(f"Its pods are unavailable: {found.pods.error}", style="red")

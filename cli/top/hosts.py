"""Hosts, and one host: whether it takes pods, and the pods on it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from rich.text import Text

from cli.errors import Failed
from cli.host.why import reasons
from cli.output import silent_clusters_text
from cli.top.job import InstancePage
from cli.top.page import Page, Picture
from cli.top.reading import HOST_JOBS_MAX, OneHost, Reader
from cli.top.rows import HOST_ORDERS, host_grid, pod_grid


class HostsPage(Page):
    title = "Hosts"
    orders = HOST_ORDERS

    def question(self) -> Callable[[Reader], Picture]:
        order, wanted = HOST_ORDERS[self.order_index], self.wanted

        def ask(reader: Reader) -> Picture:
            answer = reader.hosts()
            silent = [Text(silent_clusters_text(answer.silent_clusters), "red")] if answer.silent_clusters else []
            return Picture(host_grid(answer, order, wanted), silent, f"{len(answer.host_infos)} hosts")

        return ask

    def same_as(self) -> str:
        return "peloton host query"

    def opened(self, key: str) -> Page:
        return HostPage(key)


class HostPage(Page):
    def __init__(self, hostname: str) -> None:
        super().__init__()
        self.hostname = hostname
        self.title = hostname

    def question(self) -> Callable[[Reader], Picture]:
        hostname, wanted = self.hostname, self.wanted

        def ask(reader: Reader) -> Picture:
            found = reader.host(hostname)
            if found.info is None:
                raise Failed(f"host {hostname} is not known")
            return Picture(pod_grid(found.pods, wanted, datetime.now(UTC)), list(head(found)), "pods on this host")

        return ask

    def same_as(self) -> str:
        host = shlex.quote(self.hostname)
        return f"peloton host why {host}; peloton host drain {host} --plan"

    def opened(self, key: str) -> Page:
        job_id, _, instance_id = key.rpartition("-")
        return InstancePage(job_id, int(instance_id))


def head(found: OneHost) -> Iterator[Text]:
    assert found.info is not None
    for line in reasons(found.info, list(found.drains)):
        yield Text(line)
    if found.departure.error:
        yield Text(f"Its pods are not known: {found.departure.error}", style="red")
    departure = found.departure.answer
    if departure is None:
        return
    if departure.leaving_count:
        yield Text(f"Pods that are leaving: {departure.leaving_count}")
    if len(departure.jobs) > HOST_JOBS_MAX:
        others = sum(job.pod_count for job in departure.jobs[HOST_JOBS_MAX:])
        yield Text(f"{others} pods of {len(departure.jobs) - HOST_JOBS_MAX} more jobs are not listed")

"""A random life of a few services on a whole cluster: what people, hosts and processes do to them, from one seed."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from random import Random
from typing import Any

import grpc

from peloton.api.v0.host import host_pb2
from peloton.api.v0.maintenance import maintenance_pb2 as pb
from tests.availability import Pod, Rules, Tale
from tests.e2e.local import Cluster
from tests.e2e.service import Service

HOSTS = 10
LOST_MAX, MAINTAINED_MAX = 2, 3
LINES_MAX, TIMEOUT_S = 25, 1.5
"""The next step follows after this many printed lines, or after a while in which little happened."""
FAILS = "sleep 0.2; exit 1"
ROLES = ("api", "worker", "resmgr", "hostmgr", "temporal")
_ONE_PER_HOST = {
    "labels": [{"key": "life", "value": "alone"}],
    "constraint": {
        "type": "CONSTRAINT_TYPE_LABEL",
        "labelConstraint": {
            "kind": "LABEL_CONSTRAINT_KIND_POD",
            "condition": "LABEL_CONSTRAINT_CONDITION_LESS_THAN",
            "label": {"key": "life", "value": "alone"},
            "requirement": 1,
        },
    },
}
Act = Callable[[], str]


class Life:
    """A life of services: ``live`` runs a number of steps, then ``end`` stops all interference and checks the
    result."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.random = cluster, Random(seed)
        self.tale = Tale(cluster.local.data_dir / "peloton.db").record()
        self.rules = Rules(self.may_break, lambda job: 1 if job == self.alone.stored_id else 0)
        self.lost: set[str] = set()
        self.ever_lost: set[str] = set()
        self.failing: dict[str, set[int]] = {}
        self.story: list[str] = []
        self.began_s = time.monotonic()
        self.commands = 0
        pool = cluster.pool("life")
        self.free = Service(cluster, pool, 8)
        self.alone = Service(cluster, pool, 5, pod=_ONE_PER_HOST, sla={"maximumUnavailableInstances": 1})
        self.strict = Service(cluster, pool, 6, sla={"maximumUnavailableInstances": 2, "strictUpdates": True})
        self.services = [self.free, self.alone, self.strict]
        for service in self.services:
            service.create()
        for service in self.services:
            service.wait_update("SUCCEEDED")

    def live(self, steps: int) -> None:
        acts: list[tuple[Act, int]] = [
            (self.replace, 6), (self.replace_by_one_that_fails, 1), (self.restart, 3), (self.roll_over, 2),
            (self.pause, 2), (self.resume, 3), (self.abort, 2), (self.stop, 1), (self.start, 2),
            (self.kill, 5), (self.lose_host, 2), (self.return_host, 2),
            (self.maintain, 4), (self.complete, 3), (self.cancel, 1),
        ]  # fmt: skip
        for act in self.random.choices([a for a, _ in acts], [weight for _, weight in acts], k=steps):
            self.perform(act)
            self.let_happen(self.random.randrange(LINES_MAX))
            self.rules.read(self.tale)

    def perform(self, act: Act) -> None:
        at_s = time.monotonic() - self.began_s
        try:
            what = act()
        except grpc.RpcError as error:
            what = f"{act.__name__} refused: {error.code().name} {error.details()}"
        if what:
            self.story.append(f"{at_s:6.1f} s  {what}")

    def let_happen(self, lines: int) -> None:
        until_s, enough = time.monotonic() + TIMEOUT_S, self.tale.count() + lines
        while self.tale.count() < enough and time.monotonic() < until_s:
            time.sleep(0.02)

    def end(self) -> None:
        """Hosts are back, services started; the last update of each comes to its end, and all is as it says."""
        for host in sorted(self.lost):
            self.drill(host, "start")
        self.cluster.wait(self.restore, "the end of all maintenance")
        for service in self.services:
            service.wait(lambda service=service: self.has_renewed(service), "the last update")
        for service in self.services:
            service.wait_update("SUCCEEDED").wait_running()
        self.rules.read(self.tale)
        for service in self.services:
            self.rules.end(service.stored_id, service.count)

    def has_renewed(self, service: Service) -> bool:
        """Give the service a new command and start it if it is stopped; return whether the update was accepted."""
        try:
            service.abort()
            if service.state in ("KILLED", "KILLING") or "KILLED" in service.states().values():
                service.start()
            service.replace(self.command(), batch_size=2, start_pods=True)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.INVALID_ARGUMENT):
                return False
            raise
        return True

    # What people do to services.

    def command(self) -> str:
        self.commands += 1
        return f"sleep {1_000 + self.commands}"

    def one(self) -> Service:
        return self.random.choice(self.services)

    def name(self, service: Service) -> str:
        return ("free", "alone", "strict")[self.services.index(service)]

    def replace(self) -> str:
        service, batch = self.one(), self.random.choice([1, 1, 2, 3, 0])
        count = service.count + self.random.choice([0, 0, 0, 1, -1])
        before = service.count, service.command
        paused = self.random.random() < 0.1
        try:
            service.replace(self.command(), count=count, batch_size=batch, start_paused=paused)
        except grpc.RpcError:
            service.count, service.command = before
            raise
        return f"replace {self.name(service)}: {count} instances, batch {batch}{', paused' if paused else ''}"

    def replace_by_one_that_fails(self) -> str:
        service, before = self.one(), self.one().command
        mine = self.failing.setdefault(service.stored_id, set())
        mine.add(service.config + 1)
        try:
            service.replace(
                FAILS, batch_size=1, rollback_on_failure=True, max_instance_retries=1, max_tolerable_instance_failures=1
            )
        except grpc.RpcError:
            mine.discard(service.config + 1)
            service.command = before
            raise
        return f"replace {self.name(service)} by one that fails"

    def restart(self) -> str:
        service, batch = self.one(), self.random.choice([1, 2])
        start = self.random.randrange(3)
        service.restart((start, start + self.random.randrange(1, 5)), batch_size=batch)
        return f"restart {self.name(service)} from {start}, batch {batch}"

    def roll_over(self) -> str:
        """A newer update right behind the one under way."""
        service = self.one()
        service.replace(self.command(), batch_size=1)
        service.replace(self.command(), batch_size=2)
        return f"replace {self.name(service)} twice"

    def pause(self) -> str:
        service = self.one()
        service.pause()
        return f"pause {self.name(service)}"

    def resume(self) -> str:
        service = self.one()
        service.resume()
        return f"resume {self.name(service)}"

    def abort(self) -> str:
        service = self.one()
        service.abort()
        return f"abort {self.name(service)}"

    def stop(self) -> str:
        service = self.one()
        service.stop()
        return f"stop {self.name(service)}"

    def start(self) -> str:
        service = self.one()
        service.start()
        return f"start {self.name(service)}"

    # What happens to processes and hosts.

    def kill(self) -> str:
        victim = self.random.choice(ROLES)
        self.cluster.kill(victim)
        if victim == "api":  # else most of what people do next would not arrive
            self.cluster.wait(lambda: self.query_maintenance() is not None, "the API")
        return f"kill -9 {victim}"

    def host(self) -> str:
        return f"sim-{self.random.randrange(HOSTS):05}"

    def lose_host(self) -> str:
        host = self.host()
        if len(self.lost) >= LOST_MAX or host in self.lost:
            return ""
        self.ever_lost.add(host)
        if not self.drill(host, "stop"):
            return ""
        self.lost.add(host)
        return f"host {host} dies"

    def return_host(self) -> str:
        if not self.lost:
            return ""
        host = self.random.choice(sorted(self.lost))
        self.drill(host, "start")
        self.lost.discard(host)
        return f"host {host} returns"

    def drill(self, host: str, action: str) -> bool:
        """False: the machine is down, or is so already."""
        try:
            self.cluster.drill(f"agents/{host}/{action}", {"now": True})
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
            return False
        return True

    def query_maintenance(self) -> dict[str, Any]:
        return {host.hostname: host.state for host in self.cluster.client.maintenance.Query(pb.QueryRequest()).hosts}

    def maintain(self) -> str:
        hosts = sorted({self.host() for _ in range(self.random.choice([1, 1, 2]))})
        if len(self.query_maintenance()) + len(hosts) > MAINTAINED_MAX:
            return ""
        self.cluster.client.maintenance.Start(pb.StartRequest(hostnames=hosts, at_most=2))
        return f"maintenance of {' '.join(hosts)}"

    def complete(self) -> str:
        down = sorted(host for host, state in self.query_maintenance().items() if state == host_pb2.HOST_STATE_DOWN)
        if not down:
            return ""
        self.cluster.client.maintenance.Complete(pb.CompleteRequest(hostnames=down))
        return f"maintenance of {' '.join(down)} completed"

    def cancel(self) -> str:
        others = sorted(host for host, state in self.query_maintenance().items() if state != host_pb2.HOST_STATE_DOWN)
        if not others:
            return ""
        self.cluster.client.maintenance.Cancel(pb.CancelRequest(hostnames=others[:1]))
        return f"maintenance of {others[0]} cancelled"

    def restore(self) -> bool:
        """End maintenance of hosts; return whether no host is in maintenance any more."""
        try:
            return not (self.cancel() or self.complete() or self.query_maintenance())
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.ABORTED:  # it went on meanwhile
                return False
            raise

    def may_break(self, job: str, pod: Pod) -> bool:
        return pod.host in self.ever_lost or pod.config in self.failing.get(job, ())

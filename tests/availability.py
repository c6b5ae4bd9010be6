"""Records which instances of services were unavailable and who caused it. Triggers of the database write one line for
each write of a row, in the order of commits. Nothing that happens between two reads is missed, and nothing is taken
from the code under test.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peloton.api.convert import HEALTH_STATES, POD_STATES, TERMINATION_REASONS
from peloton.model.pod import ON_HOST, HealthState, PodState, TerminationReason
from peloton.model.update import UpdateType

WATCHED = {
    "pod": "job_id instance_id run_id desired_run_id state goal config_version desired_config_version host health "
    "termination message",
    "job_update": "update_id job_id type spec config_version",
    "job": "job_id maximum_unavailable_instances strict_updates",
    "host": "hostname drained_from_ns",
}
LINES_SHOWN = 40
Line = dict[str, Any]


class Tale:
    """Reads the lines that the triggers wrote. ``rest`` returns the lines since ``record``, or since the last call."""

    def __init__(self, path: Path) -> None:
        self._conn = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._seen = 0

    def record(self) -> Tale:
        columns = "seq integer primary key autoincrement, what text, gone int, line text"
        self._conn.execute(f"create table if not exists told ({columns})")
        for table, names in WATCHED.items():
            for event, row in (("insert", "new"), ("update", "new"), ("delete", "old")):
                values = ", ".join(f"'{name}', {row}.{name}" for name in names.split())
                self._conn.execute(
                    f"create trigger if not exists told_{table}_{event} after {event} on {table} "
                    f"begin insert into told (what, gone, line) "
                    f"values ('{table}', {int(event == 'delete')}, json_object({values})); end"
                )
        self._seen = self.count()
        return self

    def rest(self) -> list[tuple[str, bool, Line]]:
        query = "select seq, what, gone, line from told where seq > ? order by seq"
        rows = self._conn.execute(query, (self._seen,)).fetchall()
        self._seen = rows[-1][0] if rows else self._seen
        return [(what, bool(gone), json.loads(line)) for _, what, gone, line in rows]

    def count(self) -> int:
        return int(self._conn.execute("select coalesce(max(seq), 0) from told").fetchone()[0])

    def close(self) -> None:
        self._conn.close()


@dataclass(frozen=True, slots=True)
class Pod:
    run: int
    desired_run: int
    state: PodState
    is_wanted: bool
    config: int
    desired_config: int
    host: str
    health: HealthState
    why: TerminationReason | None
    message: str

    @property
    def is_missing(self) -> bool:
        serves = self.state is PodState.RUNNING and self.health in (HealthState.HEALTHY, HealthState.DISABLED)
        stays = self.desired_run <= self.run and self.desired_config == self.config
        return self.is_wanted and not (serves and stays)


@dataclass(slots=True)
class Service:
    maximum: int = 0
    is_strict: bool = False
    pods: dict[int, Pod] = field(default_factory=dict)
    away: dict[int, tuple[str, str]] = field(default_factory=dict)  # instance -> the actor and the reason
    launched: set[tuple[int, int]] = field(default_factory=set)
    updates: dict[int, str] = field(default_factory=dict)  # version of the configuration -> update
    most_away: int = 0


BROKEN, ADDED, UPDATE, STARTED, MOVE = "broken", "added", "update", "started", "move"
CHOSEN = {
    TerminationReason.KILLED_HOST_MAINTENANCE: "maintenance",
    TerminationReason.PREEMPTED_RESOURCES: "preemption",
    TerminationReason.KILLED_FOR_SLA_AWARE_RESTART: "careful restart",
}
_UPDATED = (TerminationReason.KILLED_FOR_UPDATE, TerminationReason.KILLED_FOR_RESTART)


class Rules:
    """Rules that must hold after each line.

    * of the instances that an update took down or added, no more than its batch are unavailable
    * when Peloton chooses to take a pod down (maintenance, rebalancing, preemption, an update of a strict service), no
      more than the SLA allows are unavailable with it
    * a maintenance takes down only pods on hosts that are, or were, unavailable
    * a pod that serves is lost or fails only where the test broke something
    * no run is launched twice, none on an unavailable host, and of a service no more on one host than it allows
    """

    def __init__(self, may_break: Callable[[str, Pod], bool], per_host: Callable[[str], int] = lambda job: 0) -> None:
        """``may_break``: job and pod -> whether the test broke it. ``per_host``: of a job, 0 = any number."""
        self._may_break, self._per_host = may_break, per_host
        self.services: dict[str, Service] = defaultdict(Service)
        self.batches: dict[str, int] = {}
        self.away_hosts: set[str] = set()
        self.ever_away: set[str] = set()
        self.taken: Counter[str] = Counter()
        self._last: deque[str] = deque(maxlen=LINES_SHOWN)

    def read(self, tale: Tale) -> None:
        for what, is_gone, line in tale.rest():
            self._last.append(f"{what}{' gone' if is_gone else ''} {' '.join(f'{v}' for v in line.values())}")
            match what:
                case "pod":
                    self._pod(line["job_id"], int(line["instance_id"]), None if is_gone else _pod(line))
                case "job_update":
                    self._update(line)
                case "job":
                    service = self.services[line["job_id"]]
                    service.maximum = line["maximum_unavailable_instances"]
                    service.is_strict = bool(line["strict_updates"])
                case "host":
                    keep = self.away_hosts - {line["hostname"]}
                    self.away_hosts = keep if is_gone or not line["drained_from_ns"] else keep | {line["hostname"]}
                    self.ever_away |= self.away_hosts

    def _update(self, line: Line) -> None:
        is_batched = line["type"] in (UpdateType.UPDATE, UpdateType.RESTART)
        self.batches[line["update_id"]] = json.loads(line["spec"]).get("batch_size", 0) if is_batched else 0
        self.services[line["job_id"]].updates[line["config_version"]] = line["update_id"]

    def _pod(self, job: str, instance: int, pod: Pod | None) -> None:
        service = self.services[job]
        before = service.pods.pop(instance, None)
        if pod is None:
            service.away.pop(instance, None)
            return
        service.pods[instance] = pod
        if pod.state is PodState.LAUNCHED and (before is None or before.state is not PodState.LAUNCHED):
            self._check_launch(job, service, instance, pod)
        if not pod.is_missing:
            service.away.pop(instance, None)
            return
        if before is None or not before.is_missing:
            service.away[instance] = self._cause(job, service, before, pod)
            self._check_taken_down(job, service, instance)
        elif _has_ended_unasked(pod):
            service.away[instance] = (BROKEN, "")
        service.most_away = max(service.most_away, len(service.away))

    def _cause(self, job: str, service: Service, before: Pod | None, pod: Pod) -> tuple[str, str]:
        if before is None:
            return ADDED, service.updates.get(pod.config, "")
        if not before.is_wanted:
            return STARTED, ""
        is_asked = (pod.desired_run, pod.desired_config) != (before.desired_run, before.desired_config)
        if is_asked and pod.why in CHOSEN:
            cause = MOVE if pod.message.startswith("Moves to ") else CHOSEN[pod.why]
            is_kept = cause == "maintenance" and before.host not in self.ever_away
            self._check(not is_kept, f"{job} {before}: its host is not in maintenance")
            return cause, ""
        if is_asked and pod.why in _UPDATED:
            return UPDATE, service.updates.get(pod.desired_config, "")
        self._check(not is_asked, f"{job} {pod}: nobody says why it has to go")
        self._check(self._may_break(job, before), f"{job} {pod}: it served, and the test did not break it")
        return BROKEN, ""

    def _check_taken_down(self, job: str, service: Service, instance: int) -> None:
        cause, of = service.away[instance]
        self.taken[cause] += 1
        batch = self.batches.get(of, 0)
        mine = [i for i, (_, update) in service.away.items() if update == of]
        self._check(not batch or len(mine) <= batch, f"{job}: instances {mine} are away for a batch of {batch}")
        is_chosen = cause in (*CHOSEN.values(), MOVE) or (cause == UPDATE and service.is_strict)
        away = [i for i, (why, _) in service.away.items() if cause != UPDATE or why != ADDED]
        allowed = not service.maximum or len(away) <= service.maximum
        self._check(
            not is_chosen or allowed,
            f"{job}: {cause} took instance {instance} and {len(away)} of at most {service.maximum} are away: "
            f"{service.away}",
        )

    def _check_launch(self, job: str, service: Service, instance: int, pod: Pod) -> None:
        self._check((instance, pod.run) not in service.launched, f"{job}: run {instance}-{pod.run} is launched twice")
        service.launched.add((instance, pod.run))
        self._check(pod.host not in self.away_hosts, f"{job}: {pod} is launched on a host that is away")
        here = sum(other.host == pod.host and other.state in ON_HOST for other in service.pods.values())
        limit = self._per_host(job)
        self._check(not limit or here <= limit, f"{job}: {here} pods on host {pod.host}, at most {limit} may be")

    def _check(self, holds: bool, rule: str) -> None:
        if not holds:
            raise AssertionError("\n".join([rule, "The last lines told:", *self._last]))

    def end(self, job: str, count: int) -> None:
        """Every instance runs the last configuration, and no other instances exist."""
        service = self.services[job]
        last = max(service.updates)
        found = {i: (pod.state, pod.config, pod.is_missing) for i, pod in sorted(service.pods.items())}
        assert found == dict.fromkeys(range(count), (PodState.RUNNING, last, False)), (job, last, found)


def _has_ended_unasked(pod: Pod) -> bool:
    ended = pod.state in (PodState.FAILED, PodState.LOST, PodState.SUCCEEDED)
    return ended and pod.desired_run <= pod.run and pod.desired_config == pod.config


def _pod(line: Line) -> Pod:
    return Pod(
        run=line["run_id"],
        desired_run=line["desired_run_id"],
        state=POD_STATES[line["state"]],
        is_wanted=POD_STATES[line["goal"]] not in (PodState.KILLED, PodState.DELETED),
        config=line["config_version"],
        desired_config=line["desired_config_version"],
        host=line["host"],
        health=HEALTH_STATES[line["health"]],
        why=TERMINATION_REASONS[line["termination"]] if line["termination"] else None,
        message=line["message"],
    )

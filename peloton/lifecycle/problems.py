"""Problems of an installation: their conditions, severity and texts. Of each kind a few are named, and further ones are
counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from peloton.lifecycle.reason_text import NO_NAMES, Names, explain_avoidance, format_count, infeasible_text, job_text
from peloton.lifecycle.stall import describe_failed_runs, stall_text
from peloton.model.advice import HostMark, ServiceMark
from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.model.misfit import Misfit
from peloton.model.problem import Problem, Severity, SubjectKind
from peloton.model.reason import Infeasibility
from peloton.model.times import NS_PER_S
from peloton.model.update import UpdateRecord, UpdateState
from peloton.model.volume import VolumeRecord

PROBLEMS_MAX = 50
NAMED_MAX = 5
"""Maximum hosts, volumes or updates that are named for one kind of problem."""
HELD_UP_S, LACKING_S = 300, 300
"""Seconds after which a blocked drain, and a pool without its entitlement, are problems."""
BLOCKERS_NAMED_MAX = 2
GONE_WITHIN_S = 3_600.0
"""Seconds for which a host that left its cluster is reported as lost; later it counts as removed."""
RECORDED_WITHIN_S = 240.0
"""Delay of time series in seconds that is no problem, as after a pause of the machine."""
LOCKED = {
    "Read": "calls that read jobs and pods are refused",
    "Write": "calls that change jobs and pods are refused",
    "Kill": "no pod is killed",
    "Launch": "no pod is launched",
}
"""Component -> effect while an administrator has locked it. Locks of other components have no effect."""
WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL


def worst_first(problems: Iterable[Problem], limit: int = PROBLEMS_MAX) -> tuple[list[Problem], int]:
    """Return at most ``limit`` problems, the most severe first, and the number of the others. Order is kept within a
    severity."""
    found = sorted(problems, key=lambda one: -one.severity)
    return found[:limit], max(len(found) - limit, 0)


def span_text(seconds: float) -> str:
    """Return an approximate duration: 40 s, 5 min, 3 h, 2 days."""
    whole = max(int(seconds), 0)
    for size, unit in ((172_800, "days"), (7_200, "h"), (120, "min")):
        if whole >= size:
            return f"{whole // {'days': 86_400, 'h': 3_600, 'min': 60}[unit]} {unit}"
    return f"{whole} s"


def report_lockdowns(locked: Collection[str]) -> list[Problem]:
    found = []
    for name, effect in LOCKED.items():
        if name in locked:
            text = f"{name} is locked: {effect} until it is unlocked: peloton admin unlock {name}"
            found.append(Problem(CRITICAL, text, SubjectKind.COMPONENT, name, command="peloton admin status"))
    return found


def role_problem(role: str, overdue_s: float | None) -> Problem:
    """Return the problem of a role that no process leads. ``overdue_s``: seconds since the last lease expired; None:
    there is no lease."""
    ended = f": the lease of the last one ran out {span_text(overdue_s)} ago" if overdue_s is not None else ""
    text = f"No process leads the role {role}{ended}. {_effect_of_vacancy(role)}"
    return Problem(CRITICAL, text, SubjectKind.ROLE, role, command="peloton local status")


def _effect_of_vacancy(role: str) -> str:
    if role == "resmgr":
        return "No pod is admitted meanwhile"
    return f"No pod is launched or stopped in cluster {role.rpartition('/')[2]} meanwhile; those on its hosts run on"


def silent_problem(cluster: str, timeout_s: float) -> Problem:
    text = f"The host manager of cluster {cluster} leads and does not answer within {timeout_s:g} s"
    return Problem(CRITICAL, text, SubjectKind.CLUSTER, cluster, cluster, command="peloton host query")


def resmgr_problem(timeout_s: float) -> Problem:
    text = f"The resource manager leads and does not answer within {timeout_s:g} s: why pools wait is not known"
    return Problem(WARNING, text, SubjectKind.ROLE, "resmgr", command="peloton respool tree")


def cluster_problems(
    cluster: str, kind: str, is_connected: bool, unready: str, are_hosts_known: bool, up_count: int
) -> list[Problem]:
    """Return the problem of a cluster as a whole; at most one."""
    if not is_connected:
        what = f"Cluster {cluster} is not connected to its {_control_plane(kind)}: no pod is launched or stopped there"
    elif unready:
        what = f"Cluster {cluster} launches no pods: {unready}"
    elif not are_hosts_known:
        what = f"Cluster {cluster} has not listed its hosts yet"
    elif not up_count:
        what = f"Cluster {cluster} has no host that takes pods"
    else:
        return []
    return [Problem(CRITICAL, what, SubjectKind.CLUSTER, cluster, cluster, command="peloton host query")]


def _control_plane(kind: str) -> str:
    return {"mesos": "Mesos master", "kubernetes": "apiserver"}.get(kind, "control plane")


def report_gone_hosts(
    cluster: str, gone: Mapping[Hostname, float], maintained: Collection[Hostname], now_ns: int
) -> list[Problem]:
    """Report hosts that left the cluster. ``gone``: hosts, and seconds since they left. Hosts in maintenance are left
    out."""
    found = []
    for ago_s, name in sorted((ago_s, name) for name, ago_s in gone.items() if name not in maintained):
        text = f"Host {name} left cluster {cluster} {span_text(ago_s)} ago and is not back"
        found.append(_host_problem(CRITICAL, text, name, cluster, now_ns - round(ago_s * NS_PER_S)))
    return truncate(found, f"more hosts left cluster {cluster} within {span_text(GONE_WITHIN_S)} and are not back")


def report_avoided_hosts(cluster: str, avoided: Mapping[Hostname, tuple[Misfit, float]]) -> list[Problem]:
    """Report avoided hosts. ``avoided``: the reason, and the remaining seconds."""
    found = [
        _host_problem(
            WARNING, f"Host {name} is avoided {explain_avoidance(why)}, for {span_text(left_s)} more", name, cluster
        )
        for name, (why, left_s) in sorted(avoided.items())
    ]
    return truncate(found, f"more hosts of cluster {cluster} are avoided")


def report_red_marks(
    cluster: str, hosts: Sequence[HostMark], services: Sequence[ServiceMark], names: Names = NO_NAMES
) -> list[Problem]:
    """Report hosts and services that are marked RED."""
    loaded = [
        _host_problem(WARNING, f"Host {one.hostname} is marked RED: {one.reason}", one.hostname, cluster, one.since_ns)
        for one in hosts
    ]
    advice = "peloton host advice --mark red"
    slow = [
        Problem(WARNING, f"Service {names.get(one.job_id) or one.job_id} is marked RED: {one.reason}", SubjectKind.JOB,
                one.job_id, cluster=cluster, since_ns=one.since_ns, command=advice)
        for one in services
    ]  # fmt: skip
    return [
        *truncate(loaded, f"more hosts of cluster {cluster} are marked RED"),
        *truncate(slow, f"more services in cluster {cluster} are marked RED"),
    ]


def late_drains(maintained: Iterable[HostMaintenance], now_ns: int) -> list[Problem]:
    """Report drains beyond their deadline that have not been forced."""
    late = [
        host
        for host in maintained
        if host.state is HostState.DRAINING and not host.is_forced and 0 < host.deadline_ns < now_ns
    ]
    found = []
    for host in sorted(late, key=lambda one: one.deadline_ns):
        over = span_text((now_ns - host.deadline_ns) / NS_PER_S)
        left, waits = host.progress.pod_count, host.progress.waiting_for
        text = f"The drain of host {host.hostname} is {over} beyond its deadline"
        text += f": {left} pods are left and wait for {waits}" if waits else ""
        command = f"peloton host maintenance status {host.hostname}"
        found.append(
            Problem(
                WARNING,
                text,
                SubjectKind.HOST,
                host.hostname,
                cluster=host.cluster,
                since_ns=host.deadline_ns,
                command=command,
            )
        )
    return truncate(found, "more drains are beyond their deadlines")


def report_blocked_drains(maintained: Iterable[HostMaintenance], now_ns: int, names: Names = NO_NAMES) -> list[Problem]:
    """Report drains within their deadlines that are blocked by the SLA or the volumes of pods."""
    found = []
    for host in sorted(maintained, key=lambda one: (one.drained_from_ns, one.hostname)):
        is_under_way = host.state is HostState.DRAINING and not host.is_forced and host.progress.blockers
        since_ns, deadline_ns = host.drained_from_ns, host.deadline_ns
        if not is_under_way or since_ns + HELD_UP_S * NS_PER_S > now_ns or deadline_ns < now_ns:
            continue
        named = host.progress.blockers[:BLOCKERS_NAMED_MAX]
        why = "; ".join(
            f"{format_count(one.pod_count, 'pod')} of {job_text(one.job_id, names)}: {one.reason}" for one in named
        )
        more = len(host.progress.blockers) - len(named)
        text = f"The drain of host {host.hostname} has been under way for {span_text((now_ns - since_ns) / NS_PER_S)}, "
        text += f"and pods hold it up: {why}" + (f"; and {format_count(more, 'more job')}" if more else "")
        text += f". It may be forced in {span_text((deadline_ns - now_ns) / NS_PER_S)}"
        command = f"peloton host maintenance status {host.hostname}"
        found.append(
            Problem(
                WARNING, text, SubjectKind.HOST, host.hostname, cluster=host.cluster, since_ns=since_ns, command=command
            )
        )
    return truncate(found, "more drains are held up")


def report_lost_volumes(volumes: Sequence[VolumeRecord], total: int, names: Names = NO_NAMES) -> list[Problem]:
    """Report LOST volumes. ``volumes``: the first of ``total``."""
    found = []
    for one in volumes:
        why = f" ({one.note})" if one.note else ""
        text = f"Volume {one.volume_id} on host {one.host} is {one.state}{why}: instance {one.instance_id} of "
        text += f"{job_text(one.job_id, names)} waits for it"
        command = f"peloton volume get {one.volume_id}"
        found.append(
            Problem(
                CRITICAL,
                text,
                SubjectKind.JOB,
                one.job_id,
                cluster=one.cluster,
                since_ns=one.changed_ns,
                command=command,
            )
        )
    return truncate(found, "more volumes are LOST", total)


def stuck_updates(updates: Sequence[tuple[str, UpdateRecord]], total: int) -> list[Problem]:
    """Report services, with their names, whose last update failed, was rolled back, is paused after failures, waits for
    a pulse or has stalled. ``updates``: the first of ``total``."""
    found = []
    for name, update in updates:
        if what := _describe_stuck(update):
            text, command = f"The update of service {name} {what}", f"peloton job why {update.job_id}"
            found.append(
                Problem(
                    WARNING,
                    text,
                    SubjectKind.JOB,
                    update.job_id,
                    cluster="",
                    since_ns=update.updated_ns,
                    command=command,
                )
            )
    return truncate(found, "more updates of services have failed or stand still", total)


def _describe_stuck(update: UpdateRecord) -> str:
    bad = f"{len(update.failed)} of its {update.total_count} instances failed"
    if update.state is UpdateState.FAILED:
        return f"has failed: {bad}"
    if update.state is UpdateState.PAUSED and update.failed:
        return f"is paused: {bad}, {update.remaining_count} are left"
    if update.state in (UpdateState.ROLLING_BACKWARD, UpdateState.ROLLED_BACK):
        done = "was rolled back" if update.state is UpdateState.ROLLED_BACK else "is being rolled back"
        instances = format_count(update.spec.max_failure_instances, "instance")
        return f"{done}: {instances} failed with version {update.prev_config_version}"
    if why := stall_text(update):
        runs = describe_failed_runs(update)
        return f"has stalled{f', {runs}' if runs else ''}: {' '.join(why.split())}"
    if update.awaits_pulse and update.is_active:
        return f"waits for a pulse: {update.remaining_count} of {update.total_count} instances are left"
    return ""


class UnfitJob(NamedTuple):
    """A job with pods that no host could take even if it were empty. ``sorts``: number of pods, and the reason."""

    job_id: str
    name: str
    pool_path: str
    gang_size: int
    sorts: Sequence[tuple[int, Infeasibility]]


def unfit_jobs(jobs: Sequence[UnfitJob]) -> list[Problem]:
    found = []
    for one in jobs:
        count = sum(pods for pods, _ in one.sorts)
        verb = "fits" if count == 1 else "fit"
        gang = f"its gang of {one.gang_size} does not start, because " if one.gang_size > 1 else ""
        why = "; ".join(infeasible_text(infeasible) for _, infeasible in one.sorts)
        text = f"Job {one.name.strip() or one.job_id} in pool {one.pool_path} cannot run: {gang}"
        text += f"{format_count(count, 'instance')} {verb} no host, even an empty one: {why}"
        found.append(Problem(WARNING, text, SubjectKind.JOB, one.job_id, command=f"peloton job why {one.job_id}"))
    return truncate(found, "more jobs have instances that fit no host")


def late_recorder(behind_s: float, period_s: int) -> list[Problem]:
    if behind_s <= RECORDED_WITHIN_S:
        return []
    text = (
        f"No time series have been recorded for {span_text(behind_s)}, though it is done every {period_s} s: charts "
        "have a gap. The log of role resmgr says why"
    )
    command = "peloton overview history --since 1h"
    return [Problem(WARNING, text, SubjectKind.ROLE, "resmgr", command=command)]


def hopeless_gangs(heads: Sequence[tuple[str, str, int, str]], names: Names = NO_NAMES) -> list[Problem]:
    """Report gangs that can never be admitted: path of the pool, job, number of gangs, and the reason."""
    found = []
    for path, job_id, count, why in heads:
        gangs = f"{format_count(count, 'gang')} of {job_text(job_id, names)} in pool {path}"
        text = f"{gangs} will never start: {why}"
        found.append(Problem(WARNING, text, SubjectKind.POOL, path, command=f"peloton job why {job_id}"))
    return truncate(found, "more pools have gangs that will never start")


def lacking_pools(heads: Sequence[tuple[str, str, str, float]], now_ns: int) -> list[Problem]:
    """Report pools that wait for their entitlement: path, reason, holders of the resources, and seconds of waiting.
    Pools that have waited for less than LACKING_S are left out."""
    found = []
    for path, why, holders, waited_s in sorted(heads, key=lambda head: -head[-1]):
        if waited_s < LACKING_S:
            continue
        held = f"; held by {holders}" if holders else ""
        text = f"Pool {path} has waited for {span_text(waited_s)} for what it is entitled to: {why}{held}"
        since_ns = now_ns - round(waited_s * NS_PER_S)
        found.append(
            Problem(
                WARNING,
                text,
                SubjectKind.POOL,
                path,
                cluster="",
                since_ns=since_ns,
                command=f"peloton respool why {path}",
            )
        )
    return truncate(found, "more pools wait for what they are entitled to")


def _host_problem(severity: Severity, text: str, name: str, cluster: str, since_ns: int = 0) -> Problem:
    return Problem(
        severity, text, SubjectKind.HOST, name, cluster=cluster, since_ns=since_ns, command=f"peloton host why {name}"
    )


def truncate(found: list[Problem], others: str, total: int | None = None) -> list[Problem]:
    """Return the first few problems, and one that counts the others."""
    named, count = found[:NAMED_MAX], len(found) if total is None else total
    if count <= len(named):
        return named
    last = named[-1]
    subject = (SubjectKind.CLUSTER, last.cluster) if last.cluster else (last.subject_kind, last.subject_id)
    return [*named, Problem(last.severity, f"{count - len(named)} {others}", *subject, last.cluster)]

"""Events of hosts: pure functions that describe a change in a sentence, or return None if nothing notable changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peloton.lifecycle.constraints import Labels, label_pairs
from peloton.lifecycle.problems import span_text
from peloton.lifecycle.reason_text import (
    NO_NAMES,
    amount_text,
    explain_avoidance,
    format_count,
    job_text,
    reservation_text,
)
from peloton.model.advice import Mark
from peloton.model.by_hand import name_person
from peloton.model.host import HostState
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.ids import Hostname
from peloton.model.maintenance import DrainProgress, HostMaintenance, MaintenanceAct, MaintenanceRequest
from peloton.model.misfit import HostRule, Misfit
from peloton.model.mover import Made
from peloton.model.reservation import HostReservation
from peloton.model.resources import Resources, pair_amounts
from peloton.model.times import NS_PER_S
from peloton.model.volume import VOLUME_LABEL, VolumeRecord, VolumeState

LABELS_NAMED_MAX = 5
TEXT_MAX = 1_000
"""Maximum characters of a text that are kept."""
Kind = HostEventKind


# Registration in its cluster.


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Fields of a registered host that are compared."""

    host_id: str
    capacity: Resources  # capacity of the machine
    labels: Labels
    withdrawn: str = ""


def describe_join(hostname: Hostname, cluster: str, left: tuple[str, int] | None, now_ns: int) -> HostEvent:
    """Describe the registration of a host. ``left``: the cluster that it left last, and when."""
    text = f"Joined cluster {cluster}"
    if left is not None:
        away = span_text((now_ns - left[1]) / NS_PER_S)
        text = f"Came back after {away}" if left[0] == cluster else f"{text}, {away} after it left cluster {left[0]}"
    return HostEvent(hostname, Kind.JOINED, text, now_ns, cluster)


def describe_leave(hostname: Hostname, cluster: str, state: HostState | None, now_ns: int) -> HostEvent:
    """Describe the end of a registration. ``state``: state of the host's maintenance, or None. A drained host may leave
    before it is known to be DOWN."""
    text = f"Left cluster {cluster}: its agent is no longer registered"
    if state in (HostState.DRAINED, HostState.DOWN):
        text = f"Left cluster {cluster} for its maintenance"
    return HostEvent(hostname, Kind.LEFT, text, now_ns, cluster)


def changes(hostname: Hostname, cluster: str, before: HostFacts, now: HostFacts, now_ns: int) -> list[HostEvent]:
    """Describe the changes of a host that stays registered."""
    texts = []
    if before.host_id != now.host_id:
        texts.append(f"registered again as {now.host_id}, before as {before.host_id}")
    texts += [
        f"{kind} {amount_text(kind, had)} is {amount_text(kind, has)} now"
        for kind, had, has in pair_amounts(before.capacity, now.capacity)
        if had != has
    ]
    texts += _label_changes(before.labels, now.labels)
    found = []
    if texts:
        text = "; ".join(texts)
        found.append(HostEvent(hostname, Kind.CHANGED, text[0].upper() + text[1:], now_ns, cluster))
    if now.withdrawn and not before.withdrawn:
        found.append(_describe_cordon(hostname, cluster, now.withdrawn, now_ns))
    if before.withdrawn and not now.withdrawn:
        text = f"Takes pods again; it did not before: {before.withdrawn}"
        found.append(HostEvent(hostname, Kind.UNCORDONED, text, now_ns, cluster))
    return found


def event_of_new(hostname: Hostname, cluster: str, withdrawn: str, is_cordoned: bool, now_ns: int) -> HostEvent | None:
    """Describe the change of a host that is new to the leading host manager. ``is_cordoned``: state after its last
    event."""
    if withdrawn and not is_cordoned:
        return _describe_cordon(hostname, cluster, withdrawn, now_ns)
    if is_cordoned and not withdrawn:
        text = "Takes pods again, since a time at which no host manager saw it"
        return HostEvent(hostname, Kind.UNCORDONED, text, now_ns, cluster)
    return None


def _describe_cordon(hostname: Hostname, cluster: str, withdrawn: str, now_ns: int) -> HostEvent:
    return HostEvent(hostname, Kind.CORDONED, f"Takes no pods: {withdrawn}", now_ns, cluster)


def _label_changes(before: Labels, now: Labels) -> list[str]:
    """Return the changes of labels. Labels of volumes change with the volumes and are left out."""
    had, has = _values(before), _values(now)
    texts = []
    for key in sorted(had.keys() | has.keys()):
        if had.get(key) == has.get(key):
            continue
        if key not in had:
            texts.append(f"label {key}={has[key]} is new")
        elif key not in has:
            texts.append(f"label {key}={had[key]} is gone")
        else:
            texts.append(f"label {key}={had[key]} is {has[key]} now")
    more = len(texts) - LABELS_NAMED_MAX
    return texts if more <= 0 else [*texts[:LABELS_NAMED_MAX], f"{format_count(more, 'more label')} changed"]


def _values(labels: Labels) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for key, value in label_pairs(labels):
        if not key.startswith(VOLUME_LABEL):
            found[key] = f"{found[key]},{value}" if key in found else value
    return found


# Experience of pods with the host.


def describe_avoidance(hostname: Hostname, cluster: str, why: Misfit, for_s: float, now_ns: int) -> HostEvent:
    """Describe that pods avoid the host for ``for_s`` seconds."""
    kind = Kind.FLAPPING if why.rule is HostRule.FLAPPING else Kind.AVOIDED
    text = f"Avoided for {span_text(for_s)} {explain_avoidance(why)}"
    return HostEvent(hostname, kind, text, now_ns, cluster, now_ns + round(for_s * NS_PER_S))


def describe_mark(hostname: Hostname, cluster: str, mark: Mark, before: Mark, reason: str, now_ns: int) -> HostEvent:
    text = f"Marked {mark.lower()}, before {before.lower()}: {reason}"
    return HostEvent(hostname, Kind.MARKED, text, now_ns, cluster)


def describe_reservation(kept: HostReservation, cluster: str) -> HostEvent:
    text = f"Reserved {reservation_text(kept)}"
    return HostEvent(kept.hostname, Kind.RESERVED, text, kept.since_ns, cluster, kept.until_ns)


def describe_release(
    kept: HostReservation, cluster: str, now_ns: int, is_late: bool = False, launched_on: str = ""
) -> HostEvent:
    """Describe the end of a reservation. ``is_late``: resources did not suffice in time. ``launched_on``: the host on
    which the pod was launched."""
    span = span_text((now_ns - kept.since_ns) / NS_PER_S)
    pod = f"pod {kept.job_id}-{kept.instance_id}"
    text = f"Reservation ended after {span}: {pod} no longer waits, or no longer fits the host"
    if is_late:
        text = f"Reservation expired after {span}: not enough resources became free for {pod}"
    elif launched_on:
        where = "here" if launched_on == kept.hostname else f"on {launched_on}"
        text = f"Reservation ended after {span}: {pod} is launched {where}"
    return HostEvent(kept.hostname, Kind.GIVEN_BACK, text, now_ns, cluster)


def reservation_lost(reserved: HostEvent, now_ns: int) -> HostEvent:
    """Describe a reservation lost with the previous leader, which kept it in memory only."""
    text = f"Reservation ended after {span_text((now_ns - reserved.at_ns) / NS_PER_S)}: another host manager leads"
    return HostEvent(reserved.hostname, Kind.GIVEN_BACK, text, now_ns, reserved.cluster)


def volume_seen(volume: VolumeRecord, state: VolumeState, note: str, now_ns: int) -> HostEvent | None:
    """Describe the change of a volume to this state, or return None if it is neither lost nor found."""
    where = Hostname(volume.host), volume.cluster
    name = f"Volume {volume.volume_id} of {volume.pod_name}"
    if state is VolumeState.LOST and volume.state is not state:
        text = f"{name} is lost{f': {note}' if note else ''}"
        return HostEvent(where[0], Kind.VOLUME_LOST, text, now_ns, where[1])
    if volume.state is VolumeState.LOST and state is not volume.state:
        span = span_text((now_ns - volume.changed_ns) / NS_PER_S)
        return HostEvent(where[0], Kind.VOLUME_FOUND, f"{name} is there again after {span}", now_ns, where[1])
    return None


# Maintenance.


def maintenance_asked(
    cluster: str, request: MaintenanceRequest, instead_of: str, now_ns: int, person: str = ""
) -> HostEvent:
    """Describe a request for maintenance. ``instead_of``: the host pool to which the host was moving."""
    text = name_person("Maintenance requested", person)
    text += f", instead of the move to host pool {instead_of}" if instead_of else ""
    text += f": {request.reason}" if request.reason else ""
    return HostEvent(request.hostname, Kind.MAINTENANCE_ASKED, text, now_ns, cluster)


def drain_begun(host: HostMaintenance, unavailable_count: int, now_ns: int) -> HostEvent:
    """Describe the start of a drain. ``unavailable_count``: unavailable hosts of the cluster, including this one."""
    aim = f"to move to host pool {host.to_pool}" if host.is_move else "for its maintenance"
    waited_s = (now_ns - host.requested_ns) / NS_PER_S
    waited = f", {span_text(waited_s)} after the request" if waited_s >= 1 else ""
    text = f"Drain begun {aim}{waited}; {format_count(unavailable_count, 'host')} of the cluster unavailable"
    return _event(host, Kind.DRAINING, text, now_ns)


def drain_step(host: HostMaintenance, now: DrainProgress, at_ns: int) -> HostEvent | None:
    """Describe the progress of a drain: its first pods, and each time that about half of them have left. A drain has
    few such events whatever its number of pods. Events have ids of jobs, which are hidden from those who may not read
    them."""
    count = now.pod_count
    before = host.progress.pod_count
    if not count or (before and count.bit_length() >= before.bit_length()):
        return None
    text = f"{format_count(count, 'pod')} remaining, {now.leaving_count} of them terminating"
    if now.blockers:
        kept, first = sum(one.pod_count for one in now.blockers), now.blockers[0]
        text += (
            f"; {format_count(kept, 'pod')} of {format_count(len(now.blockers), 'job')} blocked by their SLA, first "
        )
        text += f"of {job_text(first.job_id, NO_NAMES)}: {first.reason}"
    return _event(host, Kind.DRAIN_PROGRESS, text, at_ns)


def maintenance_step(host: HostMaintenance, state: HostState, now_ns: int) -> HostEvent:
    """Describe that the host has reached this state on its way down."""
    span = span_text((now_ns - host.drained_from_ns) / NS_PER_S)
    if state is HostState.DRAINED:
        return _event(host, Kind.DRAINED, f"Drained in {span}{': forced' if host.is_forced else ''}", now_ns)
    return _event(host, Kind.DOWN, "Down for maintenance", now_ns)


def describe_request(host: HostMaintenance, act: MaintenanceAct, now_ns: int, person: str = "") -> HostEvent:
    """Describe the request of an operator for the host, given its state before."""
    match act:
        case MaintenanceAct.FORCE:
            forced = f"{name_person('Drain forced', person)} {span_text((now_ns - host.drained_from_ns) / NS_PER_S)}"
            text = f"{forced} after it began: pods leave even if the SLA of their jobs forbids it"
            return _event(host, Kind.DRAIN_FORCED, text, now_ns)
        case MaintenanceAct.CANCEL:
            what = f"Move to host pool {host.to_pool}" if host.is_move else "Maintenance"
            how = "before its turn" if host.waits_for_turn else f"while the host was {host.state}"
            return _event(host, Kind.CANCELLED, f"{name_person(f'{what} cancelled', person)} {how}", now_ns)
        case MaintenanceAct.COMPLETE:
            span = span_text((now_ns - host.changed_ns) / NS_PER_S)
            done = name_person("Maintenance completed", person)
            return _event(host, Kind.COMPLETED, f"{done} after {span} down: the host may come back", now_ns)


def back_up(host: HostMaintenance, now_ns: int) -> HostEvent:
    span = span_text((now_ns - host.drained_from_ns) / NS_PER_S)
    return _event(host, Kind.UP, f"Takes pods again, {span} after its drain began", now_ns)


def _event(host: HostMaintenance, kind: HostEventKind, text: str, now_ns: int) -> HostEvent:
    return HostEvent(host.hostname, kind, text, now_ns, host.cluster)


# Host pools. The cluster of the host is added when the event is stored.


def pool_wanted(hostname: Hostname, current: str, desired: str, by: str, now_ns: int) -> HostEvent:
    """Describe a requested move. ``by``: the actor, and the reason."""
    text = f"To move from host pool {current} to {desired} once it is drained"
    if current == desired:
        text = f"To stay in host pool {current}"
    return HostEvent(hostname, Kind.POOL_WANTED, f"{text}, {by}", now_ns)


def pool_changed(hostname: Hostname, before: str, now: str, how: str, now_ns: int) -> HostEvent:
    return HostEvent(hostname, Kind.POOL_CHANGED, f"Moved from host pool {before} to {now}, {how}", now_ns)


def by_mover(made: Made) -> str:
    return f"by the mover: {made.reason}"

"""Migrations: what is bound to which cluster, which instances of a service move next, and what people may ask.

A binding is a text: the name of the cluster to which a job's pods must go, or ``!`` and the name of the one to which
they must not. A job has its own binding, or that of its pool, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from peloton.lifecycle.reason_text import amount_text, infeasible_text
from peloton.model.host import CLUSTER_LABEL
from peloton.model.migration import (
    Migration,
    MigrationAct,
    MigrationLoad,
    MigrationProgress,
    MigrationSpec,
    MigrationState,
    MigrationTarget,
    ServiceProgress,
    ServiceState,
)
from peloton.model.pod import AllOf, HostLabel, PodShape
from peloton.model.resources import RESOURCE_KINDS, Resources

SERVICES_NAMED_MAX = 20
"""Services that a progress names."""
BATCH_SHARE = 10
"""A tenth of a service moves at a time when the request names no batch."""
TO_RESUME = "somebody to resume it"
_NOT = "!"


# -- bindings --------------------------------------------------------------------------------------------------------


def leaves(cluster: str) -> str:
    """The binding to any cluster but this one."""
    return _NOT + cluster


def may_be_in(cluster: str, binding: str) -> bool:
    """May pods that are bound so be in the cluster?"""
    if binding.startswith(_NOT):
        return cluster != binding.removeprefix(_NOT)
    return not binding or cluster == binding


def bound(shape: PodShape, binding: str) -> PodShape:
    """The shape with the binding as the first part of its constraint, so that a reason names it first."""
    if not binding:
        return shape
    is_not = binding.startswith(_NOT)
    label = HostLabel(CLUSTER_LABEL, binding.removeprefix(_NOT), "<" if is_not else "=", 1)
    own = shape.constraint
    if own is None:
        return replace(shape, constraint=label)
    return replace(shape, constraint=AllOf((label, *(own.constraints if isinstance(own, AllOf) else (own,)))))


def binding_of(migration: Migration) -> str:
    """Of the object, while the migration is under way and when it has ended."""
    match migration.state:
        case MigrationState.ROLLING_BACK:
            before, target = migration.bound_before, migration.spec.target
            return before if before and not may_be_in(target, before) else leaves(target)
        case MigrationState.ROLLED_BACK:
            return migration.bound_before
    return migration.spec.target


def binding_text(binding: str) -> str:
    """For `job why`."""
    if binding.startswith(_NOT):
        return f"bound to any cluster but {binding.removeprefix(_NOT)} while a migration is rolled back"
    return f"bound to cluster {binding} by a migration"


# -- a service -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServicePods:
    """The pods of a service, by instance, as a step sees them."""

    clusters: Mapping[int, str]  # of pods on hosts that are wanted
    leaving: Collection[int] = ()  # of those: they end already, to run anew
    missing: Collection[int] = ()  # wanted, and they do not serve
    moved: Collection[int] = ()  # taken down for this migration before


@dataclass(frozen=True, slots=True)
class ServiceStep:
    """``ask``: instances to take down now, as far as the SLA lets them go."""

    ask: tuple[int, ...] = ()
    left_count: int = 0
    away_count: int = 0
    is_done: bool = False


def batch_of(spec: MigrationSpec, instance_count: int) -> int:
    """Instances that may be away for the migration at a time."""
    return spec.batch_size or max(1, instance_count // BATCH_SHARE)


def next_service_step(pods: ServicePods, migration: Migration, batch: int) -> ServiceStep:
    """Fill the batch up: instances that were taken down and do not serve yet count to it. A rollback moves only what
    the migration has moved, and leaves what was on the target before."""
    binding, is_back = binding_of(migration), migration.state is MigrationState.ROLLING_BACK
    misplaced = [i for i, cluster in pods.clusters.items() if not may_be_in(cluster, binding)]
    if is_back:
        misplaced = [i for i in misplaced if i in pods.moved]
    staying = sorted(i for i in misplaced if i not in pods.leaving)
    leaving = {i for i in misplaced if i in pods.leaving}
    away = leaving | {i for i in pods.missing if i in pods.moved and i not in staying}
    ask = tuple(staying[: max(batch - len(away), 0)])
    return ServiceStep(ask, len(staying), len(away), is_done=not staying and not away)


def service_waits(step: ServiceStep, refusal: str, granted_count: int, target: str) -> str:
    """What a service waits for after its step; ``refusal``: of its SLA."""
    away = step.away_count + granted_count
    waits = [f"{_instances(away)} to serve in {target}"] if away else []
    if refusal:
        waits.append(f"its SLA: {refusal}")
    return " and ".join(waits)


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"


# -- all of them -----------------------------------------------------------------------------------------------------


def services_to_step(services: Sequence[ServiceProgress], at_once: int) -> list[ServiceProgress]:
    """Those under way, and others in order as far as the bound allows."""
    moving = [one for one in services if one.state is ServiceState.MOVING]
    waiting = [one for one in services if one.state is ServiceState.WAITING]
    return moving + waiting[: max(at_once - len(moving), 0)]


def progress_of(
    migration: Migration,
    services: Sequence[ServiceProgress],
    batch_left_count: int = 0,
    to_wake: Sequence[str] = (),
) -> MigrationProgress:
    """After a step. It is over when every service is done, and no batch pod is left that has to leave."""
    under_way = [one for one in services if one.state is ServiceState.MOVING]
    done_count = sum(one.state is ServiceState.DONE for one in services)
    state = migration.state
    is_done = done_count == len(services) and not batch_left_count
    if is_done and state is MigrationState.MIGRATING:
        state = MigrationState.SUCCEEDED
    elif is_done and state is MigrationState.ROLLING_BACK:
        state = MigrationState.ROLLED_BACK
    waits = [f"{one.name}: {one.waiting_for}" for one in under_way if one.waiting_for]
    if batch_left_count:
        waits.append(f"{batch_left_count} batch pods to end")
    if state is MigrationState.PAUSED:
        waits = [TO_RESUME]
    return MigrationProgress(
        state,
        tuple(under_way[:SERVICES_NAMED_MAX]),
        done_count,
        len(services),
        sum(one.moved_count for one in services),
        sum(one.left_count for one in under_way),
        batch_left_count,
        tuple(to_wake),
        "; ".join(waits[:SERVICES_NAMED_MAX]),
    )


# -- what people may ask ---------------------------------------------------------------------------------------------


def after_act(migration: Migration, act: MigrationAct) -> MigrationState:
    """The state that the act leads to; one that is there already stays."""
    match act:
        case MigrationAct.PAUSE:
            return MigrationState.PAUSED
        case MigrationAct.RESUME:
            return MigrationState.MIGRATING
        case MigrationAct.ROLL_BACK:
            return MigrationState.ROLLING_BACK


def refusal_of(act: MigrationAct, migration: Migration) -> str:
    """Why it may not do this now; empty when it may."""
    named = f"the migration of {migration.name} to cluster {migration.spec.target}"
    if not migration.is_active:
        return f"{named} is {migration.state}: start another one"
    if migration.state is MigrationState.ROLLING_BACK and act is not MigrationAct.ROLL_BACK:
        return f"{named} is ROLLING_BACK: it can be neither paused nor resumed"
    return ""


# -- for people ------------------------------------------------------------------------------------------------------


def moved_text(progress: MigrationProgress) -> str:
    return f"{_instances(progress.moved_count)} moved, {progress.left_count} left in the services under way"


def details(name: str, target: str, progress: MigrationProgress, refusal: str = "") -> str:
    """Markdown: how far it is, and what it waits for."""
    lines = [
        f"The migration of **{name}** to cluster **{target}** is **{progress.state}**.",
        "",
        f"{progress.done_count} of {progress.service_count} services are done; {_instances(progress.moved_count)} were "
        f"taken down for it, {progress.left_count} are left in the services under way.",
    ]
    if progress.batch_left_count:
        lines += ["", f"{progress.batch_left_count} batch pods are to leave their hosts."]
    if progress.waiting_for:
        lines += ["", f"It waits for {progress.waiting_for}."]
    if refusal:
        lines += ["", f"The cancellation was refused: {refusal}"]
    return "\n".join(lines)


# -- the plan --------------------------------------------------------------------------------------------------------


def plan_refusal(name: str, cluster: str, load: MigrationLoad, target: MigrationTarget, is_forced: bool) -> str:
    """Why it cannot begin; empty when it can. ``is_forced``: although too little is free now."""
    if load.volume_count:
        volumes = "a volume" if load.volume_count == 1 else f"{load.volume_count} volumes"
        return f"{name} has {volumes} in other clusters than {cluster}, and what is on volumes does not move"
    for shape in load.shapes:
        if (why := target.infeasible.get(shape)) is not None:
            return f"no host of cluster {cluster} could take pods of {name}: {infeasible_text((why,))}"
    if short := _short(load.needed, target.capacity):
        return f"{name} needs {short}: cluster {cluster} is too small for what moves"
    if not is_forced and (short := _short(load.needed, target.free)):
        return f"{name} needs {short} free in cluster {cluster}: make room, or force it to move as room comes free"
    return ""


def _short(need: Resources, have: Resources) -> str:
    """Of the first kind of which too little is there."""
    for kind, wanted, there in zip(RESOURCE_KINDS, need, have, strict=True):
        if wanted > there:
            return f"{kind} {amount_text(kind, wanted)} and finds {amount_text(kind, there)}"
    return ""


def plan_text(name: str, spec: MigrationSpec, load: MigrationLoad, target: MigrationTarget) -> str:
    """In words."""
    leaves = ", ".join(f"{count} from {cluster or '(none)'}" for cluster, count in sorted(load.leaves.items()))
    batch = f"{spec.batch_size} at a time" if spec.batch_size else "a tenth of a service at a time"
    services = "1 service" if load.service_count == 1 else f"{load.service_count} services"
    lines = [f"{name} to cluster {spec.target}: {_instances(load.instance_count)} of {services} move, {batch}"]
    if load.batch_pod_count:
        fate = "are evicted and run anew there" if spec.evicts_batch else "end where they are"
        lines.append(f"{load.batch_pod_count} batch pods on hosts elsewhere {fate}; queued ones go there at once")
    if leaves:
        lines.append(f"pods leave: {leaves}")
    for kind, wanted, free in zip(RESOURCE_KINDS, load.needed, target.free, strict=True):
        if wanted:
            lines.append(f"{kind}: {amount_text(kind, wanted)} needed, {amount_text(kind, free)} free in the target")
    return "\n".join(lines)

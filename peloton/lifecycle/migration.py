"""Migrations: bindings to clusters, the instances of a service that move next, and requests of operators.

A binding is a text: the name of the cluster in which a job's pods must run, or ``!`` and the name of one in which they
must not. A job has its own binding, or that of its pool, or none.
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
from peloton.model.resources import Resources, pair_amounts

SERVICES_NAMED_MAX = 20
"""Maximum services named by a progress."""
BATCH_SHARE = 10
"""Divisor of a service's instances for the default batch size: a tenth moves at a time."""
TO_RESUME = "an operator to resume it"
_NOT = "!"


# -- bindings --------------------------------------------------------------------------------------------------------


def leaves(cluster: str) -> str:
    """Return the binding to any cluster but this one."""
    return _NOT + cluster


def may_be_in(cluster: str, binding: str) -> bool:
    """Return whether pods with this binding may be in the cluster."""
    if binding.startswith(_NOT):
        return cluster != binding.removeprefix(_NOT)
    return not binding or cluster == binding


def bound(shape: PodShape, binding: str) -> PodShape:
    """Return the shape with the binding as the first part of its constraint, so that a reason names it first."""
    if not binding:
        return shape
    is_not = binding.startswith(_NOT)
    label = HostLabel(CLUSTER_LABEL, binding.removeprefix(_NOT), "<" if is_not else "=", 1)
    own = shape.constraint
    if own is None:
        return replace(shape, constraint=label)
    return replace(shape, constraint=AllOf((label, *(own.constraints if isinstance(own, AllOf) else (own,)))))


def binding_of(migration: Migration) -> str:
    """Return the binding of the object during the migration and after its end."""
    match migration.state:
        case MigrationState.ROLLING_BACK:
            before, target = migration.bound_before, migration.spec.target
            return before if before and not may_be_in(target, before) else leaves(target)
        case MigrationState.ROLLED_BACK:
            return migration.bound_before
    return migration.spec.target


def binding_text(binding: str) -> str:
    """Describe a binding for `job why`."""
    if binding.startswith(_NOT):
        return f"bound to any cluster but {binding.removeprefix(_NOT)} while a migration is rolled back"
    return f"bound to cluster {binding} by a migration"


# -- a service -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServicePods:
    """The pods of a service, by instance, at one step."""

    clusters: Mapping[int, str]  # wanted pods on hosts
    leaving: Collection[int] = ()  # pods of these that are being restarted
    missing: Collection[int] = ()  # wanted pods that are not running
    moved: Collection[int] = ()  # taken down earlier for this migration


@dataclass(frozen=True, slots=True)
class ServiceStep:
    """Next step of a service. ``ask``: instances to take down now, within the SLA."""

    ask: tuple[int, ...] = ()
    left_count: int = 0
    unavailable_count: int = 0
    is_done: bool = False


def batch_of(spec: MigrationSpec, instance_count: int) -> int:
    """Return the number of instances that may be unavailable for the migration at a time."""
    return spec.batch_size or max(1, instance_count // BATCH_SHARE)


def next_service_step(pods: ServicePods, migration: Migration, batch: int) -> ServiceStep:
    """Fill up the batch, which includes instances that were taken down and do not run yet. A rollback moves only the
    instances that the migration has moved."""
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
    """Describe the condition that a service waits for after its step. ``refusal``: text of its SLA."""
    away = step.unavailable_count + granted_count
    waits = [f"{_instances(away)} to serve in {target}"] if away else []
    if refusal:
        waits.append(f"its SLA: {refusal}")
    return " and ".join(waits)


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"


# -- all of them -----------------------------------------------------------------------------------------------------


def services_to_step(services: Sequence[ServiceProgress], at_once: int) -> list[ServiceProgress]:
    """Return the services under way, and further ones in order up to the bound."""
    moving = [one for one in services if one.state is ServiceState.MOVING]
    waiting = [one for one in services if one.state is ServiceState.WAITING]
    return moving + waiting[: max(at_once - len(moving), 0)]


def progress_of(
    migration: Migration,
    services: Sequence[ServiceProgress],
    batch_left_count: int = 0,
    to_wake: Sequence[str] = (),
) -> MigrationProgress:
    """Return the progress after a step. The migration is over when all services are done, and all batch pods that have
    to leave have left."""
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
        moved_count=sum(one.moved_count for one in services),
        left_count=sum(one.left_count for one in under_way),
        batch_left_count=batch_left_count,
        to_wake=tuple(to_wake),
        waiting_for="; ".join(waits[:SERVICES_NAMED_MAX]),
    )


# -- requests of operators -------------------------------------------------------------------------------------------


def after_act(migration: Migration, act: MigrationAct) -> MigrationState:
    """Return the state after the request, which may be the current one."""
    match act:
        case MigrationAct.PAUSE:
            return MigrationState.PAUSED
        case MigrationAct.RESUME:
            return MigrationState.MIGRATING
        case MigrationAct.ROLL_BACK:
            return MigrationState.ROLLING_BACK


def refusal_of(act: MigrationAct, migration: Migration) -> str:
    """Return why the migration refuses the request now; empty if it does not."""
    named = f"the migration of {migration.name} to cluster {migration.spec.target}"
    if not migration.is_active:
        return f"{named} is {migration.state}: start another one"
    if migration.state is MigrationState.ROLLING_BACK and act is not MigrationAct.ROLL_BACK:
        return f"{named} is ROLLING_BACK: it can be neither paused nor resumed"
    return ""


# -- texts -----------------------------------------------------------------------------------------------------------


def describe_moved(progress: MigrationProgress) -> str:
    return f"{_instances(progress.moved_count)} moved, {progress.left_count} left in the services under way"


def details(name: str, target: str, progress: MigrationProgress, refusal: str = "") -> str:
    """Describe the progress and the condition it waits for, as Markdown."""
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
    """Return why the migration cannot start; empty if it can. ``is_forced``: start without enough free resources."""
    if load.volume_count:
        volumes = "a volume" if load.volume_count == 1 else f"{load.volume_count} volumes"
        return f"{name} has {volumes} in other clusters than {cluster}, and what is on volumes does not move"
    for shape in load.shapes:
        if (why := target.infeasible.get(shape)) is not None:
            return f"no host of cluster {cluster} could take pods of {name}: {infeasible_text((why,))}"
    if short := _describe_shortage(load.needed, target.capacity):
        return f"{name} needs {short}: cluster {cluster} is too small for what moves"
    if not is_forced and (short := _describe_shortage(load.needed, target.free)):
        return f"{name} needs {short} free in cluster {cluster}: free resources there, or force the migration"
    return ""


def _describe_shortage(need: Resources, have: Resources) -> str:
    """Describe the shortage of the first kind that does not suffice; empty without one."""
    for kind, wanted, there in pair_amounts(need, have):
        if wanted > there:
            return f"{kind} {amount_text(kind, wanted)} and finds {amount_text(kind, there)}"
    return ""


def plan_text(name: str, spec: MigrationSpec, load: MigrationLoad, target: MigrationTarget) -> str:
    """Describe the planned migration."""
    leaves = ", ".join(f"{count} from {cluster or '(none)'}" for cluster, count in sorted(load.leaves.items()))
    batch = f"{spec.batch_size} at a time" if spec.batch_size else "a tenth of a service at a time"
    services = "1 service" if load.service_count == 1 else f"{load.service_count} services"
    lines = [f"{name} to cluster {spec.target}: {_instances(load.instance_count)} of {services} move, {batch}"]
    if load.batch_pod_count:
        fate = "are evicted and restart there" if spec.evicts_batch else "end where they are"
        lines.append(f"{load.batch_pod_count} batch pods on hosts elsewhere {fate}; queued ones go there at once")
    if leaves:
        lines.append(f"pods leave: {leaves}")
    for kind, wanted, free in pair_amounts(load.needed, target.free):
        if wanted:
            lines.append(f"{kind}: {amount_text(kind, wanted)} needed, {amount_text(kind, free)} free in the target")
    return "\n".join(lines)

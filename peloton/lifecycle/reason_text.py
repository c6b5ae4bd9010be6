"""Reasons in words for users: rendered where a text is shown or stored, and never parsed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from peloton.lifecycle.constraints import EXCLUSIVE_LABEL
from peloton.model.host import CLUSTER_KIND_LABEL, CLUSTER_LABEL
from peloton.model.misfit import (
    FailedPods,
    FlappingHost,
    GangCapacity,
    HostRule,
    LackingAmount,
    LackingPorts,
    LackingVolumeDisk,
    Misfit,
    NameTaken,
    NoDomain,
    OwnReservation,
    PortInUse,
    Refused,
    ReservedForOther,
    SkewExceeded,
    UnmetConstraint,
    UnservedWorkload,
)
from peloton.model.reason import (
    NOT_BACKFILLED,
    ClusterReason,
    ClusterRule,
    EvictionReason,
    Grounds,
    Infeasibility,
    Infeasible,
    NoHost,
    PlacementReason,
    QosReason,
    QosRule,
    Reason,
    RefusingHosts,
    RequeueReason,
    RequeueRule,
    Rule,
)
from peloton.model.reservation import HostReservation
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED, pair_amounts
from peloton.model.times import NS_PER_S

UNKNOWN = "a rule that this version does not know"
Names = Mapping[str, str]
"""Job id -> name. Jobs without an entry are shown by their id."""
NO_NAMES: Names = MappingProxyType({})


def amount_text(kind: str, amount: int) -> str:
    if amount >= UNLIMITED:
        return "unlimited"
    if kind in ("cpu", "gpu"):
        return f"{amount / 1000:g}"
    return f"{amount} MiB" if kind in RESOURCE_KINDS else f"{amount}"


def format_count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def job_text(job_id: str, names: Names) -> str:
    return f"job {names.get(job_id, '').strip() or job_id}"


# Reasons in a queue.


def queue_text(reason: Reason, names: Names = NO_NAMES) -> str:
    rule, path, kind, wanted, left, bound, size, job_id, is_final, host_pools, _ = reason
    if rule is Rule.HEAD_OF_LINE:
        return f"waits behind {job_text(job_id, names)} in the queue of {path}"
    if rule is Rule.PRIORITY:
        return f"waits behind {job_text(job_id, names)}, of higher priority, in the queue of {path}"
    if rule in (Rule.BATCH_BOUND, Rule.NO_CYCLE):
        return "waits for the next admission cycle"
    if rule is Rule.IN_BACKOFF and size == 1:
        return f"in backoff for {left} s after no host was found; later gangs may be admitted first"
    if rule is Rule.IN_BACKOFF:
        launches = f"{bound} failed launch{'' if bound == 1 else 'es'}"
        return f"gang of {size}: in backoff for {left} s after {launches}; later gangs may be admitted first"
    who = f"gang of {size}: " if size > 1 else ""
    asked, limit = f"{who}{kind} {amount_text(kind, wanted)} wanted", amount_text(kind, bound)
    which = f"{rule} of {path}"
    if host_pools:  # the rule counts these host pools only
        which = f"capacity of {host_pools}" if rule is Rule.CLUSTER_CAPACITY else f"{which} in {host_pools}"
    if is_final:
        return f"{asked}, more than the {which}: {limit}"
    return f"{asked}, {amount_text(kind, left)} left of the {which}: {limit}"


def backfill_text(reason: Reason) -> str:
    """Say for how long gangs behind the waiting one may be admitted first; empty if they never may."""
    if reason.backfill_s == NOT_BACKFILLED:
        return ""
    if reason.backfill_s == 0:
        return "gangs behind it have gone first for long enough, and wait for it now"
    return f"gangs behind it that fit may go first for {reason.backfill_s} s more"


# Reasons on hosts.


def misfit_text(misfit: Misfit) -> str:
    match misfit:
        case UnservedWorkload(host_pool, workload):
            return f"host pool {host_pool} does not serve {workload} pods"
        case UnmetConstraint(constraint):
            return f"{constraint} not met"
        case LackingAmount(HostRule.SIZE, kind, wanted, left):
            return f"less than {amount_text(kind, wanted)} {kind} even when empty, {amount_text(kind, left)} at most"
        case LackingAmount(rule, kind, wanted, left):
            what = kind if rule is HostRule.FREE_RESOURCES else f"revocable {kind}"
            return f"less than {amount_text(kind, wanted)} {what} free, {amount_text(kind, left)} at most"
        case LackingVolumeDisk(host_pool, wanted_mib, left_mib, volume_mib):
            disk, volume, most = (amount_text("disk", amount) for amount in (wanted_mib, volume_mib, left_mib))
            beyond = f"what host pool {host_pool} announces beyond the disk of its hosts is not for volumes"
            return f"less than {disk} disk free with a volume of {volume}, {most} at most: {beyond}"
        case PortInUse(port):
            return f"port {port} in use"
        case LackingPorts(wanted, left):
            return f"less than {format_count(wanted, 'port')} free, {left} at most"
        case NameTaken(cluster):
            return f"a host of cluster {cluster} has the same name"
        case NoDomain(label):
            return f"no label {label} with a domain that could take the pod"
        case SkewExceeded(label) as skew:
            most = f"at most {format_count(skew.pod_max, 'pod')} of the job in a {label}"
            return f"{most}: {label}={skew.lowest_domain} has {skew.lowest_count}, max skew {skew.skew_max}"
        case GangCapacity(size, fit_count, label):
            return f"fits {fit_count} of the gang's {size} pods{f' in one {label}' if label else ''}"
        case ReservedForOther(pod):
            return f"reserved for pod {pod}"
        case OwnReservation(hostname, since_s, until_s, kind, lacking):
            short = f", {amount_text(kind, lacking)} {kind} short" if lacking else ""
            return f"reserved for it {_span_text(since_s, until_s)}, not enough free resources yet{short}: {hostname}"
        case FailedPods() | FlappingHost() | Refused(HostRule.AVOIDED | HostRule.FLAPPING):
            return f"avoided {explain_avoidance(misfit)}"
        case Refused(rule):
            return _HOST_TEXTS[rule]


_HOST_TEXTS = {
    HostRule.EXCLUSIVE: f"kept for pods that ask for {EXCLUSIVE_LABEL}",
    HostRule.UNKNOWN: UNKNOWN,
    HostRule.NOT_OFFERED: "nothing on offer",
    HostRule.POD_SLOTS: "no pod slot left",
    HostRule.LEASED: "leased to another placement",
    HostRule.MAINTENANCE: "in maintenance",
    HostRule.GOES_SOON: "scheduled for maintenance in the cluster",
    HostRule.CLOSED: "closed to revocable pods after it was hot",
    HostRule.GPU_KEPT: "kept for pods with gpus, which wait",
    HostRule.HELD: "resources reserved for returning pods",
    HostRule.RETURN: "not enough free resources yet for a returning pod",
}


def explain_avoidance(avoided: Misfit) -> str:
    match avoided:
        case FlappingHost(return_count, within_s):
            return f"after it was gone and came back {return_count} times within {within_s} s"
        case FailedPods(pod_count, job_count, within_s):
            jobs = "the job" if job_count == 1 else f"{job_count} jobs"
            return f"after {pod_count} pods of {jobs} failed there within {within_s} s"
        case Refused(HostRule.FLAPPING):
            return "after it was gone and came back several times"
    return "after pods of several jobs failed there"


def reservation_text(kept: HostReservation) -> str:
    """Describe a reservation: its pod, start, end, and the choice of the host."""
    span = _span_text(kept.since_ns // NS_PER_S, kept.until_ns // NS_PER_S)
    host = kept.host
    kind, lacking, ending = host.kind, amount_text(host.kind, host.lacking), amount_text(host.kind, host.ending)
    why = (
        f"{kind} {lacking} of {ending} that batch pods hold there has to end"
        if host.lacking
        else "enough resources are free soon"
    )
    among = f", the smallest part on {format_count(host.host_count, 'host')}" if host.lacking else ""
    return f"for pod {kept.job_id}-{kept.instance_id} {span}: {why}{among}"


def _span_text(since_s: int, until_s: int) -> str:
    since, until = (datetime.fromtimestamp(seconds, UTC) for seconds in (since_s, until_s))
    return f"since {since:%Y-%m-%d %H:%M:%S}, until {until:%H:%M:%S} UTC"


def placement_text(reason: PlacementReason) -> str:
    """Describe why pods found no host."""
    return "; ".join(_cluster_text(one) for one in sorted(reason, key=lambda one: one.cluster))


def _cluster_text(reason: ClusterReason) -> str:
    where = f"cluster {reason.cluster}: " if reason.cluster else ""
    match reason.rule:
        case ClusterRule.NO_HOST:
            more = [f"and {format_count(reason.more_count, 'more shape')}"] if reason.more_count else []
            return where + "; ".join([*map(_no_host_text, reason.pods), *more])
        case ClusterRule.SILENT:
            return f"{where}its host manager does not answer"
        case ClusterRule.ELSEWHERE:
            kind = f", {CLUSTER_KIND_LABEL}={reason.detail}" if reason.detail else ""
            return f"{where}no pod may go there: label {CLUSTER_LABEL}={reason.cluster}{kind}"
        case ClusterRule.FAILED:
            return where + reason.detail
        case ClusterRule.NOT_READY:
            return f"{where}no pod waits for a host any more"
        case ClusterRule.LEASE_LOST:
            return f"{where}the lease of the hosts that were found was lost"
    return where + UNKNOWN


def _no_host_text(pods: NoHost) -> str:
    what = f"gang of {pods.pod_count}" if pods.is_gang else format_count(pods.pod_count, "pod")
    return f"{what} without a host ({'; '.join(map(hosts_text, pods.hosts)) or 'no host offered'})"


def hosts_text(refusing: RefusingHosts) -> str:
    return f"{format_count(refusing.host_count, 'host')}: {misfit_text(refusing.why)}"


def infeasible_text(reason: Infeasibility) -> str:
    """Describe why no host could take a pod even if it were empty."""
    return "; ".join(_infeasible_text(one) for one in sorted(reason, key=lambda one: one.cluster))


def _infeasible_text(one: Infeasible) -> str:
    where = f"cluster {one.cluster}: " if one.cluster else ""
    hosts, total = format_count(one.host_count, "host"), one.host_count
    if one.workload and one.served_count < one.host_count:
        pools = f"host pools that serve {one.workload} pods"
        if not one.served_count:
            return f"{where}0 of {hosts} are in {pools}"
        hosts, total = f"{format_count(one.served_count, 'host')} in {pools}", one.served_count
    rule = f"meet the constraint {one.constraint}" if one.constraint else "are not kept for others"
    if not one.allowed_count and not one.constraint:
        return f"{where}0 of {hosts} take pods that do not ask for {EXCLUSIVE_LABEL}"
    if not one.allowed_count:
        kept = f", and take only pods that ask for {EXCLUSIVE_LABEL}" if one.meeting_count else ""
        return f"{where}{one.meeting_count} of {hosts} {rule}{kept}"
    which = hosts if one.allowed_count == total else f"the {one.allowed_count} of {hosts} that {rule}"
    amounts = [
        (kind, amount_text(kind, wanted), amount_text(kind, most) if most < wanted else "")
        for kind, wanted, most in pair_amounts(one.wanted, one.largest)
        if wanted
    ]
    short = [f"no host has {k} {wanted}: the largest of {which} has {most}" for k, wanted, most in amounts if most]
    if short:
        return where + "; ".join(short)
    return f"{where}no host has {' and '.join(f'{k} {wanted}' for k, wanted, _ in amounts)} together: there are {which}"


# Requeues and evictions.


def requeue_text(reason: RequeueReason) -> str:
    size, count, seconds = reason.gang_size, reason.count, f"{reason.seconds:g} s"
    gang = "members of the gang"
    match reason.rule:
        case RequeueRule.NO_GANG_HOSTS_IN_TIME:
            said = f"no hosts for all {size} {gang} in {seconds}"
        case RequeueRule.NOT_RUNNING_IN_TIME:
            said = f"{count} of {size} {gang} run {seconds} after its launch"
        case RequeueRule.NOT_LAUNCHED:
            said = f"{count} of {size} {gang} could not be launched"
        case RequeueRule.LEFT_BEHIND:
            said = f"{count} of {size} {gang} were left behind by the others"
        case RequeueRule.CANCELLED:
            said = "the workflow of its launch was cancelled"
        case RequeueRule.NO_HOST_IN_TIME:
            said = f"no host found in {seconds}"
        case RequeueRule.FITS_NO_HOST:
            said = ""
        case _:
            said = UNKNOWN
    if said and reason.placement:
        said = f"{said}: {placement_text(reason.placement)}"
    more = f"and {format_count(reason.more_count, 'more reason')}" if reason.more_count else ""
    return "; ".join(part for part in (*map(infeasible_text, reason.infeasible), said, more) if part)


def eviction_text(reason: EvictionReason, names: Names = NO_NAMES) -> str:
    return _grounds_text(reason, names) if isinstance(reason, Grounds) else _qos_text(reason)


def _grounds_text(grounds: Grounds, names: Names) -> str:
    kind = grounds.kind
    wanted, held, bound = (amount_text(kind, amount) for amount in (grounds.wanted, grounds.held, grounds.bound))
    whom = job_text(grounds.for_job, names) if grounds.for_job else "this job"
    asked = f"preempted for {whom} of {grounds.for_pool}, which wants {kind} {wanted}: "
    if grounds.is_inside and grounds.priority > grounds.own_priority:
        return (
            f"{asked}its priority is {grounds.priority}, this one's {grounds.own_priority}, "
            f"and {held} of the {grounds.rule} {bound} is used"
        )
    if grounds.is_inside and grounds.priority == grounds.own_priority:  # only a gang evicts its equals: its own extras
        return f"{asked}it is the gang of this pod, and {held} of the {grounds.rule} {bound} is used"
    return f"{asked}{grounds.pool_path} holds {held} and is entitled to {bound}"


def _qos_text(reason: QosReason) -> str:
    host, used, total = reason.hostname, reason.used, reason.total
    if reason.rule is QosRule.DAEMON:
        return f"host {reason.hostname} frees resources for a daemon"
    if reason.rule is QosRule.LESS_SLACK:
        return f"host {host} has cpu {total / 1000:g} of slack left, revocable pods hold {used / 1000:g}"
    amounts = f"memory {used} of {total} MiB"
    if reason.rule is QosRule.HOT_CPU:
        amounts = f"cpu {used / 1000:.2f} of {total / 1000:g}"
    return f"host {host} is hot: {amounts} in use ({used * 100 // total} %, allowed {reason.bound} %)"

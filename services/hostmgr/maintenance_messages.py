"""Conversion of rows of hosts in maintenance to and from the host manager's private messages."""

from __future__ import annotations

from peloton.api.private import hostmgr_pb2 as pb
from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import Blocker, DrainProgress, HostMaintenance
from services.hostmgr.messages import resources_from_wire, resources_to_wire


def encode_step(host: HostMaintenance) -> pb.MaintenanceStepResponse:
    """Return the answer to a step, with the row after it."""
    progress = host.progress
    row = pb.MaintainedHost(
        cluster=host.cluster,
        hostname=host.hostname,
        state=host.state.value,
        goal=host.goal.value,
        ip=host.ip,
        seq=host.seq,
        at_most=host.at_most,
        deadline_seconds=host.deadline_s,
        forced=host.is_forced,
        reason=host.reason,
        requested_ns=host.requested_ns,
        drained_from_ns=host.drained_from_ns,
        changed_ns=host.changed_ns,
        pod_count=progress.pod_count,
        leaving_count=progress.leaving_count,
        blockers=[pb.DrainBlocker(job_id=b.job_id, pod_count=b.pod_count, reason=b.reason) for b in progress.blockers],
        waiting_for=progress.waiting_for,
        capacity=resources_to_wire(host.capacity),
        to_pool=host.to_pool,
    )
    return pb.MaintenanceStepResponse(host=row)


def decode_step(wire: pb.MaintenanceStepResponse) -> HostMaintenance | None:
    """Return the row after a step; None from a server of an earlier release."""
    if not wire.HasField("host"):
        return None
    row = wire.host
    blockers = tuple(Blocker(b.job_id, b.pod_count, b.reason) for b in row.blockers)
    return HostMaintenance(
        row.cluster,
        Hostname(row.hostname),
        HostState(row.state),
        HostState(row.goal),
        ip=row.ip,
        seq=row.seq,
        at_most=row.at_most,
        deadline_s=row.deadline_seconds,
        is_forced=row.forced,
        reason=row.reason,
        requested_ns=row.requested_ns,
        drained_from_ns=row.drained_from_ns,
        changed_ns=row.changed_ns,
        progress=DrainProgress(row.pod_count, row.leaving_count, blockers, row.waiting_for),
        capacity=resources_from_wire(row.capacity),
        to_pool=row.to_pool,
    )

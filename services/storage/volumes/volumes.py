"""Volumes of instances on hosts, and requests to delete them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from peloton.api.convert_volume import VOLUME_STATE_NUMBERS
from peloton.errors import Aborted, NotFound, Reason
from peloton.lifecycle.host_events import volume_seen
from peloton.lifecycle.volumes import deletion_refusal, is_claimed, last_run
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JOB_TERMINAL
from peloton.model.pod import ON_HOST, PodRecord
from peloton.model.volume import RetainedVolume, VolumeRecord, VolumeState
from services.storage.codec import pod_record
from services.storage.engine import Repository, key_table, key_values, reading, writing
from services.storage.hosts.host_events import record
from services.storage.jobs.rows import hold_job
from services.storage.jobs.wakes import note_wakes
from services.storage.mapper import strip_nul
from services.storage.tables import POD, VOLUME
from services.storage.volumes.rows import WAITED_FOR, leave, read_retained, volume_record, volumes_of

VOLUMES_PER_PAGE = 1_000
JOBS_PER_QUERY = 500


class Volumes(Repository):
    @reading
    def get(self, conn: sa.Connection, volume_id: str) -> VolumeRecord | None:
        query = sa.select(VOLUME).where(VOLUME.c.volume_id == volume_id)
        row = conn.execute(query).one_or_none()
        return None if row is None else volume_record(row)

    def of_instances(self, job_id: JobId, instance_ids: Sequence[int]) -> dict[int, VolumeRecord]:
        """Return the current volumes of these instances."""
        return self._db.read(lambda conn: volumes_of(conn, job_id, instance_ids)) if instance_ids else {}

    @reading
    def pools_left(self, conn: sa.Connection, job_ids: Collection[JobId]) -> dict[JobId, RespoolId]:
        """Return the pools to which volumes of jobs belong, also of deleted jobs."""
        wanted, found = sorted(set(job_ids)), dict[JobId, RespoolId]()
        for begin in range(0, len(wanted), JOBS_PER_QUERY):
            some = wanted[begin : begin + JOBS_PER_QUERY]
            rows = conn.execute(sa.select(VOLUME.c.job_id, VOLUME.c.respool_id).where(VOLUME.c.job_id.in_(some)))
            found.update({JobId(job_id): RespoolId(pool_id) for job_id, pool_id in rows})
        return found

    def page(self, after: str = "", job_id: str = "", cluster: str | None = None) -> list[VolumeRecord]:
        """Return the next volumes by id, at most VOLUMES_PER_PAGE, including volumes that will be deleted.

        A job or a cluster restricts the listing.
        """
        query = sa.select(VOLUME).order_by(VOLUME.c.volume_id).limit(VOLUMES_PER_PAGE)
        if after:
            query = query.where(VOLUME.c.volume_id > after)
        if job_id:
            query = query.where(VOLUME.c.job_id == job_id)
        if cluster is not None:
            query = query.where(VOLUME.c.cluster == cluster)
        return self._db.read(lambda conn: [volume_record(row) for row in conn.execute(query)])

    def list_retained(self) -> list[RetainedVolume]:
        """Return retained volumes, which count against their pools although they have no pod."""
        return self._db.read(read_retained)

    def list_lost(self, job_id: JobId, limit: int) -> list[VolumeRecord]:
        """Return lost volumes of the job for which pods wait."""
        query = sa.select(VOLUME).where(VOLUME.c.job_id == job_id, WAITED_FOR).order_by(VOLUME.c.instance_id)
        return self._db.read(lambda conn: [volume_record(row) for row in conn.execute(query.limit(limit))])

    def pods_of(self, volumes: Sequence[VolumeRecord]) -> dict[str, PodRecord]:
        """Return the pods of the volumes' instances that exist, by volume."""
        by_instance: dict[tuple[str, int], list[str]] = {(each.job_id, each.instance_id): [] for each in volumes}
        for volume in volumes:
            by_instance[volume.job_id, volume.instance_id].append(volume.volume_id)

        def work(conn: sa.Connection) -> dict[str, PodRecord]:
            keys = key_table(conn.dialect.name)
            same = sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id)
            query = sa.select(POD).select_from(keys.join(POD, same))
            rows = conn.execute(query, key_values(conn.dialect.name, sorted(by_instance)))
            return {one: pod_record(row) for row in rows for one in by_instance[row.job_id, row.instance_id]}

        return self._db.read(work) if volumes else {}

    @writing
    def delete(self, conn: sa.Connection, volume_id: str, gives_up: bool, now_ns: int) -> VolumeRecord:
        """Mark the volume as deleted, detach it from its pod, and let its host destroy it. The call is idempotent.

        Raises NotFound, and Aborted while the volume is in use.
        """
        query = sa.select(VOLUME).where(VOLUME.c.volume_id == volume_id)
        row = conn.execute(query).one_or_none()
        if row is None:
            raise NotFound(f"volume {volume_id} not found").because(Reason.VOLUME_NOT_FOUND, volume=volume_id)
        job = hold_job(conn, row.job_id)  # launches lock the job as well
        row = conn.execute(query).one_or_none()
        if row is None:
            raise NotFound(f"volume {volume_id} not found").because(Reason.VOLUME_NOT_FOUND, volume=volume_id)
        volume = volume_record(row)
        if not volume.is_wanted:
            return volume
        pod = _pod_of(conn, volume) if job is not None else None
        if refusal := deletion_refusal(volume, pod, job is None or job.state in JOB_TERMINAL, gives_up):
            raise Aborted(refusal)
        _delete(conn, volume, now_ns)
        leave(conn, volume, pod, now_ns)
        note_wakes(conn, [volume.job_id], now_ns)
        return replace(volume, goal=VolumeState.DELETED, changed_ns=now_ns)

    @writing
    def let_go(self, conn: sa.Connection, volume: VolumeRecord, run: int, is_begun: bool, now_ns: int) -> bool:
        """Release a volume that was never created, so that its instance can get a volume on any host.

        ``run`` is the ``last_run`` of the pod; ``is_begun``: a part of the volume exists on its host. If the pod was
        launched since or the volume has changed, nothing happens and False is returned.
        """
        job = hold_job(conn, volume.job_id)
        row = conn.execute(sa.select(VOLUME).where(VOLUME.c.volume_id == volume.volume_id)).one_or_none()
        if row is None or not is_claimed(volume_record(row)):
            return False
        pod = _pod_of(conn, volume) if job is not None else None
        if last_run(pod) != run or (pod is not None and pod.state in ON_HOST):
            return False
        if is_begun:
            _delete(conn, volume, now_ns)
        else:
            conn.execute(sa.delete(VOLUME).where(VOLUME.c.volume_id == volume.volume_id))
        leave(conn, volume, pod, now_ns)
        note_wakes(conn, [volume.job_id], now_ns)
        return True

    # Reports of the host manager of the cluster.

    def note(self, states: Mapping[str, tuple[VolumeState, str]], now_ns: int) -> None:
        """Store changed states and notes of volumes. A new note without a new state does not change ``changed_ns``."""

        def work(conn: sa.Connection) -> None:
            before = conn.execute(sa.select(VOLUME).where(VOLUME.c.volume_id.in_(sorted(states))))
            events = [volume_seen(one, *states[one.volume_id], now_ns) for one in map(volume_record, before)]
            for volume_id, (state, note) in sorted(states.items()):
                number = VOLUME_STATE_NUMBERS[state]
                text, is_new = strip_nul(note), VOLUME.c.state != number
                changed_ns = sa.case((is_new, now_ns), else_=VOLUME.c.changed_ns)
                mine = sa.and_(VOLUME.c.volume_id == volume_id, sa.or_(is_new, VOLUME.c.note != text))
                conn.execute(sa.update(VOLUME).where(mine).values(state=number, note=text, changed_ns=changed_ns))
            record(conn, events)

        if states:
            self._db.write(work)

    def delete_destroyed(self, volume_ids: Sequence[str]) -> None:
        """Delete the records of destroyed volumes whose deletion was requested."""
        gone = sa.and_(VOLUME.c.volume_id.in_(volume_ids), VOLUME.c.goal == VOLUME_STATE_NUMBERS[VolumeState.DELETED])
        if volume_ids:
            self._db.write(lambda conn: conn.execute(sa.delete(VOLUME).where(gone)))


def _pod_of(conn: sa.Connection, volume: VolumeRecord) -> PodRecord | None:
    same = sa.and_(POD.c.job_id == volume.job_id, POD.c.instance_id == volume.instance_id)
    found = conn.execute(sa.select(POD).where(same)).one_or_none()
    return None if found is None else pod_record(found)


def _delete(conn: sa.Connection, volume: VolumeRecord, now_ns: int) -> None:
    """Request that the host destroys the volume, or delete the record if the volume has no host."""
    mine = VOLUME.c.volume_id == volume.volume_id
    if not volume.is_bound:
        conn.execute(sa.delete(VOLUME).where(mine))
        return
    goal = VOLUME_STATE_NUMBERS[VolumeState.DELETED]
    conn.execute(sa.update(VOLUME).where(mine).values(goal=goal, changed_ns=now_ns))

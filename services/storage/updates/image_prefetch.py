"""Images that the next instances of an update in place bring to their hosts."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle import rollout
from peloton.lifecycle.images import PrefetchCandidate, to_fetch
from peloton.model.ids import Hostname
from peloton.model.update import UpdateRecord
from services.storage.jobs.configs import read_facts
from services.storage.pods.scope import Chosen, within
from services.storage.tables import JOB, POD
from services.storage.updates import instances
from services.storage.updates.rows import read_update


def images_to_prefetch(conn: sa.Connection, job_id: str) -> dict[str, list[Hostname]]:
    """Image -> hosts, as the job and its update are now."""
    update_id = conn.execute(sa.select(JOB.c.update_id).where(JOB.c.job_id == job_id)).scalar()
    update = read_update(conn, update_id) if update_id else None
    return {} if update is None else next_images(conn, update, instances.pods_of(conn, job_id))


def next_images(conn: sa.Connection, update: UpdateRecord, pods: rollout.Pods) -> dict[str, list[Hostname]]:
    """The same for an update and the pods of its job, which the caller has read."""
    coming = rollout.coming_back(update, pods)
    if not coming:
        return {}
    job_id, span = update.job_id, (min(coming), max(coming))
    versions = {update.config_version, *(pods[i].config_version for i in coming)}
    facts = {version: read_facts(conn, job_id, version, span) for version in versions}

    def image(instance: int, version: int) -> str:
        default, overridden = facts[version]
        found = overridden.get(instance, default)
        return "" if found is None else found.image

    query = sa.select(POD.c.instance_id, POD.c.state, POD.c.host, POD.c.desired_host)
    rows = {row.instance_id: row for row in conn.execute(query.where(within(conn, Chosen(job_id, coming))))}
    return to_fetch(
        PrefetchCandidate(
            POD_STATES[rows[i].state],
            rows[i].host,
            rows[i].desired_host,
            image(i, pods[i].config_version),
            image(i, update.config_version),
        )
        for i in coming
    )

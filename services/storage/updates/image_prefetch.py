"""Images to prefetch for the next instances of an update in place."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.api.convert import POD_STATES
from peloton.lifecycle import rollout
from peloton.lifecycle.images import PrefetchCandidate, to_fetch
from peloton.model.ids import Hostname
from peloton.model.update import UpdateRecord
from services.storage.jobs.configs import facts_of
from services.storage.pods.scope import Chosen, within
from services.storage.tables import JOB, POD
from services.storage.updates.rows import read_update
from services.storage.updates.update_pods import StoredPods


def images_to_prefetch(conn: sa.Connection, job_id: str) -> dict[str, list[Hostname]]:
    """Return image -> hosts for the current state of the job and its update."""
    update_id = conn.execute(sa.select(JOB.c.update_id).where(JOB.c.job_id == job_id)).scalar()
    update = read_update(conn, update_id) if update_id else None
    return {} if update is None else next_images(conn, update)


def next_images(conn: sa.Connection, update: UpdateRecord) -> dict[str, list[Hostname]]:
    """Return image -> hosts for an update that the caller has read."""
    coming = rollout.coming_back(update, StoredPods(conn, update.job_id))
    if not coming:
        return {}
    job_id = update.job_id
    now = facts_of(conn, job_id, {i: pod.config_version for i, pod in coming.items()})
    then = facts_of(conn, job_id, dict.fromkeys(coming, update.config_version))
    query = sa.select(POD.c.instance_id, POD.c.state, POD.c.host, POD.c.desired_host)
    rows = conn.execute(query.where(within(conn, Chosen(job_id, [*coming]))))
    by_instance = {i: (POD_STATES[state], host, desired_host) for i, state, host, desired_host in rows}
    return to_fetch(PrefetchCandidate(*by_instance[i], now[i].image, then[i].image) for i in coming)

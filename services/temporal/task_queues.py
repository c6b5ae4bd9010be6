"""Task queues of Temporal, and the search attributes that its server must know."""

from __future__ import annotations

import logging
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.model.job import JobType
from workflows.attributes import SEARCH_ATTRIBUTES

log = logging.getLogger(__name__)

BATCH_QUEUE, SERVICE_QUEUE, MAINTENANCE_QUEUE = "peloton-batch", "peloton-services", "peloton-maintenance"
"""Task queues; a worker has separate slots for each. Earlier versions start every workflow on the first one: workers
serve workflows of every kind on each of them.
"""
TASK_QUEUES = (BATCH_QUEUE, SERVICE_QUEUE, MAINTENANCE_QUEUE)
WORKFLOW_TASK_TIMEOUT = timedelta(seconds=5)
"""Time after which another worker takes the workflow task of a dead one."""
RPC_TIMEOUT = timedelta(seconds=10)


async def register_search_attributes(client: Client) -> None:
    """Add the missing search attributes; a no-op on the local cluster, whose server starts with them. When only
    administrators may add them, as on Temporal Cloud, log which are missing.
    """
    service = client.operator_service
    missing = {attribute.name for attribute in SEARCH_ATTRIBUTES}
    try:
        known = await service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
        missing -= set(known.custom_attributes)
        if missing:
            keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            await service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=client.namespace, search_attributes=dict.fromkeys(sorted(missing), keyword)
                )
            )
    except RPCError as error:
        if error.status not in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            raise
        log.error(
            "search attributes %s are missing and could not be added: add them as keywords (%s)",
            ", ".join(sorted(missing)),
            error,
        )


def queue_of(job_type: JobType) -> str:
    """Return the task queue of the job's workflow and its child workflows."""
    return SERVICE_QUEUE if job_type in (JobType.SERVICE, JobType.DAEMON) else BATCH_QUEUE

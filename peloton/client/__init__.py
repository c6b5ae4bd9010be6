"""Client of Peloton's public API.

with Client("localhost:5397") as client:
    job_id = client.jobs.Create(request).jobId
"""

from peloton.client.asynchronous import AsyncClient
from peloton.client.blocking import Client
from peloton.client.repeats import NO_RETRIES, WATCH_POLICY, Outage, RetryPolicy, is_away, retry_after_s
from peloton.client.services import (
    CHANNEL_OPTIONS,
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    HOSTMGR,
    JOBMGR,
    RESMGR,
    target,
)
from peloton.client.tls import Tls

__all__ = [
    "CHANNEL_OPTIONS",
    "DEFAULT_ADDRESS",
    "DEFAULT_TIMEOUT_S",
    "HOSTMGR",
    "JOBMGR",
    "NO_RETRIES",
    "RESMGR",
    "WATCH_POLICY",
    "AsyncClient",
    "Client",
    "Outage",
    "RetryPolicy",
    "Tls",
    "is_away",
    "retry_after_s",
    "target",
]

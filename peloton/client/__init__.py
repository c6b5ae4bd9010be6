"""Client of Peloton's public API.

with Client("localhost:5397") as client:
    job_id = client.jobs.Create(request).jobId
"""

from peloton.client.blocking import (
    CHANNEL_OPTIONS,
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_S,
    HOSTMGR,
    JOBMGR,
    RESMGR,
    BusyRetry,
    CallDefaults,
    Client,
    Stub,
    retry_after_s,
    target,
)

__all__ = [
    "CHANNEL_OPTIONS",
    "DEFAULT_ADDRESS",
    "DEFAULT_TIMEOUT_S",
    "HOSTMGR",
    "JOBMGR",
    "RESMGR",
    "BusyRetry",
    "CallDefaults",
    "Client",
    "Stub",
    "retry_after_s",
    "target",
]

"""Health check of a role, for containers: ``python healthcheck.py ROLE``; exit code 0 or 1, the reason on stderr.

api: its gRPC health service answers SERVING. resmgr, hostmgr: a leader holds the lease and its port answers; the leader
may be another container, as a standby is healthy too. worker: a worker polls each task queue. web: it answers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
import urllib.request

from peloton.model.ids import hostmgr_role
from services.settings import Settings, load

TIMEOUT_S = 5.0


def check_api(settings: Settings) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(f"127.0.0.1:{settings.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise RuntimeError(f"the api says {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}")


def check_leader(settings: Settings, role: str) -> None:
    from services.storage.storage import Storage

    storage = Storage(settings.database)
    try:
        address = storage.leases.leader(role, time.time())
    finally:
        storage.close()
    if not address:
        raise RuntimeError(f"no {role} leads")
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=TIMEOUT_S).close()


async def check_worker(settings: Settings) -> None:
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    from services import temporal, temporal_connection

    config = temporal_connection.connect_config(settings.temporal, settings.temporal_namespace)
    client = await temporal_connection.connect(config, "healthcheck")
    for name in temporal.TASK_QUEUES:
        request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=name))
        if not (await client.workflow_service.describe_task_queue(request)).pollers:
            raise RuntimeError(f"no worker polls {name}")


def check_web(settings: Settings) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{settings.web_port}/settings.json", timeout=TIMEOUT_S):
        pass


def main(role: str) -> int:
    settings = load()
    try:
        if role == "api":
            check_api(settings)
        elif role == "web":
            check_web(settings)
        elif role == "worker":
            asyncio.run(asyncio.wait_for(check_worker(settings), TIMEOUT_S))
        else:
            check_leader(settings, hostmgr_role(settings.cluster) if role == "hostmgr" else role)
    except Exception as error:
        print(f"{role}: {str(error) or repr(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)  # a client that never connected may crash in the interpreter's orderly end

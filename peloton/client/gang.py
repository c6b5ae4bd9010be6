"""Program that keeps a file of the live members of a gang.

    python -m peloton.client.gang --file /run/hosts --format hosts

It asks the API for the gang of the pod in which it runs, and replaces the file whenever live members change. With
``--once`` it writes the file and ends, and ``--file -`` prints: with ``--format horovod`` that is a discovery script.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.gang import gang_pb2
from peloton.client.blocking import Client
from peloton.client.services import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from peloton.api.v0.gang.gang_pb2 import GetGangResponse, Member

WAIT_S = 30
CALL_TIMEOUT_S = WAIT_S + 15.0
RETRY_S = 2.0
"""Seconds between calls while the API does not answer."""
PERMANENT = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
PRINTED = "-"


def live_members(gang: GetGangResponse) -> list[Member]:
    """Return the live members by rank."""
    return sorted((member for member in gang.members if member.isLive), key=lambda member: member.rank)


def endpoint(member: Member) -> str:
    host = f"[{member.address}]" if ":" in member.address and member.port else member.address
    return f"{host}:{member.port}" if member.port else host


def hosts_text(gang: GetGangResponse, instance: int) -> str:
    """Return a line for each live member: host:port."""
    return "".join(f"{endpoint(member)}\n" for member in live_members(gang))


def horovod_text(gang: GetGangResponse, instance: int) -> str:
    """Return a line for each host with live members: host:slots."""
    slots = Counter(member.address for member in live_members(gang))
    return "".join(f"{address}:{count}\n" for address, count in slots.items())


def tf_config_text(gang: GetGangResponse, instance: int) -> str:
    """Return TF_CONFIG of one member; without a task while the member is not live."""
    live = live_members(gang)
    config: dict[str, object] = {"cluster": {"worker": [endpoint(member) for member in live]}}
    for index, member in enumerate(live):
        if member.instanceId == instance:
            config["task"] = {"type": "worker", "index": index}
    return json.dumps(config) + "\n"


def json_text(gang: GetGangResponse, instance: int) -> str:
    """Return the answer of the API."""
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(gang, always_print_fields_with_no_presence=True, indent=1) + "\n"


FORMATS: dict[str, Callable[[GetGangResponse, int], str]] = {
    "hosts": hosts_text,
    "horovod": horovod_text,
    "tf_config": tf_config_text,
    "json": json_text,
}


def write(path: str, text: str) -> None:
    """Replace the file at once, so that a reader sees the old text or the new one."""
    if path == PRINTED:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    part = Path(f"{path}.{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)


def follow(client: Client, job_id: str, instance: int, path: str, form: str, once: bool) -> None:
    """Write the file at each change of its text. Raises OSError, and RpcError when the API refuses the calls."""
    revision, before = "", None
    while True:
        request = gang_pb2.GetGangRequest(
            jobId=peloton_pb2.JobID(value=job_id), afterRevision=revision, waitSeconds=WAIT_S
        )
        try:
            gang = client.gangs.GetGang(request, timeout=CALL_TIMEOUT_S)
        except grpc.RpcError as error:
            has_none = before is None and error.code() is grpc.StatusCode.UNAUTHENTICATED  # later: a token is replaced
            if once or has_none or error.code() in PERMANENT:
                raise
            print(f"gang of job {job_id}: {error.details()}; the call is repeated", file=sys.stderr, flush=True)
            time.sleep(RETRY_S)
            continue
        revision, text = gang.revision, FORMATS[form](gang, instance)
        if text != before:
            write(path, text)
            before = text
        if once:
            return


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m peloton.client.gang", description=(__doc__ or "").split("\n")[0])
    given = os.environ.get
    parser.add_argument("--file", required=True, help="the file to keep; - prints")
    parser.add_argument("--format", choices=FORMATS, default="hosts")
    parser.add_argument("--once", action="store_true", help="write it once and end")
    parser.add_argument("--address", default=given("PELOTON_ADDRESS", DEFAULT_ADDRESS), help="HOST:PORT of the API")
    parser.add_argument("--job", default=given("PELOTON_JOB_ID", ""), help="id of the job")
    parser.add_argument("--instance", type=int, default=int(given("PELOTON_INSTANCE_ID", "0")))
    options = parser.parse_args(arguments)
    if not options.job:
        parser.error("no job: give --job, or set PELOTON_JOB_ID")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    try:
        with Client(options.address) as client:
            follow(client, options.job, options.instance, options.file, options.format, options.once)
    except grpc.RpcError as error:
        print(f"gang of job {options.job} at {options.address}: {error.details()}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{options.file}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())

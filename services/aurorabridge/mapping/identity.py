"""Identity of jobs and pods: a job key is a job's name and its labels; metadata of a task are labels of its pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from peloton.api.v1alpha.peloton_pb2 import Label
from peloton.model.text import quote
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

ROLE, ENVIRONMENT, NAME = "aurora_job_key_role", "aurora_job_key_environment", "aurora_job_key_name"
JOB_MARK = ("aurora_bridge", "com.uber.peloton.internal.aurorabridge")
POD_MARK = ("aurora_bridge_pod", "com.uber.peloton.internal.aurorabridge_pod")
POD_KEY = "aurora_job_key"
METADATA = "org.apache.aurora.metadata."
UPDATE = "aurora_bridge_update"
"""Label with a random value, which makes an update restart a stopped pod whose configuration has not changed."""


def job_name(key: Any) -> str:
    """Return the name of the job with this key. Raises Refusal for a key that could not be read back."""
    parts = (key.role, key.environment, key.name) if key is not None else ()
    if not parts or any(not part or "/" in part or not part.isprintable() for part in parts):
        text = quote("/".join(part or "" for part in parts))
        raise Refusal(f"invalid job key {text}: role, environment and name must be printable, and have no slashes")
    return "/".join(parts)


def job_key(name: str) -> Any:
    """Return the key of the job with this name. Raises Refusal."""
    parts = name.split("/")
    if len(parts) != 3 or not all(parts):
        raise Refusal(f"invalid job name {quote(name)}: not role/environment/name")
    return api.JobKey(role=parts[0], environment=parts[1], name=parts[2])


def job_labels(key: Any) -> list[Label]:
    pairs = (JOB_MARK, (ROLE, key.role), (ENVIRONMENT, key.environment), (NAME, key.name))
    return [Label(key=name, value=value) for name, value in pairs]


def pod_labels(name: str, metadata: Iterable[Any] | None) -> list[Label]:
    """Return the labels of the pods of a job, with one for each piece of metadata, in order of their keys."""
    pairs = sorted((f"{METADATA}{one.key or ''}", one.value or "") for one in metadata or ())
    return [Label(key=key, value=value) for key, value in (POD_MARK, (POD_KEY, name), *pairs)]


def metadata_of(labels: Iterable[Label]) -> list[Any]:
    return [
        api.Metadata(key=label.key.removeprefix(METADATA), value=label.value)
        for label in labels
        if label.key.startswith(METADATA)
    ]


def without_update(labels: Sequence[Label]) -> list[Label]:
    return [label for label in labels if label.key != UPDATE]

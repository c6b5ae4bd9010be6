"""Update keys: names given by clients, which identify repeated requests."""

from __future__ import annotations

from copy import deepcopy
from hashlib import sha256

from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.errors import InvalidArgument
from peloton.model.text import quote
from peloton.model.update import UpdateKey
from services.api.v1.ids import check_text

KEY_BYTES_MAX = 256

KeyedRequest = svc.CreateJobRequest | svc.ReplaceJobRequest | svc.PatchJobRequest | svc.RestartJobRequest


def key_of(request: KeyedRequest) -> UpdateKey:
    """Return the key of a request, with a digest.

    The digest leaves out the version, which has changed when a request is repeated, and the opaque data, which is a
    note. Raises InvalidArgument.
    """
    text = key_text(request.update_key)
    if not text:
        return UpdateKey()
    if isinstance(request, svc.CreateJobRequest) and not request.job_id.value:
        raise InvalidArgument(
            f"a creation with the update key {quote(text)} needs a job_id: repeated, it would make another job"
        )
    asked = deepcopy(request)
    asked.ClearField("opaque_data")
    if not isinstance(asked, svc.CreateJobRequest):
        asked.ClearField("version")
    words = asked.DESCRIPTOR.full_name.encode() + asked.SerializeToString(deterministic=True)
    return UpdateKey(text, sha256(words).hexdigest())


def key_text(text: str) -> str:
    """Return the text of a key. Raises InvalidArgument if it cannot be stored."""
    return check_text("the update key", text, KEY_BYTES_MAX)

"""Outcomes of the creation of a pod, from the apiserver's answer."""

from __future__ import annotations

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver.wire import Answer
from services.hostmgr.kubernetes.pods.launches import Outcome, verdict_of
from services.hostmgr.kubernetes.preparation import is_unprepared

QUOTA = 'pods "x" is forbidden: exceeded quota: rq, requested: pods=1, used: pods=5, limited: pods=5'
RIGHTS = 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "peloton"'
CLASS = 'pods "x" is forbidden: no PriorityClass with name peloton was found'
ACCOUNT = 'pods "x" is forbidden: error looking up service account peloton/default: serviceaccount "default" not found'
ENDING = 'pods "x" is forbidden: unable to create new content in namespace n because it is being terminated'
NAMED = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": (container "quota-sync" must set ...)'
MISSING = 'pods "x" is forbidden: failed quota: rq: must specify requests.cpu for: main'
POLICY = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged'


def answer(status: int, reason: str = "", message: str = "") -> Answer:
    return Answer(status, orjson.dumps({"kind": "Status", "reason": reason, "message": message}))


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (answer(201), Outcome.TAKEN),
        (answer(409, "AlreadyExists"), Outcome.EXISTS),
        (answer(409, "Conflict"), Outcome.REFUSED),
        (answer(403, "Forbidden", QUOTA), Outcome.REFUSED),
        (answer(403, "Forbidden", MISSING), Outcome.REFUSED),
        (answer(403, "Forbidden", NAMED), Outcome.INVALID),
        (answer(403, "Forbidden", RIGHTS), Outcome.REFUSED),
        (answer(403, "Forbidden", CLASS), Outcome.REFUSED),
        (answer(403, "Forbidden", ACCOUNT), Outcome.REFUSED),
        (answer(403, "Forbidden", ENDING), Outcome.REFUSED),
        (answer(403, "Forbidden", POLICY), Outcome.INVALID),
        (answer(404, "NotFound", 'namespaces "peloton" not found'), Outcome.REFUSED),
        (answer(422, "Invalid", "spec.containers[0].image: Required value"), Outcome.INVALID),
        (answer(429, "TooManyRequests"), Outcome.REFUSED),
        (answer(500, "InternalError", "etcdserver: request timed out"), Outcome.UNKNOWN),
        (answer(401, "Unauthorized"), Outcome.REFUSED),
        (TimeoutError("no answer"), Outcome.UNKNOWN),
    ],
    ids=lambda value: value.name if isinstance(value, Outcome) else "",
)
def test_an_answer_says_whether_the_pod_is_there(given: Answer | OSError, outcome: Outcome) -> None:
    """A fault of the pod itself makes it fail; a fault that an administrator can repair makes it wait."""
    assert outcome is verdict_of(given).outcome


def test_a_refusal_has_the_words_of_the_apiserver() -> None:
    """The text of the apiserver names the object and the numbers."""
    assert QUOTA in verdict_of(answer(403, "Forbidden", QUOTA)).why


@pytest.mark.parametrize(
    ("given", "is_of_all"),
    [
        (answer(403, "Forbidden", RIGHTS), True),
        (answer(403, "Forbidden", CLASS), True),
        (answer(403, "Forbidden", ACCOUNT), True),
        (answer(403, "Forbidden", ENDING), True),
        (answer(404, "NotFound", 'namespaces "peloton" not found'), True),
        (answer(403, "Forbidden", QUOTA), False),
        (answer(403, "Forbidden", POLICY), False),
        (
            answer(403, "Forbidden", RIGHTS.replace("pods", "secrets").replace('"u"', '"system:serviceaccount:a:b"')),
            False,
        ),
        (answer(201), False),
    ],
    ids=str,
)
def test_a_refusal_says_whether_all_pods_are_meant(given: Answer, is_of_all: bool) -> None:
    """Launch stop until such a fault is repaired; pods without secrets need no right to create secrets."""
    assert is_of_all == is_unprepared(given)

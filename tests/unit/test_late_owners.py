"""Owners that run unheld: the new ones are held, and others are left to run with a reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from services.hostmgr.kubernetes.suspend.held_owner import HeldOwner, Phase
from services.hostmgr.kubernetes.suspend.late_owners import LATE_S, LateOwner
from tests.unit.owner_examples import Json, example, kind_named

MADE = "2026-01-01T00:00:00Z"
MADE_S = datetime.fromisoformat(MADE).timestamp()
RAY_JOB = kind_named("RayJob", "v1")


def late(**spec: Any) -> LateOwner:
    body = example(RAY_JOB, **spec)
    body["metadata"] |= {"uid": "u", "creationTimestamp": MADE}
    return LateOwner(HeldOwner(RAY_JOB, body), "dev")


def test_only_a_new_owner_that_heeds_the_flag_is_held() -> None:
    """An older one would lose its work, and one that lacks a need of its kind would not be suspended."""
    assert late().why_left(MADE_S + LATE_S) == ""
    assert "was created 61 s ago" in late().why_left(MADE_S + LATE_S + 1)
    assert "spec.shutdownAfterJobFinishes is False" in late(shutdownAfterJobFinishes=False).why_left(MADE_S)


def test_a_late_hold_waits_for_the_end_of_the_pods() -> None:
    """The owner is then one whose admission ends, and it is paused if its user had suspended it."""
    for suspend, paused in ((False, "false"), (True, "true")):
        one = late(suspend=suspend)
        patch: Json = orjson.loads(one.request.body)
        assert (paused, "dev") == (
            patch["metadata"]["annotations"]["peloton.io/paused"],
            patch["metadata"]["labels"]["peloton.io/pool"],
        )
        held = {**one.owner.object, "metadata": one.owner.object["metadata"] | patch["metadata"]}
        held["spec"] = {**held["spec"], **patch["spec"]}
        assert HeldOwner(RAY_JOB, held).phase is Phase.STOPS

"""Owners that the policies have missed: they see the label of a namespace some moments late, and hold nothing that was
created before it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import orjson

from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, Request
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD
from services.hostmgr.kubernetes.suspend.held_owner import ADMITTED_AS, PAUSED, HeldOwner
from services.hostmgr.kubernetes.suspend.owner_kinds import is_ended, is_suspended, suspend_patch, unmet_need

LATE_S = 60.0
"""Age in seconds up to which an owner that runs unheld is suspended; an older one may lose work."""


class LateOwner(NamedTuple):
    owner: HeldOwner
    pool: str  # that the policies have given to its pod

    def why_left(self, now_s: float) -> str:
        """Return why it is left to run; empty if it is to be held."""
        if is_ended(self.owner.kind, self.owner.object):
            return "it has ended"
        if why := unmet_need(self.owner.kind, self.owner.object):
            return f"it runs outside pool {self.pool}: {why}"
        age_s = now_s - datetime.fromisoformat(self.owner.object["metadata"]["creationTimestamp"]).timestamp()
        if age_s > LATE_S:
            return (
                f"it runs outside pool {self.pool}: it was created {age_s:.0f} s ago without being held, and after "
                f"{LATE_S:g} s it is not suspended, as it would lose work; create it again to have it queued"
            )
        return ""

    @property
    def request(self) -> Request:
        """Return the patch that holds it. An admission without pods is noted, so that it is queued when its pods are
        gone."""
        kind, object = self.owner.kind, self.owner.object
        marks = {HELD: BY_SUSPEND, PAUSED: "true" if is_suspended(kind, object) else "false", ADMITTED_AS: ""}
        body = suspend_patch(kind, is_suspended=True)
        body["metadata"] = {"uid": self.owner.uid, "labels": {POOL: self.pool}, "annotations": marks}
        return Request("PATCH", self.owner.path, orjson.dumps(body), MERGE_PATCH)

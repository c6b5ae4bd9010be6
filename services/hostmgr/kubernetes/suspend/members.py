"""Pods of held owners, by the owners at the top of their controllers."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard
from urllib.parse import quote

from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json, Request
from services.hostmgr.kubernetes.external.external_specs import POOL, Owner, controller_of
from services.hostmgr.kubernetes.suspend.held_owner import HeldOwner, collection_of
from services.hostmgr.kubernetes.suspend.late_owners import LateOwner
from services.hostmgr.kubernetes.suspend.owner_kinds import OwnerKind

ROOTS_MAX = 10_000
"""Limit of objects whose controllers are cached."""
DEPTH_MAX = 4
"""Limit of controllers above a pod."""
UNREAD_S = 30.0
"""Seconds until a controller is asked for again that could not be read: its kind or the right may come later."""
UNREAD_MAX = 100
"""Limit of controllers that are asked for again in one call."""
NO_PODS: Mapping[str, Json] = MappingProxyType({})


class Members:
    """The caller has a lock, except for ``find_root``."""

    def __init__(self, api: ApiServer, kinds: Sequence[OwnerKind]) -> None:
        self._api, self._kinds = api, kinds
        self._pods: dict[str, dict[str, Json]] = {}  # uid of the owner -> its pods by uid
        self._owner_of: dict[str, str] = {}  # uid of a pod -> uid of its owner
        self._roots: dict[str, str] = {}  # uid of a controller -> uid of the owner at the top
        self._unread: dict[str, float] = {}  # uid of a controller that could not be read -> when it is asked for again
        self.late: dict[str, LateOwner] = {}
        """Owners that the policies have missed, as their pods have shown."""

    def of(self, owner: str) -> Mapping[str, Json]:
        """Return the pods of the owner by uid."""
        return self._pods.get(owner, NO_PODS)

    def get(self, uid: str) -> Json | None:
        """Return the pod with the uid."""
        return self.of(self._owner_of.get(uid, "")).get(uid)

    def put(self, pod: Json, owner: str) -> None:
        uid = pod["metadata"]["uid"]
        if self._owner_of.get(uid, owner) != owner:
            self.remove(uid)
        self._owner_of[uid] = owner
        self._pods.setdefault(owner, {})[uid] = pod

    def remove(self, uid: str) -> None:
        owner = self._owner_of.pop(uid, "")
        if (pods := self._pods.get(owner)) is not None:
            pods.pop(uid, None)
            if not pods:
                del self._pods[owner]

    def replace(self, pods: Sequence[tuple[Json, str]]) -> tuple[list[Json], set[str]]:
        """Replace all pods by these ``(pod, owner)``; return the earlier ones, and the owners of both. Drivers may
        follow their pods."""
        before, owners = [pod for some in self._pods.values() for pod in some.values()], {*self._pods}
        self._pods, self._owner_of = {}, {}
        for pod, owner in sorted(pods, key=lambda each: _is_of_driver(controller_of(each[0]))):
            controller = controller_of(pod)
            self.put(pod, self._find_driven(controller) if _is_of_driver(controller) else owner)
        return before, owners | self._pods.keys()

    # Controllers.

    def find_root(self, pod: Json, owners: Collection[str]) -> str:
        """Return the uid of the owner at the top of the pod's controllers, of which those in ``owners`` are the top.
        Raises OSError."""
        controller = controller_of(pod)
        if controller is None or controller.uid in owners:
            return controller.uid if controller is not None else ""
        if _is_of_driver(controller):
            return self._find_driven(controller)
        root = self._roots.get(controller.uid)
        if root is None or self._unread.get(controller.uid, math.inf) <= time.monotonic():
            if len(self._roots) >= ROOTS_MAX:
                self._roots.clear()
                self._unread.clear()
            root = self._roots[controller.uid] = self._read_root(controller, pod)
        return root

    def _read_root(self, controller: Owner, pod: Json) -> str:
        """Return the uid of the owner at the top, and note it if the policies have not held it."""
        owner, is_read = controller, True
        for _ in range(DEPTH_MAX):
            kind = next((each for each in self._kinds if _is_of(owner, each)), None)
            if kind is None:
                break
            path = f"{collection_of(kind, owner.namespace)}/{quote(owner.name, safe='')}"
            answer = self._api.ask(Request("GET", path))
            if answer.may_pass:
                raise OSError(f"{owner.title} cannot be read: {answer.message}")
            if not (is_read := answer.is_ok):
                break
            found = answer.json()
            if found["metadata"]["uid"] != owner.uid or HeldOwner(kind, found).is_held:
                break
            if (above := controller_of(found)) is None:
                if len(self.late) < ROOTS_MAX:
                    self.late[owner.uid] = LateOwner(HeldOwner(kind, found), pod["metadata"]["labels"][POOL])
                break
            owner = above
        if is_read:
            self._unread.pop(controller.uid, None)
        else:
            self._unread[controller.uid] = time.monotonic() + UNREAD_S
        return owner.uid

    def find_maker(self, pod: Json) -> str:
        """Return the uid of the owner whose driver has made the pod, or that of its controller."""
        controller = controller_of(pod)
        if _is_of_driver(controller):
            return self._find_driven(controller)
        return controller.uid if controller is not None else ""

    def _find_driven(self, driver: Owner) -> str:
        """Return the uid of the owner of this driver; empty if it has none."""
        pod = self.get(driver.uid)
        is_known = pod is not None and pod["metadata"]["namespace"] == driver.namespace
        return self._owner_of.get(driver.uid, "") if is_known else ""

    def find_unread(self) -> list[Json]:
        """Return the pods of some controllers that are to be asked for again."""
        now_s, found = time.monotonic(), list[Json]()
        due = [uid for uid, again_s in [*self._unread.items()] if again_s <= now_s]
        for uid in due[:UNREAD_MAX]:
            pods = [pod for pod in self.of(self._roots.get(uid, "")).values() if _is_made_by(uid, pod)]
            if not pods:
                self._roots.pop(uid, None)
                self._unread.pop(uid, None)
            found += pods
        return found


def _is_of(owner: Owner, kind: OwnerKind) -> bool:
    return owner.kind == kind.kind and owner.api_version.partition("/")[0] == kind.group


def _is_of_driver(controller: Owner | None) -> TypeGuard[Owner]:
    return controller is not None and (controller.kind, controller.api_version) == ("Pod", "v1")


def _is_made_by(uid: str, pod: Json) -> bool:
    controller = controller_of(pod)
    return controller is not None and controller.uid == uid

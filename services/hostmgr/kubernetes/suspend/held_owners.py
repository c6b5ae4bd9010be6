"""Owners that are held suspended: watched, admitted whole, suspended again, and shown why they wait.

The stand-ins of an owner are external pods: they are queued, tested for fit, launched and ended as those are. Their
launch unsuspends the owner, and the eviction of one of them suspends it. The pods that exist then have the places of
the stand-ins, which report their nodes and their starts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from urllib.parse import quote

from peloton.model.ids import PodId
from services.hostmgr.external_port import PodCondition
from services.hostmgr.kubernetes.apiserver.watch import Reflector, Watched
from services.hostmgr.kubernetes.apiserver.wire import (
    GONE_OR_CHANGED,
    Answer,
    ApiServer,
    Json,
    Request,
    check_answers,
    fault_of,
)
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.external.gate import is_by_gate
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD
from services.hostmgr.kubernetes.pods.statuses import is_over, phase
from services.hostmgr.kubernetes.suspend.drivers import find_places, join_request, may_be_of_driver
from services.hostmgr.kubernetes.suspend.held_owner import (
    HeldOwner,
    Phase,
    admission_request,
    collection_of,
    owner_of_stand_in,
    return_request,
    stand_ins_of,
    suspension_request,
)
from services.hostmgr.kubernetes.suspend.members import Members
from services.hostmgr.kubernetes.suspend.notices import Notices, Said
from services.hostmgr.kubernetes.suspend.owner_kinds import OwnerKind, reference_path

log = logging.getLogger(__name__)

FIND_S = 30.0
"""Seconds between looks for kinds of owners that the cluster did not have."""
TAKEN_MAX = 500
"""Limit of pods of drivers whose gates are removed in one call; the others follow in the next calls."""
QUIET_S = 0.5
"""Seconds for which a suspended owner must have no pods, until it returns to the queue."""
ADMITTED, SUSPENDED, REFUSED = "PelotonAdmitted", "PelotonSuspended", "PelotonRefused"
NOT_HELD = "PelotonNotHeld"
"""Reasons of events and of the condition."""


@dataclass(slots=True)
class _Entry:
    owner: HeldOwner
    stand_ins: list[Json] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # uid of a pod -> the stand-in whose place it has
    quiet_since_s: float = 0.0
    said: Said = field(default_factory=Said)


class _OfKind:
    """Implements ``Watched`` for the owners of one kind."""

    def __init__(self, owners: HeldOwners, kind: OwnerKind) -> None:
        self._owners, self._kind = owners, kind

    def on_replace(self, objects: Sequence[Json]) -> None:
        self._owners.replace(self._kind, objects)

    def on_change(self, kind: str, object: Json) -> None:
        self._owners.change(self._kind, object, kind == "DELETED")

    def on_lost(self, why: str) -> None:
        self._owners.lose(_source_of(self._kind), why)


class PodsOfHeld:
    """Implements ``Watched``: takes the pods of held owners out of a watch, and passes the others on."""

    def __init__(self, owners: HeldOwners, others: Watched) -> None:
        self._owners, self._others = owners, others

    def on_replace(self, objects: Sequence[Json]) -> None:
        held = [pod for pod in objects if is_of_held(pod)]
        self._others.on_replace([pod for pod in objects if not is_of_held(pod)])
        self._owners.replace_pods(held)

    def on_change(self, kind: str, object: Json) -> None:
        if is_of_held(object):
            self._owners.change_pod(object, kind == "DELETED")
        else:
            self._others.on_change(kind, object)

    def on_lost(self, why: str) -> None:
        self._others.on_lost(why)
        self._owners.lose(PODS, why)


PODS = "pods"


def is_of_held(pod: Json) -> bool:
    """Return whether the pod is of an owner that is held in its place."""
    return (pod["metadata"].get("annotations") or {}).get(HELD) == BY_SUSPEND and not is_by_gate(pod)


class HeldOwners:
    """Any thread may call. Implements ``external_pods.Owners``."""

    def __init__(
        self,
        api: ApiServer,
        placed: Callable[[Json, Json], None],
        kinds: Sequence[OwnerKind],
        gone: Callable[[Json], None] = lambda pod: None,
    ) -> None:
        """``placed`` takes a stand-in, and the pod with a node that has its place; ``gone`` each pod of an owner that
        was deleted or has ended."""
        self._api, self._placed, self._gone = api, placed, gone
        self._kinds, self._missing = kinds, [*kinds]
        self._sink: Watched | None = None
        self._lock = threading.RLock()
        self._entries: dict[str, _Entry] = {}
        self._members = Members(api, kinds)
        self._watches: dict[OwnerKind, Reflector] = {}
        self._unlisted = {PODS}
        self._is_live = self._has_looked = False
        self._find_at_s = 0.0
        self._notices = Notices(api)

    def pass_to(self, sink: Watched) -> None:
        """Set the receiver of the stand-ins."""
        self._sink = sink

    def stop(self) -> None:
        for reflector in [*self._watches.values()]:
            reflector.stop()

    # Watches.

    def _find_kinds(self) -> None:
        """Watch the kinds that the cluster has by now, and that Peloton may list; one that it cannot serve is left for
        the next time. Raises OSError if the apiserver does not answer, or serves not even Jobs when a host manager
        begins: the pods of owners that run would count as lost."""
        asked = [Request("GET", f"{collection_of(kind)}?limit=1") for kind in self._missing]
        found = []
        for kind, answer in zip(self._missing, self._api.ask_all(asked), strict=True):
            if isinstance(answer, OSError):
                raise answer
            is_overloaded = answer.status == HTTPStatus.TOO_MANY_REQUESTS or (answer.may_pass and kind.is_job)
            if is_overloaded and not self._has_looked:
                raise OSError(f"owners of kind {kind.kind} cannot be listed: {answer.message}")
            if answer.is_ok:
                found.append(kind)
            elif answer.may_pass:
                log.warning("owners of kind %s are not held: %s", kind.kind, answer.message)
            elif answer.status == HTTPStatus.FORBIDDEN:
                log.debug("owners of kind %s are not held: %s", kind.kind, answer.message)
        self._missing = [kind for kind in self._missing if kind not in found]
        with self._lock:
            self._unlisted |= {_source_of(kind) for kind in found}
            self._has_looked = True
        for kind in found:
            path = f"{collection_of(kind)}?labelSelector={quote(POOL, safe='')}"
            reflector = Reflector(self._api, path, _OfKind(self, kind))
            self._watches[kind] = reflector
            reflector.start()
        self._go_live()

    def _drop_kinds(self) -> None:
        """End the watches of kinds that the cluster has no longer: they would never list again, and hold up all
        others."""
        with self._lock:
            lost = [kind for kind in self._watches if _source_of(kind) in self._unlisted]
        answers = self._api.ask_all([Request("GET", f"{collection_of(kind)}?limit=1") for kind in lost])
        for kind, answer in zip(lost, answers, strict=True):
            if isinstance(answer, Answer) and answer.status == HTTPStatus.NOT_FOUND:
                self._watches.pop(kind).stop()
                self._missing.append(kind)
                self.replace(kind, [])

    def lose(self, what: str, why: str) -> None:
        log.info("watch of held owners lost: %s", why)
        with self._lock:
            self._unlisted.add(what)
            self._is_live = False
        self._receiver.on_lost(why)

    @property
    def _receiver(self) -> Watched:
        assert self._sink is not None, "nothing receives the stand-ins"
        return self._sink

    def _go_live(self) -> None:
        """Show all stand-ins when everything is listed."""
        with self._lock:
            if self._is_live or self._unlisted or not self._has_looked:
                return
            self._is_live = True
            for entry in self._entries.values():
                if entry.stand_ins or entry.owner.phase is not Phase.ENDED:
                    self._renew(entry)
            self._receiver.on_replace([one for entry in self._entries.values() for one in entry.stand_ins])

    def replace(self, kind: OwnerKind, objects: Sequence[Json]) -> None:
        owners = [owner for each in objects if (owner := self._read(kind, each)).is_held]
        with self._lock:
            there = {owner.uid for owner in owners}
            gone = [uid for uid, one in self._entries.items() if one.owner.kind == kind and uid not in there]
            for uid in gone:
                self._remove(uid)
            for owner in owners:
                self._put(owner)
            self._unlisted.discard(_source_of(kind))
        self._go_live()

    def change(self, kind: OwnerKind, object: Json, is_deleted: bool) -> None:
        object["metadata"].pop("managedFields", None)
        owner = self._read(kind, object)
        with self._lock:
            if is_deleted or not owner.is_held:
                self._remove(owner.uid)
            else:
                self._put(owner)

    def _read(self, kind: OwnerKind, object: Json) -> HeldOwner:
        """Return the owner, with the object that describes its pods, which is read again while it waits. Raises
        OSError."""
        owner = HeldOwner(kind, object)
        path = reference_path(kind, object) if owner.is_held and owner.phase is not Phase.ENDED else ""
        if not path:
            return owner
        answer = self._api.ask(Request("GET", path))
        if answer.may_pass:
            raise OSError(f"{path} cannot be read: {answer.message}")
        return HeldOwner(kind, object, answer.json() if answer.is_ok else None)

    def replace_pods(self, pods: Sequence[Json]) -> None:
        found = [(pod, self._members.find_root(pod, self._entries)) for pod in pods]
        with self._lock:
            before, owners = self._members.replace(found)
            there = {pod["metadata"]["uid"] for pod in pods if not is_over(pod)}
            for pod in before:
                if pod["metadata"]["uid"] not in there:
                    self._gone(pod)  # first: a pod of the same name may be among the others
            self._unlisted.discard(PODS)
            if self._is_live:
                for uid in owners & self._entries.keys():
                    self._show(self._entries[uid])
        self._go_live()

    def change_pod(self, pod: Json, is_deleted: bool) -> None:
        pod["metadata"].pop("managedFields", None)
        owner, uid = self._members.find_root(pod, self._entries), pod["metadata"]["uid"]
        with self._lock:
            if is_deleted or is_over(pod):
                self._gone(pod)
            if not is_deleted:
                self._put_pod(pod, owner)
                return
            self._members.remove(uid)
            if (entry := self._entries.get(owner)) is not None:
                entry.places.pop(uid, None)

    def _put_pod(self, pod: Json, owner: str) -> None:
        """Record a pod of the owner, and what has become of it. The caller holds the lock."""
        self._members.put(pod, owner)
        entry = self._entries.get(owner)
        if entry is not None and self._is_live and (place := self._place(entry, pod)) is not None:
            self._receiver.on_change("MODIFIED", entry.stand_ins[place])

    def _ask_again(self) -> None:
        """Look again for the owners of pods whose controllers could not be read. Raises OSError."""
        with self._lock:
            pods = self._members.find_unread()
        for pod in pods:
            owner = self._members.find_root(pod, self._entries)
            with self._lock:
                if self._members.get(pod["metadata"]["uid"]) is pod:
                    self._put_pod(pod, owner)

    # Stand-ins. The caller holds the lock.

    def _put(self, owner: HeldOwner) -> None:
        entry = self._entries.get(owner.uid)
        before = entry.owner if entry is not None else None
        if entry is None:
            entry = self._entries[owner.uid] = _Entry(owner)
        entry.owner = owner
        if not self._is_live:
            return
        if before is None or _outline(before) != _outline(owner):
            self._show(entry)

    def _show(self, entry: _Entry) -> None:
        """Replace the stand-ins of an owner by those that it has now."""
        before = self._renew(entry)
        there = {one["metadata"]["uid"] for one in entry.stand_ins}
        for uid, one in before.items():
            if uid not in there:
                self._receiver.on_change("DELETED", one)
        for one in entry.stand_ins:
            self._receiver.on_change("MODIFIED", one)

    def _renew(self, entry: _Entry) -> dict[str, Json]:
        """Make the stand-ins that the owner has now, with what their pods have shown; return the earlier ones by
        uid."""
        before = {one["metadata"]["uid"]: one for one in entry.stand_ins}
        entry.stand_ins, entry.quiet_since_s = stand_ins_of(entry.owner), 0.0
        if not before.keys() & {one["metadata"]["uid"] for one in entry.stand_ins}:
            entry.places = {}
        self._keep_starts(entry, before)
        pods = self._members.of(entry.owner.uid)
        count = len(entry.stand_ins)
        entry.places = {uid: place for uid, place in entry.places.items() if uid in pods and place < count}
        for pod in sorted(pods.values(), key=is_over):
            self._place(entry, pod)
        return before

    @staticmethod
    def _keep_starts(entry: _Entry, before: dict[str, Json]) -> None:
        """Take over the nodes and starts that stand-ins have shown."""
        for number, one in enumerate(entry.stand_ins):
            old = before.get(one["metadata"]["uid"])
            if old is not None and old["spec"].get("nodeName"):
                one["spec"] = {**one["spec"], "nodeName": old["spec"]["nodeName"]}
            if old is not None and old["status"] == _RUNNING and one["status"] == _PENDING:
                entry.stand_ins[number] = {**one, "status": _RUNNING}

    def _place(self, entry: _Entry, pod: Json) -> int | None:
        """Give the pod a place, and let its stand-in show what has become of it. Return the place if that changes."""
        if entry.owner.phase not in (Phase.RUNS, Phase.STOPS):
            return None
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        place = entry.places.get(uid)
        if place is None:
            free = self._list_free(entry)
            wide = find_places(entry.owner, pod)
            place = next((number for number in free if number in wide), next(iter(free), None))
            if place is None:
                return None
            entry.places[uid] = place
        if not node:
            return None
        one = entry.stand_ins[place]
        has_run = phase(pod) != "Pending" or one["status"] != _PENDING
        if one["spec"].get("nodeName") == node and (one["status"] != _PENDING or not has_run):
            return None
        if one["spec"].get("nodeName") != node:
            one = {**one, "spec": {**one["spec"], "nodeName": node}}
            self._placed(one, pod)
        entry.stand_ins[place] = {**one, "status": _RUNNING if has_run else _PENDING}
        return place

    def _list_free(self, entry: _Entry) -> list[int]:
        """Return the numbers of the stand-ins whose places no live pod has."""
        pods = self._members.of(entry.owner.uid)
        taken = {number for uid, number in entry.places.items() if uid in pods and not is_over(pods[uid])}
        return [number for number in range(len(entry.stand_ins)) if number not in taken]

    def _remove(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None and self._is_live:
            for one in entry.stand_ins:
                self._receiver.on_change("DELETED", one)

    # Changes of owners.

    def admit(self, launches: Sequence[tuple[PodId, Json, str]]) -> dict[PodId, str]:
        """Unsuspend the owners of stand-ins ``(run, stand-in, node)``. Returns the runs of those that certainly were
        not, with the reason. Raises OSError when the result of some is unknown."""
        refused: dict[PodId, str] = {}
        sent: list[tuple[HeldOwner, list[PodId]]] = []
        requests: list[Request] = []
        chosen: dict[str, dict[str, tuple[PodId, str]]] = {}
        for run, one, node in launches:
            chosen.setdefault(owner_of_stand_in(one), {})[one["metadata"]["uid"]] = run, node
        for uid, by_stand_in in chosen.items():
            with self._lock:
                entry = self._entries.get(uid)
                owner = entry.owner if entry is not None else None
                order = [one["metadata"]["uid"] for one in entry.stand_ins] if entry is not None else []
            runs = [run for run, _ in by_stand_in.values()]
            if owner is None or owner.phase is not Phase.WAITS or {*order} != by_stand_in.keys():
                why = (
                    "it is gone, or has changed"
                    if owner is None or not by_stand_in.keys() <= {*order}
                    else (
                        f"{len(runs)} of its {len(order)} pods have room"
                        if owner.phase is Phase.WAITS
                        else "it waits no more"
                    )
                )
                refused |= dict.fromkeys(runs, f"it was not admitted: {why}")
                continue
            in_order = [by_stand_in[each] for each in order]
            requests.append(admission_request(owner, [run for run, _ in in_order], [node for _, node in in_order]))
            sent.append((owner, runs))
        unknown: OSError | None = None
        for (owner, runs), answer in zip(sent, self._api.ask_all(requests), strict=True):
            if isinstance(answer, OSError) or answer.may_pass:
                unknown = answer if isinstance(answer, OSError) else OSError(answer.message)
            elif not answer.is_ok:
                refused |= dict.fromkeys(runs, f"{owner.title} was not admitted: {answer.message}")
            else:
                text = f"its pool admits it, and its {len(runs)} pods have room"
                self._notices.write(owner, "Normal", ADMITTED, text)
        if unknown is not None:
            raise unknown
        return refused

    def may_take(self, pod: Json) -> bool:
        return may_be_of_driver(pod, self._kinds)

    def take(self, pods: Sequence[Json]) -> set[str]:
        """Give gated pods that drivers have made the places of stand-ins, and remove their gates; return the uids of
        those, and of pods that are gone."""
        with self._lock:
            known = {pod["metadata"]["uid"] for pod in pods if self._members.get(pod["metadata"]["uid"]) is not None}
            others = (pod for pod in pods if pod["metadata"]["uid"] not in known)
            chosen = [*islice((pod for pod in others if self._reserve(pod)), TAKEN_MAX)]
        for pod, answer in zip(chosen, self._api.ask_all([join_request(pod) for pod in chosen]), strict=True):
            uid = pod["metadata"]["uid"]
            if isinstance(answer, OSError) or not answer.is_ok:
                log.debug("pod %s keeps its gate for now: %s", pod["metadata"]["name"], fault_of(answer))
                with self._lock:
                    self._members.remove(uid)
            if not isinstance(answer, OSError) and (answer.is_ok or answer.status in GONE_OR_CHANGED):
                known.add(uid)
        return known

    def _reserve(self, pod: Json) -> bool:
        """Give the pod a place for which it is small enough, if its owner is admitted and has one."""
        owner = self._members.find_maker(pod)
        entry = self._entries.get(owner)
        if entry is None or not self._is_live or entry.owner.phase is not Phase.RUNS:
            return False
        places = find_places(entry.owner, pod)
        place = next((number for number in self._list_free(entry) if number in places), None)
        if place is None:
            return False
        entry.places[pod["metadata"]["uid"]] = place
        self._members.put(pod, owner)
        return True

    def read_now(self, stand_ins: Collection[Json]) -> dict[str, Json]:
        """Return by uid those stand-ins that the owners have as the apiserver knows them now. Raises OSError."""
        with self._lock:
            uids = {owner_of_stand_in(one) for one in stand_ins} & self._entries.keys()
            owners = [self._entries[uid].owner for uid in uids]
        found: dict[str, Json] = {}
        for owner, answer in zip(owners, self._api.ask_all([Request("GET", one.path) for one in owners]), strict=True):
            if isinstance(answer, OSError):
                raise answer
            if answer.status == HTTPStatus.NOT_FOUND:
                continue
            if not answer.is_ok:
                raise OSError(answer.message)
            now = stand_ins_of(HeldOwner(owner.kind, answer.json(), owner.referenced))
            found |= {one["metadata"]["uid"]: one for one in now}
        return found

    def suspend(self, stand_ins: Collection[Json], why: str) -> None:
        """Suspend the owners of these. Raises OSError."""
        ending = {one["metadata"]["uid"] for one in stand_ins}
        with self._lock:
            entries = [
                self._entries[uid] for uid in {owner_of_stand_in(one) for one in stand_ins} & self._entries.keys()
            ]
            owners = [one.owner for one in entries if any(each["metadata"]["uid"] in ending for each in one.stand_ins)]
        self._suspend([owner for owner in owners if owner.phase is Phase.RUNS], why)

    def _suspend(self, owners: Sequence[HeldOwner], why: str) -> None:
        answers = self._api.ask_all([suspension_request(owner) for owner in owners])
        for owner, answer in zip(owners, answers, strict=True):
            if not isinstance(answer, OSError) and answer.is_ok:
                log.info("%s is suspended: %s", owner.title, why)
                self._notices.write(owner, "Normal", SUSPENDED, why)
        check_answers(answers, *GONE_OR_CHANGED)

    def show(self, conditions: Iterable[tuple[Json, PodCondition]]) -> None:
        """Show at the owners of stand-ins why these wait; an event follows each new reason. Raises OSError."""
        told = {owner_of_stand_in(one): condition for one, condition in conditions}
        with self._lock:
            known = [(one, told[uid]) for uid, one in self._entries.items() if uid in told]
            shown = [(one.owner, one.said, condition) for one, condition in known]
        self._notices.show(shown)

    # Periodic tasks.

    def run_periodic(self) -> None:
        """Look for kinds, return suspended owners whose pods are gone to the queue, suspend those that were scaled, or
        paused while they were admitted, and write events. Raises OSError."""
        now_s = time.monotonic()
        if now_s >= self._find_at_s:
            self._find_kinds()
            self._drop_kinds()
            self._find_at_s = now_s + FIND_S
        with self._lock:
            if not self._is_live:
                return
            entries = [*self._entries.values()]
            returning = [entry.owner for entry in entries if self._is_rested(entry, now_s)]
            unfit = [(one.owner, one.said, why) for one in entries if (why := _why_unfit(one.owner)) is not None]
            running = [one.owner for one in entries if one.owner.phase is Phase.RUNS]
        with ExitStack() as stack:  # a step that is refused stops no other
            stack.callback(self._notices.write_events)
            stack.callback(self._notices.show, unfit)
            stack.callback(self._hold_late)
            stack.callback(self._ask_again)
            stack.callback(self._return, returning)
            stack.callback(self._suspend, [one for one in running if one.is_paused], "its user has paused it")
            outgrown = [one for one in running if one.has_outgrown and not one.is_paused]
            self._suspend(outgrown, "it has more pods than its pool has admitted, and is queued with them")

    def _return(self, owners: Sequence[HeldOwner]) -> None:
        check_answers(self._api.ask_all([return_request(owner) for owner in owners]), *GONE_OR_CHANGED)

    def _hold_late(self) -> None:
        """Hold the owners that the policies have missed, or say why they run. Raises OSError."""
        with self._lock:
            found, self._members.late = [*self._members.late.values()], {}
        left = [(one.owner, why) for one in found if (why := one.why_left(time.time()))]
        for owner, why in left:
            self._notices.write(owner, "Warning", NOT_HELD, why)
        kept = {owner.uid for owner, _ in left}
        holding = [one for one in found if one.owner.uid not in kept]
        answers = self._api.ask_all([one.request for one in holding])
        for one, answer in zip(holding, answers, strict=True):
            if isinstance(answer, OSError) or answer.may_pass or answer.status == HTTPStatus.CONFLICT:
                with self._lock:  # tried again until it is too old
                    self._members.late[one.owner.uid] = one
            elif answer.is_ok:
                self._notices.write(
                    one.owner, "Normal", SUSPENDED, f"it was created before pool {one.pool} held it: it is queued"
                )
        check_answers(answers, *GONE_OR_CHANGED)

    def _is_rested(self, entry: _Entry, now_s: float) -> bool:
        is_quiet = entry.owner.phase is Phase.STOPS and entry.owner.is_quiet and not self._pods_left(entry)
        if not is_quiet:
            entry.quiet_since_s = 0.0
            return False
        entry.quiet_since_s = entry.quiet_since_s or now_s
        return now_s - entry.quiet_since_s >= QUIET_S

    def _pods_left(self, entry: _Entry) -> bool:
        return any(not is_over(pod) for pod in self._members.of(entry.owner.uid).values())


_PENDING: Json = {"phase": "Pending"}
_RUNNING: Json = {"phase": "Running"}


def _source_of(kind: OwnerKind) -> str:
    return f"{kind.plural}.{kind.group}"


def _outline(owner: HeldOwner) -> tuple[object, ...]:
    """Return what decides about the stand-ins of an owner."""
    return owner.phase, owner.key if owner.phase is Phase.WAITS else owner.admission


def _why_unfit(owner: HeldOwner) -> PodCondition | None:
    """Return why an owner is not queued; None for one that is."""
    if owner.phase is not Phase.WAITS or not owner.problem:
        return None
    return PodCondition(owner.uid, REFUSED, owner.problem)

"""The end of admission by suspend: owners that wait are resumed."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import quote

from services.hostmgr.kubernetes.apiserver.lists import pages
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Refused, check_answers
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.suspend.held_owner import HeldOwner, Phase, collection_of, release_request
from services.hostmgr.kubernetes.suspend.owner_kinds import OwnerKind

OWNERS_PER_PAGE = 500


def resume_held(api: ApiServer, kinds: Iterable[OwnerKind]) -> int:
    """Resume all owners of these kinds that Peloton holds, without those that their users have suspended; return their
    number. Raises OSError; it may be repeated."""
    total = 0
    for kind in kinds:
        path = f"{collection_of(kind)}?labelSelector={quote(POOL, safe='')}"
        try:
            for _, objects in pages(api, path, OWNERS_PER_PAGE):
                owners = [owner for each in objects if (owner := HeldOwner(kind, each)).is_held]
                waiting = [owner for owner in owners if owner.phase in (Phase.WAITS, Phase.STOPS)]
                check_answers(api.ask_all([release_request(owner) for owner in waiting]), HTTPStatus.NOT_FOUND)
                total += len(waiting)
        except Refused as error:
            if error.answer.status != HTTPStatus.NOT_FOUND:  # the cluster has no such kind
                raise
    return total

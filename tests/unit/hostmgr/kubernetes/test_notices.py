"""Conditions of owners that are held suspended, on a scripted apiserver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import orjson
import pytest

from services.hostmgr.external_port import PodCondition
from services.hostmgr.kubernetes.suspend import notices
from services.hostmgr.kubernetes.suspend.held_owner import HeldOwner
from services.hostmgr.kubernetes.suspend.notices import Notices, Said
from tests.unit.hostmgr.kubernetes.held_world import JOB, a_job
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted


def test_conditions_are_written_in_bounded_numbers_and_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that change with each call take no turn of the others; what is shown already is not repeated."""
    monkeypatch.setattr(notices, "CONDITIONS_MAX", 2)
    written: list[str] = []

    def serve(asked: Asked) -> Iterator[bytes]:
        conditions = orjson.loads(asked.body)["status"]["conditions"]
        written.append(f"{asked.path.split('/')[-2]} {conditions[0]['message']}")
        yield answer(200, {})

    owners = [HeldOwner(JOB, a_job(uid=str(UUID(int=number)), name=f"j{number}")) for number in range(5)]
    said = [Said() for _ in owners]
    with run_scripted(serve) as server, api_of(server) as api:
        shown = Notices(api)
        counts = []
        for call in range(6):
            text = f"{call} jobs are before it" if call < 5 else "4 jobs are before it"
            told = [PodCondition(one.uid, "PelotonQueued", text) for one in owners]
            shown.show(zip(owners, said, told, strict=True))
            counts.append(len(written))

    assert [2, 4, 6, 8, 10, 12] == counts
    assert {2, 3} == set(Counter(line.split()[0] for line in written).values())
    assert 4 == sum(line.endswith(" 4 jobs are before it") for line in written)

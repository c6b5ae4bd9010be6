"""Records that are made without their initializer are like all others."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from peloton.model.ids import JobId, PodId
from peloton.model.making import maker


@dataclass(frozen=True)
class Open:
    """A record without slots."""

    name: str
    count: int = 3


def test_a_made_record_equals_a_constructed_one() -> None:
    """Class, hash and text are equal, too, and a copy can be made."""
    pod_id, other = PodId(JobId("job"), 1, 2), Open("a", 4)
    made = maker(PodId)("job", 1, 2)

    assert (pod_id, hash(pod_id), str(pod_id), PodId) == (made, hash(made), str(made), type(made))
    assert other == maker(Open)("a", 4)
    assert replace(pod_id, run_id=3) == replace(made, run_id=3)


def test_a_made_record_is_frozen() -> None:
    """No field can be set afterwards."""
    with pytest.raises(FrozenInstanceError):
        maker(Open)("a", 4).count = 5  # type: ignore[misc]


def test_all_values_are_required() -> None:
    """Defaults are not filled in: rows have all columns."""
    with pytest.raises(TypeError, match="count"):
        maker(Open)("a")

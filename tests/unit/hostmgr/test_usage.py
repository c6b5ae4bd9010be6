"""Use of hosts, from the counters of their agents."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.errors import InvalidArgument
from peloton.model.ids import PodId
from peloton.scheduling.qos import QosPolicy, Use
from services.hostmgr.qos import QosSettings
from services.hostmgr.usage import HostUse, look

POD = "00000000-0000-4000-8000-000000000001-0-1"


def row(executor: str, cpu_s: float, at_s: float, memory_mib: int = 0, framework: str = "f") -> dict[str, Any]:
    numbers = {
        "cpus_user_time_secs": cpu_s / 2,
        "cpus_system_time_secs": cpu_s / 2,
        "mem_rss_bytes": memory_mib * 2**20,
        "timestamp": at_s,
    }
    return {"framework_id": framework, "executor_id": executor, "statistics": numbers}


def test_two_looks_make_a_rate() -> None:
    """Cpu is what the counter rose by in the time between; memory is as it is now."""
    first = look(HostUse(), [row(POD, 3, 100, 20), row("other", 1, 100, 5)])
    second = look(first, [row(POD, 4, 102, 30), row("other", 1.5, 102, 5)])

    assert (first.total(), first.is_news) == (Use(0, 25), False)
    assert (second.total(), second.is_news) == (Use(750, 35), True)
    assert second.pods("f") == {PodId.parse(POD): Use(500, 30)}
    assert second.pods("g") == {}


def test_the_same_numbers_again_are_no_news() -> None:
    """An agent that has not measured since says what it said; the rate stays as it was."""
    second = look(look(HostUse(), [row(POD, 3, 100)]), [row(POD, 4, 101)])
    third = look(second, [row(POD, 4, 101)])

    assert (third.total(), third.is_news) == (Use(1000, 0), False)


def test_what_cannot_be_measured_is_left_out() -> None:
    """An entry without numbers counts for nothing; a counter that starts anew makes no negative use."""
    first = look(HostUse(), [row(POD, 3, 100), {"framework_id": "f", "executor_id": "x"}])
    second = look(first, [row(POD, 1, 101)])

    assert second.total() == Use(0, 0)


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        (QosPolicy(hot_percent=80, target_percent=80), "want 0 < PELOTON_QOS_TARGET_PERCENT < PELOTON_QOS_HOT_PERCENT"),
        (QosPolicy(sample_count=0), "PELOTON_QOS_SAMPLES at least 1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(policy: QosPolicy, fault: str) -> None:
    """The error names the settings."""
    with pytest.raises(InvalidArgument, match=fault):
        QosSettings(policy=policy)

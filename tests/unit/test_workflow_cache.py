"""The number of workflows that a worker keeps in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.worker import cache

GIB = 1 << 30


@pytest.mark.parametrize(
    ("setting", "allowance_bytes", "expected"),
    [
        (0, 8 * GIB, 8 * GIB // 2 // 2 // cache.WORKFLOW_BYTES),
        (0, GIB // 2, cache.CACHED_MIN),
        (20_000, GIB, 20_000),
        (50, 8 * GIB, 50),
    ],
)
def test_half_of_the_memory_holds_the_workflows_of_both_queues(
    setting: int, allowance_bytes: int, expected: int
) -> None:
    """The setting decides where it is given; the default never goes below a thousand workflows."""
    assert expected == cache.compute_cached_max(setting, allowance_bytes)


@pytest.mark.parametrize(("text", "expected"), [(f"{GIB}\n", GIB), ("max\n", None), (None, None)])
def test_a_control_group_limits_the_allowance(
    text: str | None, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control group without a limit, or no control group, leaves the memory of the machine."""
    limit = tmp_path / "memory.max"
    if text is not None:
        limit.write_text(text)
    monkeypatch.setattr(cache, "LIMIT_FILES", ())
    machine = cache.memory_allowance_bytes()
    monkeypatch.setattr(cache, "LIMIT_FILES", (str(limit),))

    assert (expected or machine) == cache.memory_allowance_bytes()

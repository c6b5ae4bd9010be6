"""The policies of the installation, as the worker was started with them."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio import activity


class PolicyActivities:
    def __init__(self, policies: Mapping[str, float]) -> None:
        """By name; none: workflows keep theirs. See ``workflows.policies``, which no activity may import."""
        self._policies = policies

    @activity.defn(name="policies")
    def policies(self) -> dict[str, float]:
        return dict(self._policies)

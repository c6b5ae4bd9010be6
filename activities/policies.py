"""Policies of the installation, as the worker was started with them."""

from __future__ import annotations

from collections.abc import Mapping

from activities.definition import define_activity


class PolicyActivities:
    def __init__(self, policies: Mapping[str, float]) -> None:
        """Store the numbers by name; with none, workflows keep theirs. See ``workflows.policies``, which no activity
        may import.
        """
        self._policies = policies

    @define_activity("policies")
    def policies(self) -> dict[str, float]:
        return dict(self._policies)

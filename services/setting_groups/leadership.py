"""Settings of leader election."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import setting


@dataclass(frozen=True)
class LeadershipSettings:
    leader_ttl_s: float = setting(
        5.0, "resmgr hostmgr", "seconds after which a silent leader is replaced", low=0.5, high=3_600
    )

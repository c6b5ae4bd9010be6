"""Settings of host pools and of their mover."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import DAY_S, WEEK_S, setting


@dataclass(frozen=True)
class HostPoolsSettings:
    host_pools: bool = setting(
        False,
        "hostmgr",
        "whether hosts are partitioned into [host pools](host-pools.md); the same for all host managers",
    )
    mover_period_s: float = setting(
        10.0,
        "resmgr",
        "seconds between decisions of the [mover of host pools](host-pools.md#the-mover), while it is on",
        low=0.1,
        high=DAY_S,
    )
    mover_high_percent: int = setting(
        80, "resmgr", "percent of its hosts in use above which a host pool takes hosts", low=1, high=100
    )
    mover_target_percent: int = setting(
        65, "resmgr", "percent to which it takes hosts, and below which it gives them back", low=1, high=100
    )
    mover_marked_percent: int = setting(
        30,
        "resmgr",
        "percent of its hosts [marked](host-advisor.md) orange or red above which it takes hosts",
        low=0,
        high=100,
    )
    mover_take_after_s: float = setting(
        60.0, "resmgr", "seconds for which it must have lacked hosts", low=0, high=WEEK_S
    )
    mover_take_after_urgent_s: float = setting(
        15.0, "resmgr", "the same while pods wait for hosts, or a host or a service is marked red", low=0, high=WEEK_S
    )
    mover_return_after_s: float = setting(
        900.0,
        "resmgr",
        "seconds for which it must have had hosts to spare, at first; twice as long each time that it turns out to "
        "have been too short",
        low=0.1,
        high=WEEK_S,
    )
    mover_return_after_max_s: float = setting(
        14_400.0, "resmgr", "seconds beyond which that time is not doubled", low=0.1, high=WEEK_S
    )
    mover_settle_s: float = setting(
        120.0, "resmgr", "seconds after one decision for a host pool before the next one", low=0, high=WEEK_S
    )
    mover_hosts_at_a_time: int = setting(5, "resmgr", "hosts that one decision moves at most", low=1, high=1_000)
    mover_hosts_per_hour: int = setting(
        30, "resmgr", "hosts that a host pool takes and returns in an hour at most; up to 1,000", low=1, high=1_000
    )
    mover_give_up_s: float = setting(
        3600.0,
        "resmgr",
        "seconds after which a host that the mover moves, and that is not empty yet, stays where it is",
        low=0.1,
        high=WEEK_S,
    )

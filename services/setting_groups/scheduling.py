"""Settings of entitlement, admission, preemption and placement."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import DAY_S, SERVERS, WEEK_S, setting


@dataclass(frozen=True)
class SchedulingSettings:
    entitlement_period_s: float = setting(
        5.0, "resmgr", "seconds between entitlement cycles when nothing changes", low=0.1, high=3_600
    )
    preemption: bool = setting(
        True,
        "resmgr",
        "whether pools reclaim resources that they lent, and gangs of higher priority those of lower priority. "
        "Without it non-preemptible pods may use more than their pool's reservation",
    )
    preemption_period_s: float = setting(60.0, "resmgr", "seconds between rounds of preemption", low=0.1, high=DAY_S)
    preemption_rounds: int = setting(
        5, "resmgr", "rounds in a row above its entitlement after which pods of a pool are evicted", low=1, high=1_000
    )
    backfill_s: int = setting(
        300,
        "resmgr",
        "seconds for which a gang that waits may be passed by gangs behind it in its queue that fit, in all queues "
        "but the ordinary one ([ADR 68](adr/0068-a-waiting-gang-is-passed-for-a-bounded-time.md)); a new leader of "
        "the resource manager counts them again. 0: never",
        low=0,
        high=WEEK_S,
    )
    check_invariants: bool = setting(
        False,
        "resmgr",
        "whether the resource manager checks its accounts after each cycle; a fault is an error in its log and "
        "counts in a metric, nothing stops. Costs some milliseconds per 100,000 pods and cycle",
    )
    pod_placement_timeout_s: float = setting(
        600.0,
        SERVERS,
        "seconds in which a host is found for an admitted pod that is not in a gang, or it releases its allocation "
        "and is requeued; half as long after each such try, at least 10",
        low=1,
        high=WEEK_S,
    )
    gang_placement_timeout_s: float = setting(
        600.0,
        SERVERS,
        "seconds in which hosts for all of an admitted gang are found, or it releases its allocation and is "
        "requeued; half as long after each failed launch, at least 10",
        low=1,
        high=WEEK_S,
    )
    gang_launch_timeout_s: float = setting(
        300.0,
        SERVERS,
        "seconds in which all of a launched gang runs, or all of it ends and is queued again. Both hold for jobs "
        "that are started from then on",
        low=1,
        high=WEEK_S,
    )
    retry_wait_s: int = setting(
        10,
        SERVERS,
        "seconds that a failed batch pod waits at first, from the start of its run, if no other host could take it, "
        "or at its third failure within 10 s of a start; 0: it never waits",
        low=0,
        high=WEEK_S,
    )
    retry_wait_max_s: int = setting(
        600, SERVERS, "seconds beyond which that time is not doubled with each further failure", low=0, high=WEEK_S
    )
    host_lease_s: float = setting(30.0, "hostmgr", "seconds for which a placement may hold hosts", low=1, high=3_600)
    host_reservation_after_s: float = setting(
        120.0,
        "hostmgr",
        "seconds after which a [host is reserved](placement.md#reserved-hosts) for an admitted pod that is not in a "
        "gang and fits on none now",
        low=0,
        high=WEEK_S,
    )
    host_reservation_s: float = setting(
        1800.0,
        "hostmgr",
        "seconds after which such a host is released at the latest; 0: none is reserved",
        low=0,
        high=WEEK_S,
    )
    pods_api: str = setting("", "hostmgr", "the API for pods of [gangs](frameworks/discovery.md); empty: none")

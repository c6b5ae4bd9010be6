"""Decisions of the checks of a control plane: each is a function from what was found to a result with advice."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from peloton.model.diagnosis import Check, CheckResult, ProcessRecord
from peloton.model.problem import Problem, Severity

OK, WARN, FAIL = CheckResult
SLOW_S = 0.25
"""Duration of a short read of the database above which leases are in danger."""
SKEW_WARN_S, SKEW_FAIL_S = 1.0, 10.0
"""Differences of clocks: leases last seconds."""
LEASE_MAX_S = 120.0
"""Longest lease that the settings allow twice over: one that lasts longer was written by a clock that is ahead."""
EXPIRY_WARN_S = 14 * 86_400.0
BACKLOG_WARN_SHARE = 0.5
DISK_WARN_SHARE, DISK_FAIL_BYTES = 0.1, 256 << 20
DAY_S, GIB = 86_400.0, 1 << 30
NAMED_MAX = 5
"""Maximum number of different values that a text names."""


def check_latency(duration_s: float) -> Check:
    text = f"answers within {duration_s * 1_000:.0f} ms"
    if duration_s <= SLOW_S:
        return Check("database", OK, text)
    return Check(
        "database", WARN, text, "look for load, locks and a slow disk: leases are renewed late when it is slower"
    )


def check_clock(name: str, ahead_s: float) -> Check:
    """``ahead_s``: the time by which the other clock is ahead of this one."""
    direction = "ahead" if ahead_s >= 0 else "behind"
    text = f"{abs(ahead_s):.1f} s {direction}"
    if abs(ahead_s) < SKEW_WARN_S:
        return Check(name, OK, text)
    result = WARN if abs(ahead_s) < SKEW_FAIL_S else FAIL
    return Check(
        name, result, text, "synchronize the clocks of both machines by NTP: leases and times of jobs depend on it"
    )


def check_schema(found: str, wanted: str, is_compatible: bool) -> Check:
    if found == wanted:
        return Check("schema", OK, f"at {found}, as this program creates it")
    if is_compatible:
        text = f"at {found}, newer than the {wanted} of this api"
        return Check("schema", WARN, text, "complete the upgrade: replace this api by one of the new release")
    text = f"at {found or 'nothing'}, needed is {wanted}"
    return Check("schema", FAIL, text, "run peloton admin upgrade-schema")


def check_lease(role: str, address: str, left_s: float) -> Check:
    """``left_s``: seconds until the lease ends; ``address``: of the leader, empty if there was none."""
    name = f"lease {role}"
    if left_s <= 0:
        since = f", the last lease ended {-left_s:.0f} s ago" if address else ""
        return Check(
            name, FAIL, f"no process leads{since}", f"start a process of the role: {_serve(role)}; read its log"
        )
    text = f"led at {address or 'no address yet'}, for {left_s:.1f} s more"
    if left_s > LEASE_MAX_S:
        return Check(name, FAIL, text, "the clock of its leader is far ahead: synchronize it by NTP")
    return Check(name, OK, text)


def check_answer(role: str, duration_s: float | None) -> Check:
    """``duration_s``: of its answer; None if there was none in time."""
    if duration_s is not None:
        return Check(role, OK, f"answers within {duration_s * 1_000:.0f} ms")
    return Check(role, FAIL, "does not answer the api", f"look for its process and its log: {_serve(role)}")


def check_versions(processes: Sequence[ProcessRecord]) -> Check:
    """Return the check of the releases of all processes, of which two neighbouring ones may run together."""
    name = "versions of the processes"
    if not processes:
        return Check(name, WARN, "no process has reported its version", "look for errors of the database in their logs")
    groups: defaultdict[str, list[ProcessRecord]] = defaultdict(list)
    for one in processes:
        groups[one.version].append(one)
    text = _name_groups(groups)
    if len(groups) == 1:
        return Check(name, OK, text)
    if _are_neighbours(list(groups)):
        return Check(name, WARN, text, "complete the upgrade, or roll it back: replace the processes of one release")
    return Check(
        name, FAIL, text, "replace all processes but those of two neighbouring releases: no others work together"
    )


def _are_neighbours(versions: Sequence[str]) -> bool:
    """Return whether these are versions of at most two releases, which follow each other. Patches are no releases."""
    found = [re.match(r"(\d+)\.(\d+)(?!\d)", version) for version in versions]
    releases = sorted({(int(one[1]), int(one[2])) for one in found if one})
    if not all(found) or len(releases) > 2:
        return False
    (old_major, old_minor), newest = releases[0], releases[-1]
    return newest in ((old_major, old_minor), (old_major, old_minor + 1), (old_major + 1, 0))


def check_settings(processes: Sequence[ProcessRecord]) -> list[Check]:
    """Return a failure for each setting on which processes disagree. One that does not report a setting agrees."""
    values: defaultdict[str, defaultdict[str, list[ProcessRecord]]] = defaultdict(lambda: defaultdict(list))
    for one in processes:
        for setting, value in one.settings.items():
            values[setting][value or "(empty)"].append(one)
    advice = "give all processes the same value, and restart those that had another one"
    failed = [
        Check(f"setting {setting}", FAIL, _name_groups(groups), advice)
        for setting, groups in sorted(values.items())
        if len(groups) > 1
    ]
    return failed or [Check("settings of the processes", OK, f"{len(values)} settings, {len(processes)} processes")]


def _name_groups(groups: dict[str, list[ProcessRecord]]) -> str:
    """Name each value with the first process that has it, and count the others; the most frequent ones first."""
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    named = [
        f"{value} at {found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}"
        for value, found in ordered[:NAMED_MAX]
    ]
    more = len(ordered) - NAMED_MAX
    return "; ".join([*named, f"{more} more values"] if more > 0 else named)


def check_workflows(problems: Sequence[Problem]) -> list[Check]:
    """Return the check of Temporal, its workers and the workflows, by the problems that were found."""
    if not problems:
        return [Check("Temporal and workflows", OK, "Temporal answers, workers poll, no workflow is stuck")]
    return [
        Check(
            f"Temporal: {one.subject_kind.name.lower()} {one.subject_id}",
            FAIL if one.severity is Severity.CRITICAL else WARN,
            one.text,
            one.command and f"see {one.command}",
        )
        for one in problems
    ]


def check_backlog(counts: Sequence[tuple[str, int, int]]) -> Check:
    """``counts``: of each bound its name, the count, and the bound."""
    text = ", ".join(f"{count:,} of {most:,} {name.replace('_', ' ')}" for name, count, most in counts)
    share = max(count / most for _, count, most in counts)
    if share < BACKLOG_WARN_SHARE:
        return Check("backlog", OK, text)
    advice = "add workers, or end jobs: calls that add work are refused at the bound"
    return Check("backlog", WARN if share < 1 else FAIL, text, advice)


def check_certificate(left_s: float | None) -> Check:
    name = "certificate of the api"
    if left_s is None:
        return Check(name, OK, "no TLS")
    if left_s > EXPIRY_WARN_S:
        return Check(name, OK, f"expires in {left_s / DAY_S:.0f} days")
    text = f"expires in {left_s / DAY_S:.1f} days" if left_s > 0 else f"expired {-left_s / DAY_S:.1f} days ago"
    return Check(
        name, WARN if left_s > 0 else FAIL, text, "issue a new one into the same files: it is read without a restart"
    )


def check_disk(path: str, free_bytes: int, total_bytes: int) -> Check:
    text = f"{free_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB free for {path}"
    if free_bytes < DISK_FAIL_BYTES:
        return Check("disk", FAIL, text, "free space: writes fail when the disk is full")
    is_low = free_bytes < DISK_WARN_SHARE * total_bytes
    return Check("disk", WARN if is_low else OK, text, "free space, or move the database" if is_low else "")


def check_rules(broken: Sequence[tuple[str, int]], rule_count: int) -> Check:
    """``broken``: rules that rows break, each with the number of rows."""
    if not broken:
        return Check("rules between rows", OK, f"{rule_count} rules hold")
    text = "; ".join(f"{count} rows break: {rule}" for rule, count in broken)
    return Check("rules between rows", FAIL, text, "keep the output of peloton admin check, and report it")


def report_late(name: str, bound_s: float) -> Check:
    return Check(name, FAIL, f"no result within {bound_s:g} s", "see whether the database and the roles answer")


def report_error(name: str, error: str) -> Check:
    return Check(name, FAIL, error, "see whether the database and the roles answer")


def _serve(role: str) -> str:
    return f"peloton serve {role.partition('/')[0]}"

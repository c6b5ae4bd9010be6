"""``peloton admin audit``: the list, the lines of JSON, the check of the chain."""

from __future__ import annotations

import json
from dataclasses import asdict

from peloton.access.audit import Draft, Entry, Note, link
from peloton.api.v0.audit import audit_pb2 as pb
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

AT_NS = 1_795_000_000 * 10**9
DRAFTS = [
    Draft(AT_NS, "w1", 1, "peloton.api.job.JobManager/Create", "OK", caller="alice", via="web", object="pool /a"),
    Draft(AT_NS, "w1", 2, "peloton.api.job.JobManager/Stop", "PERMISSION_DENIED", caller="bob", reason="no\x1b[31m"),
    Draft(AT_NS, "w1", 3, Note.LOST, "7", caller="peloton"),
]
ENTRIES = link("", 1, DRAFTS)


def answer_of(entries: list[Entry], head: int = 3) -> pb.AuditQueryResponse:
    shown = [pb.AuditEntry(seq=each.seq, hash=each.hash, **asdict(each.draft)) for each in entries]
    return pb.AuditQueryResponse(entries=shown, head_seq=head)


def test_entries_are_listed_with_caller_method_and_result(run: Run, api: FakeApi) -> None:
    """The list has who did what; filters reach the API, and control characters do not reach the terminal."""
    api.answers["audit.Query"] = [answer_of(ENTRIES[::-1])]

    done = run("-o wide admin audit --user alice --method Create --result OK --since 2026-11-01T00:00:00Z -n 7")

    lines = done.stdout.splitlines()
    assert ["Entry", "Time", "Who", "Method", "Object", "Result", "From", "Reason"] == lines[0].split()
    assert ["1", "2026-11-18T11:06:40Z", "alice", "(by", "web)", "JobManager/Create"] == lines[3].split()[:6]
    assert "\x1b" not in done.stdout
    request = api.requests("audit.Query")[0]
    assert ("alice", "Create", "OK", 7, True) == (
        request.user, request.method, request.result, request.limit, request.is_newest_first,
    )  # fmt: skip


def test_all_entries_are_exported(run: Run, api: FakeApi) -> None:
    """The export has a line of JSON for each entry, the oldest first."""
    api.answers["audit.Query"] = [answer_of(ENTRIES)]

    lines = run("admin audit --export").stdout.splitlines()
    assert ["1", "2", "3"] == [json.loads(line)["seq"] for line in lines]


def test_a_whole_chain_is_verified(run: Run, api: FakeApi) -> None:
    """The output has the last hash, lost entries, and processes that did not stop."""
    api.answers["audit.Query"] = [answer_of(ENTRIES)]

    lines = run("admin audit --verify").stdout.splitlines()
    assert f"The audit log is whole: entries up to 3, whose hash is {ENTRIES[2].hash}" == lines[0]
    assert lines[1].startswith("7 calls are not in it")
    assert lines[2].startswith("Process w1 runs, or was killed: its last entry is number 3")


def test_the_first_broken_entry_is_named(run: Run, api: FakeApi) -> None:
    """A missing entry is an error."""
    api.answers["audit.Query"] = [answer_of([ENTRIES[0], ENTRIES[2]])]

    done = run("admin audit --verify")
    assert 1 == done.exit_code
    assert "The audit log is broken: entry 2 is missing: the next one is 3" in done.stderr

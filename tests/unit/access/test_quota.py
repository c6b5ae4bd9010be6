"""Decisions about quotas of active pods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peloton.access.caller import Caller, CallerKind
from peloton.access.quota import ACTIVE_PODS, Limit, Rules, find_limit, pods_refusal
from peloton.errors import InvalidSettings
from services.access.caller import CERTIFICATE
from services.access.quotas import list_subjects, parse_quotas, read_quotas_file


@pytest.mark.parametrize(
    ("active", "added", "most"),
    [(0, 100, 100), (90, 10, 100), (100, 0, 100), (500, -1, 100), (10**9, 10**6, 0)],
    ids=["all at once", "up to the bound", "none more", "fewer, above the bound", "no bound"],
)
def test_pods_within_the_quota(active: int, added: int, most: int) -> None:
    """The last pod of the quota is allowed, and so is what adds none."""
    assert "" == pods_refusal("ann", active, added, Limit(most, "*"))


def test_pods_beyond_the_quota_are_refused_with_the_numbers() -> None:
    """The refusal names the user, the active pods, the added ones, the quota and its rule."""
    refusal = pods_refusal("ann", 1_990, 11, Limit(2_000, "group:maps"))

    assert (
        "user ann has 1,990 active pods, and 11 more would exceed the quota of 2,000; the rule is group:maps" == refusal
    )


def test_a_job_above_the_whole_quota_is_refused_for_its_size() -> None:
    """Waiting for the end of other jobs would not help it."""
    refusal = pods_refusal("ann", 7, 2_001, Limit(2_000, "*"))

    assert "2,001 pods at once exceed the quota of user ann, 2,000 active pods; the rule is *" == refusal


RULES: Rules = {
    "user:ann": {"active_pods": 7},
    "user:free": {"active_pods": 0},
    "user:bob": {"submissions_per_minute": 9},
    "group:maps": {"active_pods": 100},
    "group:ml": {"active_pods": 500},
    "group:any": {"active_pods": 0},
    "spiffe://example.org/build/*": {"active_pods": 60},
    "role:operator": {"active_pods": 50},
    "*": {"active_pods": 20},
}


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        (["user:ann", "group:ml", "*"], Limit(7, "user:ann")),
        (["user:free", "group:ml", "*"], Limit(0, "user:free")),
        (["user:bob", "group:maps", "group:ml", "role:operator", "*"], Limit(500, "group:ml")),
        (["user:eve", "group:ml", "group:any"], Limit(0, "group:any")),
        (
            ["spiffe://example.org/build/a", "spiffe://example.org/build/*", "*"],
            Limit(60, "spiffe://example.org/build/*"),
        ),
        (["user:eve", "role:reader", "role:operator", "*"], Limit(50, "role:operator")),
        (["user:eve", "group:none", "*"], Limit(20, "*")),
        ([], Limit(3, "PELOTON_QUOTA_ACTIVE_PODS")),
    ],
)
def test_the_nearest_rule_counts(subjects: list[str], expected: Limit) -> None:
    """A user's own rule precedes the greatest of its groups, that the greatest of its roles, that the rule of all."""
    assert expected == find_limit(RULES, ACTIVE_PODS, subjects, Limit(3, "PELOTON_QUOTA_ACTIVE_PODS"))


def test_certificates_have_quotas_by_their_names() -> None:
    """The SPIFFE id counts or, without one, the common name, which is no user of that name."""
    rules = parse_quotas(
        '[[quota]]\nsubjects = ["cn:build"]\nactive_pods = 5\n'
        '[[quota]]\nsubjects = ["user:build", "spiffe://d/build"]\nactive_pods = 9'
    )

    def find(name: str, issuer: str = CERTIFICATE) -> Limit:
        subjects = list_subjects(Caller(name, CallerKind.SERVICE, issuer=issuer))
        return find_limit(rules, ACTIVE_PODS, subjects, Limit(1, "default"))

    assert [Limit(5, "cn:build"), Limit(9, "spiffe://d/build"), Limit(1, "default")] == [
        find(name) for name in ("build", "spiffe://d/build", "user:build")
    ]
    assert Limit(9, "user:build") == find("build", "tokens file")


def test_a_file_of_quotas_is_read() -> None:
    """Tables may name the same subject for different quotas."""
    text = """
    [[quota]]
    subjects = ["user:ann", "role:operator"]
    active_pods = 7

    [[quota]]
    subjects = ["user:ann", "*"]
    submissions_per_minute = 0
    """

    assert {
        "user:ann": {"active_pods": 7, "submissions_per_minute": 0},
        "role:operator": {"active_pods": 7},
        "*": {"submissions_per_minute": 0},
    } == parse_quotas(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x", "the file is not TOML"),
        ("[[quotas]]", "the file: unknown key 'quotas'; known keys: quota"),
        ("quota = 3", "quota is no list of tables: begin each with [[quota]]"),
        ("[[quota]]\n" * 10_001, "the file has 10,001 tables [[quota]], at most 10,000 are read"),
        (
            '[[quota]]\nsubjects = ["user:ann"]',
            "[[quota]] 1 has no limit: want submissions_per_minute or active_pods, or both",
        ),
        ("[[quota]]\nactive_pods = 1", "[[quota]] 1 has no subjects: want at least one, such as user:NAME, group:NAME"),
        ('[[quota]]\nsubjects = ["ann"]\nactive_pods = 1', "[[quota]] 1: subject 'ann': want user:NAME, group:NAME"),
        ('[[quota]]\nsubjects = ["ann"]\nactive_pods = 1', ", role:NAME, or * for every caller with credentials"),
        (
            '[[quota]]\nsubjects = ["role:boss"]\nactive_pods = 1',
            "[[quota]] 1: subject 'role:boss' names no role: want role: and one of reader, submitter, operator, admin",
        ),
        (
            '[[quota]]\nsubjects = ["*"]\nactive_pods = -1',
            "[[quota]] 1: active_pods is '-1': want a number from 1 to 100,000,000, or 0 for no limit",
        ),
        ('[[quota]]\nsubjects = ["*"]\nactive_pods = true', "active_pods is 'True': want a number"),
        (
            '[[quota]]\nsubjects = ["*"]\nactive_pods = 1\n[[quota]]\nsubjects = ["*"]\nactive_pods = 2',
            "[[quota]] 2: subject '*' has active_pods = 1 in [[quota]] 1 and 2 here: want it once",
        ),
    ],
)
def test_faults_of_a_file_of_quotas_are_named(text: str, fault: str) -> None:
    """A bad file is refused as a whole, by table, rule and numbers."""
    with pytest.raises(ValueError, match=re.escape(fault)):
        parse_quotas(text)


def test_a_bad_file_of_quotas_is_named(tmp_path: Path) -> None:
    """The start of a role ends with the path, the table and the rule."""
    path = tmp_path / "quotas.toml"
    path.write_text('[[quota]]\nsubjects = ["*"]\nactive_pods = 1.5')

    with pytest.raises(InvalidSettings) as caught:
        read_quotas_file(str(path))

    fault = "[[quota]] 1: active_pods is '1.5': want a number from 1 to 100,000,000, or 0 for no limit"
    assert f"file of quotas {path}: {fault}" == str(caught.value)

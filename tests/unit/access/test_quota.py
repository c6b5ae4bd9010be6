"""Decisions about quotas of active pods."""

from __future__ import annotations

import re

import pytest

from peloton.access.caller import Caller, CallerKind
from peloton.access.quota import ACTIVE_PODS, Limit, Rules, find_limit, pods_refusal
from services.access.caller import CERTIFICATE
from services.access.quotas import list_subjects, parse_quotas


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
        ("[[quotas]]", "unknown key"),
        ('[[quota]]\nsubjects = ["user:ann"]', "at least one of submissions_per_minute, active_pods"),
        ("[[quota]]\nactive_pods = 1", "want subjects"),
        ('[[quota]]\nsubjects = ["ann"]\nactive_pods = 1', "want user:NAME, group:NAME"),
        ('[[quota]]\nsubjects = ["role:boss"]\nactive_pods = 1', "want role: and one of reader"),
        ('[[quota]]\nsubjects = ["*"]\nactive_pods = -1', "want a whole number from 0, any, to 100,000,000"),
        ('[[quota]]\nsubjects = ["*"]\nactive_pods = true', "want a whole number"),
        ('[[quota]]\nsubjects = ["*", "*"]\nactive_pods = 1', "has active_pods in a table before"),
    ],
)
def test_faults_of_a_file_of_quotas_are_named(text: str, fault: str) -> None:
    """A bad file is refused as a whole."""
    with pytest.raises(ValueError, match=re.escape(fault)):
        parse_quotas(text)

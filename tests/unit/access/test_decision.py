"""Decisions: roles include each other, count in pools and below, and denials name user, method, pool and rule."""

from __future__ import annotations

from itertools import combinations

import pytest

from peloton.access.caller import ANONYMOUS, UNRESTRICTED, Caller, CallerKind, Grant, MethodList, Role, is_below
from peloton.access.decision import decide, is_enough_on_cluster
from peloton.access.rules import MethodRule, Needs
from peloton.access.table import RULES
from services.access.bindings import grant, parse_bindings
from services.access.caller import CERTIFICATE
from services.access.visible import readable_paths

STOP = RULES["peloton.api.job.JobManager/Stop"]
DRAIN = RULES["peloton.api.v0.maintenance.MaintenanceService/Start"]
LEASE = RULES["peloton.private.publisher.EventPublisher/Lease"]
HEALTH = RULES["grpc.health.v1.Health/Check"]
RANKED = (Role.READER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)


def user(*grants: Grant, methods: MethodList | None = None) -> Caller:
    return Caller("alice", CallerKind.USER, grants=grants, methods=methods)


def test_a_denial_names_user_method_pool_and_rule() -> None:
    """A denial names user method pool and rule."""
    decision = decide(user(Grant(Role.READER, "/eng")), STOP, ("/eng/maps",))
    assert (
        "user \"alice\" may not call peloton.api.job.JobManager/Stop: it needs role submitter on pool '/eng/maps', and "
        "the caller has reader on /eng"
    ) == decision.reason
    assert (False, "/eng/maps") == (decision.is_allowed, decision.pool)


@pytest.mark.parametrize(("lower", "higher"), list(combinations(RANKED, 2)))
def test_a_role_includes_the_roles_before_it(lower: Role, higher: Role) -> None:
    """A role includes the roles before it."""
    assert (True, False) == (higher.includes(lower), lower.includes(higher))


@pytest.mark.parametrize(
    ("pool", "above", "expected"),
    [
        ("/eng", "/eng", True),
        ("/eng/maps", "/eng", True),
        ("/engine", "/eng", False),
        ("/eng", "/eng/maps", False),
        ("/", "/eng", False),
        ("/eng", "/", True),
    ],
)
def test_a_role_counts_in_a_pool_and_below(pool: str, above: str, expected: bool) -> None:
    """A role counts in a pool and below."""
    assert expected is is_below(pool, above)


def test_a_call_about_several_pools_needs_the_role_on_each() -> None:
    """A call about several pools needs the role on each."""
    caller = user(Grant(Role.SUBMITTER, "/a"), Grant(Role.READER, "/b"))
    assert "/b" == decide(caller, STOP, ("/a", "/b")).pool
    assert decide(caller, STOP, ("/a",)).is_allowed


def test_an_object_that_does_not_exist_needs_the_role_anywhere() -> None:
    """The servicer then answers that there is no such object."""
    assert decide(user(Grant(Role.SUBMITTER, "/a")), STOP).is_allowed
    assert not decide(user(Grant(Role.READER, "/a")), STOP).is_allowed


def test_operators_of_all_pools_are_not_administrators() -> None:
    """Operators of all pools are not administrators."""
    assert not decide(user(Grant(Role.OPERATOR)), DRAIN, ("/",)).is_allowed
    assert decide(user(Grant(Role.ADMIN)), DRAIN, ("/",)).is_allowed


def test_private_calls_are_for_processes_of_peloton() -> None:
    """Private calls are for processes of peloton."""
    assert not decide(UNRESTRICTED, LEASE).is_allowed
    assert decide(Caller("web", CallerKind.ROLE), LEASE).is_allowed


def test_open_methods_are_open_to_all() -> None:
    """Open methods are open to all."""
    assert decide(ANONYMOUS, HEALTH).is_allowed
    assert not decide(ANONYMOUS, STOP).is_allowed


def test_a_proxy_does_nothing_by_itself() -> None:
    """A proxy does nothing by itself."""
    assert not decide(user(Grant(Role.PROXY)), RULES["peloton.api.respool.ResourceManager/Query"]).is_allowed
    assert not Role.ADMIN.includes(Role.PROXY)


def test_lists_of_methods_decide_in_all_pools() -> None:
    """Lists of methods decide in all pools."""
    some = MethodList("batch", ("peloton.api.job.JobManager/*",), ("peloton.api.job.JobManager/Del*",))
    caller = user(methods=some)
    assert decide(caller, STOP, ("/eng",)).is_allowed
    rejected = decide(caller, RULES["peloton.api.job.JobManager/Delete"], ("/eng",))
    assert not rejected.is_allowed
    assert "rejects peloton.api.job.JobManager/Del*" in rejected.reason
    assert not decide(caller, DRAIN, ("/",)).is_allowed
    assert not is_enough_on_cluster(caller, STOP)


def test_a_rejected_method_stays_rejected_with_a_role() -> None:
    """A rejected method stays rejected with a role."""
    caller = user(Grant(Role.ADMIN), methods=MethodList("r", (), ("*",)))
    assert not decide(caller, STOP, ("/",)).is_allowed


def test_the_highest_pools_of_a_caller_are_listed() -> None:
    """The highest pools of a caller are listed."""
    caller = user(Grant(Role.READER, "/a/b"), Grant(Role.OPERATOR, "/a"), Grant(Role.READER, "/c"))
    assert ("/a", "/c") == caller.pools_with(Role.READER)


def test_deciding_without_pools_agrees_with_deciding_with_them() -> None:
    """Deciding without pools agrees with deciding with them."""
    for rule in (*RULES.values(), MethodRule("x/Y", Role.READER, needs=Needs.PELOTON)):
        for grants in ((), *((Grant(role),) for role in Role)):
            caller = user(*grants)
            if is_enough_on_cluster(caller, rule):
                assert decide(caller, rule, ("/", "/eng")).is_allowed


def test_a_common_name_of_a_certificate_is_a_subject_of_its_own() -> None:
    """A common name may be any text, such as user:ann: it is a user, a group or an id of none."""
    subjects = '["user:ann", "group:g", "spiffe://d/a/*", "cn:build"]'
    text = f'[[binding]]\nrole = "reader"\nsubjects = {subjects}\npools = ["/"]\n'
    bindings = parse_bindings(text)

    def has_role(name: str) -> bool:
        return bool(grant(Caller(name, CallerKind.SERVICE, issuer=CERTIFICATE), bindings).grants)

    assert [False, False, False] == [has_role(name) for name in ("user:ann", "group:g", "ann")]
    assert [True, False] == [has_role(name) for name in ("spiffe://d/a/b", "spiffe://d/b")]
    assert [True, False] == [has_role(name) for name in ("build", "cn:build")]
    user_of_that_name = Caller("build", CallerKind.USER, issuer="tokens file")
    assert not grant(user_of_that_name, bindings).grants


def test_a_list_of_methods_shows_no_pools_that_roles_would_not() -> None:
    """A call that the list does not accept is allowed by a role, and shows its pools."""
    some, all_methods = MethodList("r", ("peloton.api.job.JobManager/Get",)), MethodList("r", ("*",))
    on_eng = Grant(Role.READER, "/eng")
    assert ("/eng",) == readable_paths(user(on_eng, methods=some))
    assert [None, None] == [readable_paths(user(methods=some)), readable_paths(user(on_eng, methods=all_methods))]


def test_a_caller_without_a_role_learns_of_no_pool() -> None:
    """An object that exists in a pool and one that does not exist are refused alike."""
    proxy = user(Grant(Role.PROXY))
    for caller in (user(), proxy):
        there, missing = decide(caller, STOP, ("/secret",)), decide(caller, STOP)
        assert (there.reason, there.pool) == (missing.reason, "")
    assert "/secret" in decide(user(Grant(Role.READER, "/eng")), STOP, ("/secret",)).reason

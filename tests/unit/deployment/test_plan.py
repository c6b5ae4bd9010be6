"""The parts of a deployment, and the plan that leads to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from peloton.deployment.description import parse
from peloton.deployment.parts import Part, parts_of
from peloton.deployment.plan import Action, Observed, Step, changes, plan, plan_deletion
from tests.unit.deployment.test_description import PROGRAM, REAL, TRIAL

NEW = "/opt/new/bin/peloton"


def real(program: str = PROGRAM) -> list[Part]:
    return parts_of(parse(REAL, program))


def trial(program: str = PROGRAM) -> list[Part]:
    return parts_of(parse(TRIAL, program))


def to_observed(parts: Iterable[Part], unsettled: str = "") -> dict[str, Observed]:
    return {part.name: Observed(part, part.name != unsettled) for part in parts}


def names(steps: Iterable[Step], action: Action) -> list[str]:
    return [step.name for step in steps if step.action is action]


def test_parts_are_in_the_order_of_an_upgrade() -> None:
    """The resource manager upgrades the schema and comes before workers; a trial has emulators before it."""
    assert ["resmgr", "hostmgr", "api", "worker"] == [part.name for part in real()]
    assert ["temporal", "mesos", "resmgr", "hostmgr", "api", "worker"] == [part.name for part in trial()]
    assert ["resmgr"] == [part.name for part in real() if "--upgrade-schema" in part.command]


def test_roles_have_the_settings_that_they_need() -> None:
    """Leaders find each other in the database, so their ports may be any that the cluster gives out."""
    resmgr, _, api, worker = real()

    assert REAL["database"] == worker.environment["PELOTON_DATABASE"]
    assert ("PELOTON_RESMGR_PORT", "PELOTON_PORT", "") == (
        resmgr.port_variable,
        api.port_variable,
        worker.port_variable,
    )
    assert "MESOS_CONTAINER_IP" in resmgr.command


def test_roles_of_a_trial_find_its_emulators() -> None:
    """All addresses are of one machine, with ports that stay."""
    temporal, mesos, *_, api, worker = trial()
    port = worker.environment["PELOTON_TEMPORAL"].rpartition(":")[2]

    assert f"127.0.0.1:{port} " in temporal.command
    assert "--simulate 1000" in mesos.command
    assert "" == api.port_variable
    assert "PELOTON_PORT" in api.environment
    assert "sqlite:////tmp/virtual/peloton.db" == worker.environment["PELOTON_DATABASE"]


def test_settings_of_the_file_take_precedence() -> None:
    """Settings reach every role, as text."""
    parts = parts_of(parse({**TRIAL, "settings": {"PELOTON_LEADER_TTL_S": 9}}, PROGRAM))

    assert ["9"] == [part.environment["PELOTON_LEADER_TTL_S"] for part in parts if part.name == "resmgr"]


def test_web_pages_need_the_address_of_the_api_alone() -> None:
    """Roles that are clients get neither the database nor Temporal."""
    *_, web = parts_of(parse({**REAL, "address": "lb:5397", "roles": {"web": {}}}, PROGRAM))

    assert ("web", {"PELOTON_API": "lb:5397"}) == (web.name, dict(web.environment))


def test_missing_parts_are_created() -> None:
    """All of them at first, and afterwards nothing."""
    assert [part.name for part in real()] == names(plan(real(), {}), Action.CREATE)
    assert [] == changes(plan(real(), to_observed(real())))


def test_a_new_program_updates_the_roles_in_order() -> None:
    """The emulators keep theirs: the emulated Mesos loses its pods when it restarts."""
    steps = changes(plan(trial(NEW), to_observed(trial())))

    assert ["resmgr", "hostmgr", "api", "worker"] == names(steps, Action.UPDATE)
    assert f"command: exec {PROGRAM} serve api -> exec {NEW} serve api" in steps[2].reasons


def test_a_return_to_an_older_release_goes_the_other_way_round() -> None:
    """The newest resource manager ends last."""
    assert ["worker", "api", "hostmgr", "resmgr"] == names(
        plan(real(NEW), to_observed(real()), backwards=True), Action.UPDATE
    )


def test_only_parts_that_differ_are_updated() -> None:
    """The reason names the field or variable, with both values."""
    resmgr, hostmgr, *others = real()
    old = [replace(resmgr, instances=1), replace(hostmgr, environment={**hostmgr.environment, "PELOTON_QOS": "false"})]
    steps = changes(plan(real(), to_observed([*old, *others])))

    assert [("resmgr", ("instances: 1 -> 2",)), ("hostmgr", ("PELOTON_QOS: false -> unset",))] == [
        (step.name, step.reasons) for step in steps
    ]


def test_passwords_of_databases_are_not_shown() -> None:
    """The reason says only that the URL differs."""
    old = [
        replace(part, environment={**part.environment, "PELOTON_DATABASE": "postgresql+psycopg://u:secret@db/x"})
        for part in real()
    ]

    assert "secret" not in str(plan(real(), to_observed(old)))


def test_a_deployment_that_was_broken_off_continues() -> None:
    """A part whose pods do not all serve yet is awaited before the next one begins."""
    steps = changes(plan(real(), to_observed(real()[:2], unsettled="hostmgr")))

    assert [("wait", "hostmgr"), ("create", "api"), ("create", "worker")] == [(s.action, s.name) for s in steps]


def test_parts_that_are_not_wanted_are_deleted() -> None:
    """Clients of others go first."""
    web = replace(real()[0], name="web")

    assert ["web"] == names(plan(real(), to_observed([*real(), web])), Action.DELETE)
    assert ["web", "worker", "api", "hostmgr", "resmgr"] == names(
        plan_deletion(to_observed([*real(), web])), Action.DELETE
    )

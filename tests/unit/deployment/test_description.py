"""A deployment's file: its defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.deployment.description import SIZES, TRIAL_SIZES, Deployment, Size, parse
from peloton.errors import InvalidArgument

PROGRAM = "/opt/peloton/bin/peloton"
REAL = {
    "name": "west",
    "pool": "/control",
    "database": "postgresql+psycopg://peloton@db/west",
    "temporal": "temporal:7233",
    "mesos": "zk://zookeeper:2181/mesos",
}
TRIAL = {"name": "virtual", "pool": "/virtual", "data": "/tmp/virtual", "simulate": 1000}


def deployment(**given: Any) -> Deployment:
    return parse(given, PROGRAM)


def test_a_file_has_defaults() -> None:
    """The program is that of the caller, and each role has the size of its kind of deployment."""
    real, trial = deployment(**REAL), deployment(**TRIAL)

    assert (PROGRAM, "default", SIZES) == (real.command, real.namespace, real.sizes)
    assert (TRIAL_SIZES, True, 1000) == (trial.sizes, trial.is_trial, trial.simulate)


def test_a_role_may_have_another_size() -> None:
    """A role that the file names has one pod at least; what it leaves out keeps its default."""
    sizes = deployment(**TRIAL, roles={"worker": {"instances": 3, "cpu": 1}, "web": {}}).sizes

    assert Size(3, 1.0, TRIAL_SIZES["worker"].memory_mib) == sizes["worker"]
    assert 1 == sizes["web"].instances


def test_ports_of_a_trial_follow_from_its_name() -> None:
    """Clients find the same trial at the same port."""
    one, again, other = deployment(**TRIAL), deployment(**TRIAL), deployment(**TRIAL | {"name": "other"})

    assert one.trial_port(3) == again.trial_port(3)
    assert one.trial_port(0) != other.trial_port(0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"colour": "red"}, "a deployment has no key 'colour'; known: name, pool,"),
        ({"name": "West"}, "`name` must be 1 to 40 small letters"),
        ({"pool": "control"}, "`pool` is 'control': want the path of a pool"),
        ({"temporal": ""}, "`temporal` is '': want text"),
        ({"mesos": "m:5050", "simulate": 5}, "`simulate` needs `data`"),
        ({"data": "/tmp/west"}, "`data` makes a trial"),
        ({"roles": {"cook": {}}}, "`roles` has no key 'cook'"),
        ({"roles": {"api": {"instances": 0}}}, "`api.instances` is 0: want a whole number from 1 to 16"),
        ({"roles": {"web": {}}}, "web need `address`"),
        ({"settings": ["x"]}, r"`settings` is \['x'\]: want keys and values"),
        ({"simulate": True}, "`simulate` is True: want a whole number from 0 to 100,000"),
    ],
)
def test_what_breaks_a_rule_is_refused(change: dict[str, Any], text: str) -> None:
    """The error names the key, its value and the rule."""
    with pytest.raises(InvalidArgument, match=text):
        deployment(**{**REAL, **change})


@pytest.mark.parametrize(
    ("missing", "text"),
    [("database", "needs `database` or `config`"), ("temporal", "needs `temporal`"), ("mesos", "needs hosts")],
)
def test_what_a_real_deployment_must_name(missing: str, text: str) -> None:
    """A database, Temporal and hosts are the operator's."""
    with pytest.raises(InvalidArgument, match=text):
        deployment(**{key: value for key, value in REAL.items() if key != missing})


def test_a_trial_has_one_api() -> None:
    """Two could not have its one port."""
    with pytest.raises(InvalidArgument, match="the api of a trial has one port"):
        deployment(**TRIAL, roles={"api": {"instances": 2}})

"""Settings come from the environment, once."""

from __future__ import annotations

import pytest

from peloton.errors import InvalidArgument
from services.lab.local.cluster import own_defaults
from services.settings import Settings, load


def test_the_environment_sets_fields_by_their_names() -> None:
    """PELOTON_ and the name in capitals; numbers become numbers, the rest keeps its default."""
    settings = load({"PELOTON_PORT": "6000", "PELOTON_LEADER_TTL_S": "2.5", "PELOTON_MESOS": "m:1", "OTHER": "x"})

    assert (6000, 2.5, "m:1") == (settings.port, settings.leader_ttl_s, settings.mesos)
    assert Settings().temporal == settings.temporal


def test_a_value_of_the_wrong_kind_names_the_variable() -> None:
    """The text has the variable, the value, and the expected type."""
    with pytest.raises(InvalidArgument, match=r"PELOTON_PORT='http': want a number"):
        load({"PELOTON_PORT": "http"})


def test_the_database_is_required() -> None:
    """A role without a database setting would work on a store that no other process reads."""
    assert "sqlite:///x" == load({"PELOTON_DATABASE": "sqlite:///x"}).require_database()
    with pytest.raises(InvalidArgument, match="PELOTON_DATABASE is not set: want sqlite:///FILE or postgresql"):
        load({}).require_database()


def test_a_switch_is_true_or_false() -> None:
    """Other words are refused."""
    assert [True, False] == [load({"PELOTON_PREEMPTION": text}).preemption for text in ("true", "false")]
    with pytest.raises(InvalidArgument, match=r"PELOTON_PREEMPTION='off': want true or false"):
        load({"PELOTON_PREEMPTION": "off"})


def test_the_advertised_host_is_the_one_listened_on_unless_set() -> None:
    """The advertised host is the setting, for containers, or else the host it listens on."""
    assert "127.0.0.1" == load({}).advertised
    assert "api-1" == load({"PELOTON_ADVERTISE": "api-1", "PELOTON_HOST": "0.0.0.0"}).advertised


def test_the_local_cluster_is_quicker_unless_the_user_says_otherwise() -> None:
    """The local cluster's own defaults are replaced by variables of the environment, one by one."""
    own = own_defaults({"PELOTON_PREEMPTION_PERIOD_S": "60"})

    assert "PELOTON_PREEMPTION_PERIOD_S" not in own
    assert load(own).preemption_rounds == 3


def test_agents_of_a_real_mesos_have_the_long_time_to_find_a_new_master() -> None:
    """Agents without ZooKeeper need 75 s, which no emulated agent does."""
    emulated, real = load(own_defaults({})), load(own_defaults({}, has_real_mesos=True))
    assert (20.0, 600.0) == (emulated.agent_reregister_timeout_s, real.agent_reregister_timeout_s)
    assert emulated.agents_period_s == real.agents_period_s

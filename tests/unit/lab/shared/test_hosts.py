"""The hosts file: accepted fields, and errors that name file, host, rule and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.lab.shared.hosts import (
    DEFAULT_PORTS,
    HostSpec,
    default_hosts,
    divide_ports,
    load_hosts,
    make_simulated_hosts,
)
from services.lab.shared.yaml_rows import FileFault


def test_default_hosts_are_the_three_of_the_original() -> None:
    """Three hosts of 4 cpus, 2048 MB and 20000 MB each, with as much revocable cpu as there is slack."""
    hosts = default_hosts()

    assert ["agent0", "agent1", "agent2"] == [host.name for host in hosts]
    assert {(4.0, 2048.0, 20000.0, None)} == {(host.cpus, host.mem, host.disk, host.revocable_cpus) for host in hosts}


def test_default_ports_are_distributed() -> None:
    """Pods of all hosts are processes of one machine: no port belongs to two hosts."""
    assert [host.ports for host in default_hosts()] == [((31000, 31332),), ((31333, 31665),), ((31666, 31998),)]


def test_ports_that_hosts_name_stay_theirs(tmp_path: Path) -> None:
    """Hosts without ports share the rest of 31000 to 32000."""
    path = tmp_path / "hosts.yaml"
    path.write_text("- {name: a}\n- {name: b, ports: [31100-31199, 40000]}\n- {name: c}\n- {name: d, ports: []}\n")

    ports = {host.name: host.ports for host in load_hosts(path)}

    assert ports == {
        "a": ((31000, 31099), (31200, 31549)),
        "b": ((31100, 31199), (40000, 40000)),
        "c": ((31550, 31999),),
        "d": (),
    }


@given(st.integers(1, 1_500), st.lists(st.integers(30_900, 32_100).map(lambda port: (port, port + 50)), max_size=9))
def test_distributed_ports_are_disjoint(count: int, taken: list[tuple[int, int]]) -> None:
    """No two hosts share a port, whatever ports are in use, and all have equally many while there are enough."""
    dealt = divide_ports(count, taken)

    shares = [{port for begin, end in ranges for port in range(begin, end + 1)} for ranges in dealt]
    named = {port for begin, end in taken for port in range(begin, end + 1)}
    free = set(DEFAULT_PORTS) - named
    assert sum(map(len, shares)) == len(set().union(*shares))
    assert set().union(*shares) <= free
    assert {len(share) for share in shares} == ({len(free) // count} if count <= len(free) else {0, 1} if free else {0})


def test_simulated_hosts_are_numbered() -> None:
    """The names begin with sim-00000."""
    assert ["sim-00000", "sim-00001"] == [host.name for host in make_simulated_hosts(2)]
    with pytest.raises(ValueError, match="between 1 and 200000, got 0"):
        make_simulated_hosts(0)


def test_a_file_gives_hosts(tmp_path: Path) -> None:
    """Every field of a host can be given; the rest keep their defaults."""
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "- {name: a, cpus: 8, mem: 100, gpus: 2, ports: [31000-31999, 5000], attributes: {rack: r1, n: 3}}\n"
    )

    (host,) = load_hosts(path)

    expected = HostSpec(
        "a", 8.0, 100.0, gpus=2, ports=((5000, 5000), (31000, 31999)), attributes={"rack": "r1", "n": 3.0}
    )
    assert expected == host


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a list of 1 to 200000 hosts, got None"),
        ("{a: [", "not valid YAML"),
        ("- 3", "entry 0: expected a mapping, got 3"),
        ("- {cpus: 1}", "entry 0: name must be a non-empty text without '/', got None"),
        ("- {name: a}\n- {name: a}", "host 'a': name is used by entries 0 and 1"),
        ("- {name: a, cpu: 1}", "host 'a': unknown field 'cpu'; the fields are name, cpus"),
        ("- {name: a, mem: -5}", r"host 'a': mem: must be a number from 0 to 1e\+12, got -5"),
        ("- {name: a, gpus: 1.5}", r"host 'a': gpus: must be a whole number from 0 to 1e\+12, got 1.5"),
        (
            "- {name: a, ports: [9-5]}",
            r"host 'a': ports: must be a list of ranges BEGIN-END that rise within 1-65535, got \['9-5'\]",
        ),
        ("- {name: a, ports: [1-70000]}", r"ranges BEGIN-END that rise within 1-65535, got \['1-70000'\]"),
        ("- {name: a, ports: [1-9, 5-6]}", "host 'a': ports: 1-9 and 5-6 overlap"),
        ("- {name: a, attributes: {x: [1]}}", r"host 'a': attributes.x: must be a text or a number, got \[1\]"),
    ],
)
def test_a_bad_file_names_its_fault(tmp_path: Path, text: str, message: str) -> None:
    """The text begins with the file and says host, rule and numbers."""
    path = tmp_path / "hosts.yaml"
    path.write_text(text)

    with pytest.raises(FileFault, match=f"^{path}: .*{message}"):
        load_hosts(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the file, without a traceback from open()."""
    with pytest.raises(FileFault, match=r"none\.yaml: cannot be read: .*No such file"):
        load_hosts(tmp_path / "none.yaml")


def test_clusters_on_one_machine_have_ports_and_names_of_their_own() -> None:
    """The range and the prefix of a cluster set the ports and names of its hosts."""
    (first, *_), (second, *_) = default_hosts(among=range(500, 800)), default_hosts("b-", range(800, 1100))

    assert [("agent0", ((500, 599),)), ("b-agent0", ((800, 899),))] == [
        (host.name, host.ports) for host in (first, second)
    ]
    assert ["b-sim-00000", "b-sim-00001"] == [host.name for host in make_simulated_hosts(2, "b-")]

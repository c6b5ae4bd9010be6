"""The objects of the gate's policies: the file for kubectl is theirs, and a trial has none of the real names."""

from __future__ import annotations

import pytest
import yaml

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.external.gate import GATE
from services.hostmgr.kubernetes.gates.building import IGNORE, Options
from services.hostmgr.kubernetes.gates.file import FILE, render
from services.hostmgr.kubernetes.gates.policies import GATE_POLICY, make_bindings, make_policies, path_of


def test_the_file_for_kubectl_is_generated() -> None:
    """`make docs` writes it."""
    text = FILE.read_text(encoding="utf-8")
    assert render() == text
    assert [*make_policies(Options()), *make_bindings(Options())] == list(yaml.safe_load_all(text))


def test_a_trial_touches_nothing_real() -> None:
    """A trial has a label, a gate and names of its own: the installed policies and it see no pods of each other."""
    options = Options(suffix="-trial-1")
    made = [*make_policies(options), *make_bindings(options)]
    assert all(one["metadata"]["name"].endswith("-trial-1") for one in made)
    text = yaml.safe_dump(made).replace(POOL + "-trial-1", "").replace(GATE + "-trial-1", "")
    assert POOL not in text
    assert GATE not in text


def test_the_failure_policy_is_that_of_all_policies() -> None:
    """A misspelt one is refused before anything is sent."""
    assert {IGNORE} == {made["spec"]["failurePolicy"] for made in make_policies(Options(IGNORE))}
    with pytest.raises(InvalidArgument, match="want Fail or Ignore"):
        Options("fail")


def test_labels_of_nodes_are_added_to_pods_alone() -> None:
    """Owners have their pods' nodes through these: their templates stay as their users wrote them."""
    plain, chosen = (make_policies(Options(nodes=nodes)) for nodes in ((), (("example.org/nodes", "batch"),)))
    changed = [new["metadata"]["name"] for old, new in zip(plain, chosen, strict=True) if old != new]

    assert [GATE_POLICY] == changed
    assert "nodeSelector" not in yaml.safe_dump(plain)
    assert "'/spec/nodeSelector/example.org~1nodes', value: 'batch'" in str(chosen[-3]["spec"]["mutations"][1])


def test_paths_name_the_kinds_in_the_plural() -> None:
    """The path of each object is that of its kind in the API."""
    paths = {path_of(made).split("/")[4] for made in (*make_policies(Options()), *make_bindings(Options()))}
    assert {
        "mutatingadmissionpolicies",
        "validatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicybindings",
    } == paths

"""The file of an installation with further kinds of owners that can be suspended."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.suspend.kinds_file import KINDS_MAX, read_kinds
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, Need, is_ended, pod_sets, suspend_patch, unmet_need
from tests.unit.owner_examples import example_of_the_page, pod_template

STEPS = """
kinds:
- group: example.org
  version: v1alpha1
  kind: Flow
  plural: flows
  suspend: spec.suspend
  podSets:
  - {path: spec.leader, name: leader, template: pod, count: [{leastOf: [size], otherwise: 0}]}
  - path: spec.steps
    form: list
    name: id
    template: job.template
    count:
    - {leastOf: [copies]}
    - {leastOf: [job.parallelism, job.completions]}
  ended: {state: status.phase, states: [Done, Failed]}
"""
ROW = "group: a.org, version: v1, kind: Thing, plural: things, suspend: spec.suspend"


def write(folder: Path, text: str) -> str:
    path = folder / "kinds.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_adds_kinds_to_those_that_are_known(tmp_path: Path) -> None:
    """A kind of the file is read as those of the table are, and no file leaves the table as it is."""
    assert read_kinds("") == KINDS
    *known, kind = read_kinds(write(tmp_path, example_of_the_page()))

    assert tuple(known) == KINDS
    roles = {"Master": {"template": pod_template()}, "Worker": {"replicas": 3, "template": pod_template()}}
    owner = {"metadata": {"name": "one"}, "spec": {"xgbReplicaSpecs": roles}}
    assert {"Master": 1, "Worker": 3} == {one.name: one.count for one in pod_sets(kind, owner)}
    assert suspend_patch(kind, True) == {"spec": {"runPolicy": {"suspend": True}}}
    assert is_ended(kind, {**owner, "status": {"conditions": [{"type": "Failed", "status": "True"}]}})
    assert kind.needs == (Need("spec.runPolicy.managedBy", (None, "kubeflow.org/training-operator")),)
    assert unmet_need(kind, owner) == ""


def test_a_file_describes_lists_of_pod_sets_and_single_ones(tmp_path: Path) -> None:
    """A count is the product of its factors, each the least of its fields; the end may be a state."""
    kind = read_kinds(write(tmp_path, STEPS))[-1]
    job = {"parallelism": 4, "completions": 3, "template": pod_template()}
    spec = {"leader": {"pod": pod_template(), "size": 1}, "steps": [{"id": "first", "copies": 2, "job": job}]}

    owner = {"metadata": {}, "spec": spec}
    assert {"leader": 1, "first": 6} == {one.name: one.count for one in pod_sets(kind, owner)}
    without_leader = {"metadata": {}, "spec": {**spec, "leader": {"pod": pod_template()}}}
    assert ["first"] == [one.name for one in pod_sets(kind, without_leader)]
    assert is_ended(kind, {**owner, "status": {"phase": "Done"}})
    assert not is_ended(kind, {**owner, "status": {"phase": "Running"}})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kinds: [", "kinds.yaml: not valid YAML"),
        ("[]", "kinds.yaml: the file: want a mapping with the fields kinds"),
        ("kinds: 3", "kinds.yaml: the file: kinds: want a list of at most 100"),
        ("other: []", "the file: unknown field 'other'; the fields are kinds"),
        (f"kinds: [{', '.join(['{}'] * (KINDS_MAX + 1))}]", "want a list of at most 100"),
        ("kinds: [{}]", "kinds.yaml: kind 1: kind is '': want a text of the form"),
        (f"kinds: [{{{ROW}}}]", "kind 1, Thing: podSets: want one at least"),
        (f"kinds: [{{{ROW}, more: 1}}]", "kind 1: unknown field 'more'"),
        (
            f"kinds: [{{{ROW}, podSets: [{{path: status.a}}]}}]",
            "Thing: podSets: path is 'status.a': want a path in spec",
        ),
        (f"kinds: [{{{ROW}, podSets: [{{path: spec.a, form: tree}}]}}]", "form is 'tree': want one, list, map"),
        (f"kinds: [{{{ROW}, podSets: [{{path: 'spec..a'}}]}}]", "podSets: path is 'spec..a': want a text of the form"),
        (
            f"kinds: [{{{ROW}, podSets: [{{path: spec.a, count: [{{leastOf: []}}]}}]}}]",
            "podSets: count: leastOf is []: want one at least",
        ),
        (
            f"kinds: [{{{ROW}, podSets: [{{path: spec.a, count: [{{leastOf: [n], otherwise: 5}}]}}]}}]",
            "count: otherwise is 5: want 0 or 1",
        ),
        (
            f"kinds: [{{{ROW}, podSets: [{{path: spec.a}}], ended: {{state: status.a}}}}]",
            "Thing: ended: states is []: want one at least",
        ),
        (
            f'kinds: [{{{ROW}, podSets: [{{path: spec.a}}], needs: [{{path: spec.b, values: ["\'"]}}]}}]',
            'Thing: needs: values is ["\'"]: want texts, true, or null',
        ),
        (
            f"kinds: [{{{ROW}, podSets: [{{path: spec.a}}]}}, {{{ROW}, podSets: [{{path: spec.a}}]}}]",
            "kind 2: Thing of a.org/v1 is there already",
        ),
        (
            "kinds: [{group: batch, version: v1, kind: Job, plural: jobs, suspend: spec.suspend, "
            "podSets: [{path: spec}]}]",
            "kind 1: Job of batch/v1 is there already",
        ),
    ],
)
def test_a_bad_file_is_refused_with_file_kind_and_rule(tmp_path: Path, text: str, error: str) -> None:
    """The error says where in the file which rule is broken."""
    with pytest.raises(InvalidArgument) as raised:
        read_kinds(write(tmp_path, text))
    assert error in str(raised.value)


def test_a_missing_or_endless_file_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(InvalidArgument, match=r"none\.yaml: cannot be read: No such file"):
        read_kinds(str(tmp_path / "none.yaml"))
    with pytest.raises(InvalidArgument, match=r"kinds\.yaml"):
        read_kinds(write(tmp_path, "#" * 2**19))

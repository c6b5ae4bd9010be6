"""PodDisruptionBudgets are kept equal to the SLAs of services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import orjson
import pytest

from peloton.model.ids import JobId
from services.hostmgr.kubernetes.apiserver.wire import Json, Refused
from services.hostmgr.kubernetes.pods.disruption_budgets import (
    CHANGES_MAX,
    FORBIDDEN_REST_S,
    RELIST_S,
    DisruptionBudgets,
)
from services.hostmgr.kubernetes.settings import IN_CLUSTER, KubernetesSettings
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status

A, B = JobId("job-a"), JobId("job-b")


class Cluster:
    """A cluster that lists its budgets in pages of two."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.there: dict[str, Json] = {}
        self.asked: Counter[str] = Counter()
        self.is_forbidden = False

    def serve(self, asked: Asked) -> Iterator[bytes]:
        self.asked[asked.method] += 1
        yield self._answer(asked)

    def _answer(self, asked: Asked) -> bytes:
        if self.is_forbidden:
            return answer(403, status(403, "Forbidden", "no budgets for you"))
        path, _, query = asked.path.partition("?")
        if asked.method == "GET":
            start = int(query.partition("&continue=")[2] or 0)
            page = sorted(self.there)[start : start + 2]
            more = str(start + 2) if start + 2 < len(self.there) else ""
            return answer(
                200,
                {"items": [self.there[name] for name in page], "metadata": {"resourceVersion": "1", "continue": more}},
            )
        name = path.rpartition("/")[2] if asked.method != "POST" else orjson.loads(asked.body)["metadata"]["name"]
        if asked.method == "POST":
            if name in self.there:
                return answer(409, status(409, "AlreadyExists", f"{name} already exists"))
            self.there[name] = orjson.loads(asked.body)
        elif name not in self.there:
            return answer(404, status(404, "NotFound", f"{name} not found"))
        elif asked.method == "PATCH":
            spec = self.there[name]["spec"] | orjson.loads(asked.body)["spec"]
            self.there[name]["spec"] = {key: value for key, value in spec.items() if value is not None}
            if {"minAvailable", "maxUnavailable"} <= self.there[name]["spec"].keys():
                return answer(422, status(422, "Invalid", "minAvailable and maxUnavailable cannot be both set"))
        else:
            del self.there[name]
        return answer(200, {})

    @property
    def numbers(self) -> dict[str, int]:
        """Return the budgets by job."""
        each = self.there.values()
        return {body["metadata"]["labels"]["peloton.io/job"]: body["spec"]["minAvailable"] for body in each}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def budgets(cluster: Cluster) -> Iterator[DisruptionBudgets]:
    with run_scripted(cluster.serve) as server, api_of(server) as api:
        settings = KubernetesSettings(IN_CLUSTER, cluster="west")
        yield DisruptionBudgets(api, settings, lambda: cluster.now_s)


def test_only_numbers_that_change_are_written(cluster: Cluster, budgets: DisruptionBudgets) -> None:
    """Each budget selects the pods of its job in this cluster; its name is unique in the namespace."""
    budgets.set({A: 3, B: 1})
    labels = {"peloton.io/cluster": "west", "peloton.io/job": A}
    made = cluster.there["peloton-west-job-a"]
    assert (labels, {"matchLabels": labels}) == (made["metadata"]["labels"], made["spec"]["selector"])
    assert {"GET": 1, "POST": 2} == cluster.asked

    budgets.set({A: 3, B: 1})
    budgets.set({A: 2})

    assert ({A: 2}, {"GET": 1, "POST": 2, "PATCH": 1, "DELETE": 1}) == (cluster.numbers, cluster.asked)


def test_a_successor_continues_with_existing_budgets(cluster: Cluster, budgets: DisruptionBudgets) -> None:
    """The budgets are listed in pages; obsolete ones are deleted."""
    for job in ("job-a", "job-b", "job-c"):
        name = f"peloton-west-{job}"
        metadata = {"name": name, "labels": {"peloton.io/job": job}}
        cluster.there[name] = {"metadata": metadata, "spec": {"minAvailable": 1}}

    budgets.set({A: 1})

    assert ({A: 1}, {"GET": 2, "DELETE": 2}) == (cluster.numbers, cluster.asked)


def test_a_deleted_budget_is_written_again(cluster: Cluster, budgets: DisruptionBudgets) -> None:
    """A deleted budget is written again at the next list, or when its number changes."""
    budgets.set({A: 3, B: 1})
    cluster.there.clear()
    cluster.now_s += RELIST_S
    budgets.set({A: 3, B: 1})
    assert {A: 3, B: 1} == cluster.numbers

    del cluster.there["peloton-west-job-a"]
    with pytest.raises(OSError, match="1 of 1 changes were not made: HTTP 404: peloton-west-job-a not found"):
        budgets.set({A: 2, B: 1})
    budgets.set({A: 2, B: 1})

    assert {A: 2, B: 1} == cluster.numbers


def test_a_call_makes_a_bounded_number_of_changes(cluster: Cluster, budgets: DisruptionBudgets) -> None:
    """The next call continues with the remaining changes."""
    wanted = {JobId(f"job-{i:04}"): 1 for i in range(CHANGES_MAX + 10)}

    budgets.set(wanted)
    assert CHANGES_MAX == len(cluster.there)
    budgets.set(wanted)

    assert wanted == cluster.numbers


def test_without_the_right_nothing_is_asked_for_a_while(cluster: Cluster, budgets: DisruptionBudgets) -> None:
    """Budgets are not written for a while after a 403; services run all the same."""
    cluster.is_forbidden = True
    with pytest.raises(Refused, match="no budgets for you"):
        budgets.set({A: 1})
    budgets.set({A: 1})
    assert {"GET": 1} == cluster.asked
    cluster.is_forbidden = False
    cluster.now_s += FORBIDDEN_REST_S

    budgets.set({A: 1})

    assert {A: 1} == cluster.numbers


def test_a_changed_budget_is_written_again(cluster: Cluster, budgets: DisruptionBudgets) -> None:
    """A changed budget is restored, even one with the other kind of number: a budget has only one of them."""
    budgets.set({A: 3})
    [body] = cluster.there.values()
    body["spec"]["maxUnavailable"] = 1
    del body["spec"]["minAvailable"]
    cluster.now_s += RELIST_S

    budgets.set({A: 3})

    assert (3, False) == (body["spec"].get("minAvailable"), "maxUnavailable" in body["spec"])

"""Objects of kind ResourcePool on a real apiserver: their pools, their status, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.changelog.changelog_pb2 import ChangeLog
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pb
from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.wire import ApiServer
from services.hostmgr.kubernetes.pools import pool_controller
from services.hostmgr.kubernetes.pools.pool_controller import PATH, PoolController
from tests.kubernetes.client import MERGE, Client, Reply, login_of
from tests.kubernetes.deployment import documents, must_apply
from tests.kubernetes.fixtures import REAL_KUBERNETES
from tests.waiting import timeout_s

pytestmark = REAL_KUBERNETES
KUBECTL = shutil.which("kubectl")
Json = dict[str, Any]
ROOT = pb.ResourcePoolInfo(id=ResourcePoolID(value="root"), path=pb.ResourcePoolPath(value="/"))


class Pools:
    """Pools in memory, with the rules that these tests are about."""

    def __init__(self) -> None:
        self.pools = {"/": ROOT}
        self.busy: set[str] = set()
        self.calls = 0

    def query(self) -> dict[str, pb.ResourcePoolInfo]:
        self.calls += 1
        return dict(self.pools)

    def tree(self) -> dict[str, explain_pb2.PoolNode]:
        return {
            path: explain_pb2.PoolNode(
                path=path,
                queuedInstances=7,
                amounts=[explain_pb2.PoolAmounts(kind="cpu", limit=1, entitlement=2.5, allocation=2, demand=9)],
            )
            for path in self.pools
        }

    def create(self, config: pb.ResourcePoolConfig) -> tuple[str, str]:
        above = next(path for path, one in self.pools.items() if one.id.value == config.parent.value)
        path = f"{above.rstrip('/')}/{config.name}"
        self.put(path, config)
        return f"id of {path}", ""

    def put(self, path: str, config: pb.ResourcePoolConfig) -> None:
        info = pb.ResourcePoolInfo(id=ResourcePoolID(value=f"id of {path}"), path=pb.ResourcePoolPath(value=path))
        info.config.CopyFrom(config)
        self.pools[path] = info

    def update(self, pool_id: str, config: pb.ResourcePoolConfig) -> str:
        if any(one.kind == "cpu" and one.limit > 1000 for one in config.resources):
            return "the limit is above that of the pool above it"
        self.put(pool_id.removeprefix("id of "), config)
        return ""

    def delete(self, path: str) -> str:
        if path in self.busy:
            return f"pool {path} is busy: 1 job"
        del self.pools[path]
        return ""

    def limit(self, path: str) -> float:
        return next(one.limit for one in self.pools[path].config.resources if one.kind == "cpu")

    def change(self, path: str, limit: float, who: str) -> None:
        """Change a limit as another client."""
        config = pb.ResourcePoolConfig()
        config.CopyFrom(self.pools[path].config)
        next(one for one in config.resources if one.kind == "cpu").limit = limit
        config.changeLog.CopyFrom(ChangeLog(updatedBy=who, updatedAt=1_700_000_000_000_000_000))
        self.put(path, config)


class NoChanges:
    """An audit log that is off."""

    def settle(self) -> None: ...

    def note(self, method: str, object: str) -> None: ...

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def client(kubernetes: Path) -> Iterator[Client]:
    with Client(login_of(kubernetes)) as client:
        for document in documents("60-resource-pools.yaml"):
            if document["kind"] == "CustomResourceDefinition":
                must_apply(client, document)
        _wait(lambda: client.ask("GET", PATH).status == 200)
        yield client


@pytest.fixture
def pools(client: Client, kubernetes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pools]:
    monkeypatch.setattr(pool_controller, "ROUND_S", 0.2)
    monkeypatch.setattr(pool_controller, "GATHER_S", 0.05)
    api, pools = ApiServer(read_access(str(kubernetes))), Pools()
    controller = PoolController(api, pools, NoChanges())
    controller.start()
    try:
        yield pools
        pools.busy.clear()
        for item in client.ask("GET", PATH).json()["items"]:
            client.ask("DELETE", f"{PATH}/{item['metadata']['name']}")
        _wait(lambda: client.ask("GET", PATH).json()["items"] == [])
    finally:
        controller.stop()
        api.close()


def _wait(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + timeout_s(30)
    while not is_so():
        assert time.monotonic() < until_s, "the condition is still false"
        time.sleep(0.05)


def _apply(client: Client, name: str, limit: float, **spec: Any) -> Reply:
    resources = [{"kind": "cpu", "reservation": 1, "limit": limit}, {"kind": "memory", "limit": 1024}]
    body = {"apiVersion": "peloton.io/v1", "kind": "ResourcePool", "metadata": {"name": name}}
    query = "fieldManager=tests&fieldValidation=Strict"
    return client.ask(
        "PATCH",
        f"{PATH}/{name}?{query}",
        {**body, "spec": {"resources": resources, **spec}},
        "application/apply-patch+yaml",
    )


def _condition(client: Client, name: str) -> Json:
    found: list[Json] = (client.ask("GET", f"{PATH}/{name}").json().get("status") or {}).get("conditions") or [{}]
    return found[0]


def _await_reason(client: Client, name: str, reason: str) -> str:
    """Wait for the reason of the condition; return its message."""
    _wait(lambda: _condition(client, name).get("reason") == reason)
    return str(_condition(client, name)["message"])


def test_objects_make_their_pools_parents_first(client: Client, pools: Pools) -> None:
    """A pool waits for the one above it, whatever the order of the objects; the status has its amounts."""
    assert 201 == _apply(client, "maps", 20, path="/eng/maps", description="tiles").status
    assert "there is no pool /eng above it" == _await_reason(client, "maps", "Refused")
    assert 201 == _apply(client, "eng", 50).status

    _await_reason(client, "maps", "Synced")

    config = pools.pools["/eng/maps"].config
    assert ("maps", "tiles", 20, "id of /eng") == (
        config.name,
        config.description,
        pools.limit("/eng/maps"),
        config.parent.value,
    )
    status = client.ask("GET", f"{PATH}/maps").json()["status"]
    assert ("/eng/maps", 7) == (status["path"], status["queued"])
    assert [{"kind": "cpu", "entitlement": 2.5, "allocation": 2, "demand": 9}] == status["resources"]


def test_an_edit_changes_the_pool_and_a_refused_one_says_why(client: Client, pools: Pools) -> None:
    """The condition has the message of the API, and its last accepted terms stay in force."""
    _apply(client, "edited", 10)
    _await_reason(client, "edited", "Synced")

    _apply(client, "edited", 12)
    _wait(lambda: pools.limit("/edited") == 12)
    _apply(client, "edited", 5000)

    assert "the limit is above that of the pool above it" == _await_reason(client, "edited", "Refused")
    assert 12 == pools.limit("/edited")


def test_a_change_of_another_client_is_a_conflict_until_the_next_edit(client: Client, pools: Pools) -> None:
    """The pool stays as it was changed, the condition says who changed what, and applying the same changes nothing."""
    _apply(client, "shared", 10)
    _await_reason(client, "shared", "Synced")
    pools.change("/shared", 15, "alice")

    message = _await_reason(client, "shared", "Conflict")
    _apply(client, "shared", 10)

    assert "the pool was changed by alice at 2023-11-14T22:13:20Z: limit of cpu is 15, here 10" in message
    time.sleep(0.5)
    assert 15 == pools.limit("/shared")
    _apply(client, "shared", 11)
    _await_reason(client, "shared", "Synced")
    assert 11 == pools.limit("/shared")


def test_a_pool_that_exists_is_adopted_if_it_is_equal(client: Client, pools: Pools) -> None:
    """A new object never overwrites a pool that differs."""
    _apply(client, "old", 10)
    _await_reason(client, "old", "Synced")
    config = pools.pools["/old"].config
    pools.put("/adopted", config)
    pools.put("/kept", config)

    _apply(client, "adopted", 10)
    _apply(client, "kept", 30)

    _await_reason(client, "adopted", "Synced")
    assert "the pool exists and differs: limit of cpu is 10, here 30" in _await_reason(client, "kept", "Exists")
    assert 10 == pools.limit("/kept")


def test_a_deleted_object_takes_its_pool_along(client: Client, pools: Pools) -> None:
    """The object waits while its pool is busy, and says so."""
    _apply(client, "going", 10)
    _await_reason(client, "going", "Synced")
    pools.busy.add("/going")

    client.ask("DELETE", f"{PATH}/going")
    assert "pool /going is busy: 1 job" == _await_reason(client, "going", "Deleting")
    pools.busy.clear()

    _wait(lambda: client.ask("GET", f"{PATH}/going").status == 404)
    assert "/going" not in pools.pools


def test_namespaces_get_the_label_of_their_pool(client: Client, pools: Pools) -> None:
    """A label that an administrator has set is a complaint; labels leave with the namespace's place in an object."""
    for name, labels in (("pool-a", {}), ("pool-b", {"peloton.io/pool": "other"})):
        body = {"metadata": {"name": name, "labels": labels}}
        assert client.ask("POST", "/api/v1/namespaces", body).status in (201, 409)

    _apply(client, "spaces", 10, namespaces=["pool-a", "pool-b", "nowhere"])
    message = _await_reason(client, "spaces", "Namespaces")
    assert "namespace pool-b has the label peloton.io/pool=other, which no object has set" == message

    def label(name: str) -> str | None:
        found = client.ask("GET", f"/api/v1/namespaces/{name}").json()["metadata"].get("labels", {})
        value: str | None = found.get("peloton.io/pool")
        return value

    assert ("spaces", "other") == (label("pool-a"), label("pool-b"))
    _apply(client, "spaces", 10)
    _wait(lambda: label("pool-a") is None)
    assert "other" == label("pool-b")
    for name in ("pool-a", "pool-b"):
        client.ask("DELETE", f"/api/v1/namespaces/{name}")


def test_statuses_are_written_only_when_they_change(client: Client, pools: Pools) -> None:
    """Rounds go on, and the version of an object stays."""
    _apply(client, "quiet", 10)
    _await_reason(client, "quiet", "Synced")

    def version() -> str:
        return str(client.ask("GET", f"{PATH}/quiet").json()["metadata"]["resourceVersion"])

    _wait(lambda: "resources" in client.ask("GET", f"{PATH}/quiet").json()["status"])
    before, calls = version(), pools.calls
    _wait(lambda: pools.calls > calls + 3)

    assert before == version()


INVALID = {
    "limit below reservation": ({"resources": [{"kind": "cpu", "reservation": 2, "limit": 1}]}, "not less than"),
    "a kind twice": ({"resources": [{"kind": "cpu", "limit": 1}, {"kind": "cpu", "limit": 2}]}, "uplicate"),
    "no limit": ({"resources": [{"kind": "cpu"}]}, "limit"),
    "unknown policy": ({"policy": "LIFO", "resources": [{"kind": "cpu", "limit": 1}]}, "PriorityFIFO"),
    "no path": ({"path": "eng", "resources": [{"kind": "cpu", "limit": 1}]}, "spec.path"),
    "a misspelt field": ({"resources": [{"kind": "cpu", "limits": 1, "limit": 1}]}, "limits"),
}


@pytest.mark.parametrize("name", INVALID)
def test_the_apiserver_refuses_what_is_no_pool(client: Client, name: str) -> None:
    """The schema and its rules in CEL refuse it before Peloton sees it."""
    spec, said = INVALID[name]
    body = {"apiVersion": "peloton.io/v1", "kind": "ResourcePool", "metadata": {"name": "bad"}, "spec": spec}
    reply = client.ask("POST", f"{PATH}?fieldValidation=Strict&dryRun=All", body)

    assert reply.status in (400, 422), reply.body
    assert said in reply.body.decode()


def test_a_path_does_not_change(client: Client, pools: Pools) -> None:
    """A pool cannot move, so the path of its object is immutable."""
    _apply(client, "fixed", 10, path="/fixed")
    reply = client.ask("PATCH", f"{PATH}/fixed", {"spec": {"path": "/moved"}}, MERGE)

    assert (422, True) == (reply.status, "path does not change" in reply.body.decode())


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on the PATH")
def test_kubectl_get_pools_has_columns(client: Client, pools: Pools, kubernetes: Path) -> None:
    """`kubectl get pools` shows allocation, entitlement, demand and queue of each pool."""
    _apply(client, "shown", 10)
    _wait(lambda: "resources" in (client.ask("GET", f"{PATH}/shown").json().get("status") or {}))
    argv = [str(KUBECTL), "--kubeconfig", str(kubernetes), "get", "pools"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    head, line = done.stdout.splitlines()

    assert ["NAME", "PATH", "CPU", "ENTITLED", "DEMAND", "QUEUED", "SYNCED", "AGE"] == head.split()
    assert ["shown", "/shown", "2", "2.5", "9", "7", "Synced"] == line.split()[:-1]

"""Objects over HTTP: create, read, replace, patch, delete, as the recordings of a real apiserver have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod


def test_a_pod_is_stored_with_the_defaults_of_an_apiserver(cluster: Cluster) -> None:
    """Unset fields have defaults: grace, tolerations, priority, QoS class, pull policy, generation."""
    made = cluster.create(PODS, pod("a"))

    assert made.status == 201
    body = made.json
    assert (body["kind"], body["apiVersion"], body["metadata"]["generation"]) == ("Pod", "v1", 1)
    assert body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert body["spec"] == {
        "containers": [
            {
                "name": "main",
                "image": "busybox:1",
                "command": ["true"],
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "nodeName": "node-1",
        "securityContext": {},
        "schedulerName": "peloton",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{what}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for what in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def test_a_name_is_given_once(cluster: Cluster) -> None:
    """The second create of a name is 409 AlreadyExists, whatever its body says."""
    cluster.create(PODS, pod("a"))

    again = cluster.create(PODS, pod("a", node="node-2"))

    assert again.status == 409
    assert again.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "pods"},
        "code": 409,
    }


@pytest.mark.parametrize(
    ("path", "body", "code", "reason", "message"),
    [
        ("/api/v1/namespaces/nope/pods", pod("a"), 404, "NotFound", 'namespaces "nope" not found'),
        (
            PODS,
            pod("a", priorityClassName="nope"),
            403,
            "Forbidden",
            'pods "a" is forbidden: no PriorityClass with name nope was found',
        ),
        (
            PODS,
            pod("a", schedulingGates=[{"name": "x/y"}]),
            422,
            "Invalid",
            'Pod "a" is invalid: spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared',
        ),
        (PODS, pod("a", containers=[]), 422, "Invalid", 'Pod "a" is invalid: spec.containers: Required value'),
        ("/api/v1/namespaces/default/nothing", {}, 404, "NotFound", "the server could not find the requested resource"),
    ],
)
def test_what_cannot_be_is_refused(
    cluster: Cluster, path: str, body: object, code: int, reason: str, message: str
) -> None:
    """Each refusal is a Status with the code, reason and text of a real apiserver."""
    refused = cluster.create(path, body)

    assert (refused.status, refused.json["reason"], refused.json["message"]) == (code, reason, message)


def test_a_bad_name_is_invalid_with_its_cause(cluster: Cluster) -> None:
    """The causes of a 422 name the field."""
    refused = cluster.create(PODS, pod("Bad_Name"))

    assert refused.status == 422
    assert refused.json["details"]["kind"] == "Pod"
    assert [one["field"] for one in refused.json["details"]["causes"]] == ["metadata.name"]


def test_other_formats_and_methods_are_refused(cluster: Cluster) -> None:
    """A body that is no JSON is 415, an unsupported method 405, an answer in an unsupported format 406."""
    assert cluster.ask("POST", PODS, b"x", {"Content-Type": "application/vnd.kubernetes.protobuf"}).status == 415
    assert cluster.ask("POST", "/api/v1/pods", pod("a")).status == 405
    assert cluster.get(PODS, Accept="application/vnd.kubernetes.protobuf").status == 406
    assert cluster.ask("POST", PODS, b"{").status == 400


def test_a_stale_version_is_a_conflict(cluster: Cluster) -> None:
    """A replacement or patch that carries an old version is 409; one without a version passes."""
    body = cluster.create(PODS, pod("a")).json
    cluster.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "1"}}})

    put = cluster.ask("PUT", f"{PODS}/a", body)
    patched = cluster.patch(
        f"{PODS}/a", {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"], "labels": {"x": "2"}}}
    )

    assert (put.status, put.json["reason"]) == (409, "Conflict")
    assert patched.status == 409
    assert cluster.get(f"{PODS}/a").json["metadata"]["labels"] == {"x": "1"}


def test_what_changes_nothing_keeps_the_version(cluster: Cluster) -> None:
    """A patch that leaves an object as it is writes nothing."""
    made = cluster.create(PODS, pod("a")).json

    again = cluster.patch(f"{PODS}/a", {"metadata": {"labels": None}})

    assert again.json["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_the_node_of_a_pod_cannot_be_patched(cluster: Cluster) -> None:
    """Images, deadline, tolerations and gates are the only fields of a pod's spec that may change."""
    cluster.create(PODS, pod("a"))

    moved = cluster.patch(f"{PODS}/a", {"spec": {"nodeName": "node-2"}})
    imaged = cluster.patch(f"{PODS}/a", {"spec": {"containers": [{"name": "main", "image": "x:2"}]}}, "strategic")

    assert (moved.status, moved.json["details"]["causes"][0]["field"]) == (422, "spec")
    assert (imaged.status, imaged.json["metadata"]["generation"]) == (200, 2)
    assert imaged.json["spec"]["containers"][0]["command"] == ["true"]


def test_a_status_and_a_spec_are_written_apart(cluster: Cluster) -> None:
    """A patch of the status leaves the spec alone, and a patch of the object its status."""
    cluster.create("/api/v1/nodes", {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}})

    status = cluster.patch("/api/v1/nodes/n/status", {"spec": {"unschedulable": True}, "status": {"phase": "x"}})
    spec = cluster.patch("/api/v1/nodes/n", {"spec": {"unschedulable": True}, "status": {"phase": "y"}})

    assert "unschedulable" not in status.json["spec"]
    assert status.json["status"] == {"capacity": {"cpu": "2"}, "phase": "x"}
    assert (spec.json["spec"]["unschedulable"], spec.json["status"]["phase"]) == (True, "x")


def test_objects_outlive_the_process(tmp_path: Path) -> None:
    """All objects are there with their versions after a restart, deleted ones are not, and versions continue."""
    with Cluster(tmp_path) as cluster:
        system = cluster.get("/api/v1/namespaces/kube-system").json["metadata"]["uid"]
        kept = cluster.create(PODS, pod("a")).json
        cluster.create(PODS, pod("b"))
        last = cluster.ask("DELETE", f"{PODS}/b?gracePeriodSeconds=0").json["metadata"]["resourceVersion"]

    with Cluster(tmp_path) as cluster:
        assert cluster.get("/api/v1/namespaces/kube-system").json["metadata"]["uid"] == system
        assert cluster.get(f"{PODS}/a").json == kept
        assert cluster.get(f"{PODS}/b").status == 404
        assert int(cluster.create(PODS, pod("c")).json["metadata"]["resourceVersion"]) == int(last) + 1


def test_a_line_of_the_journal_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    """A line that kill -9 left half written was never answered, so it is dropped."""
    with Cluster(tmp_path) as cluster:
        cluster.create(PODS, pod("a"))
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(b'["pods",{"kind":"Pod"')

    with Cluster(tmp_path) as cluster:
        cluster.create(PODS, pod("b"))
    with Cluster(tmp_path) as cluster:
        assert [one["metadata"]["name"] for one in cluster.get(PODS).json["items"]] == ["a", "b"]


def test_another_token_is_refused(tmp_path: Path) -> None:
    """Another token is rejected with 401; a client without one may do everything, as kubectl sends none without TLS."""
    with Cluster(tmp_path, token="secret") as cluster:
        assert cluster.get(PODS).status == 200
        refused = cluster.get(PODS, Authorization="Bearer other")
        assert (refused.status, refused.json["reason"]) == (401, "Unauthorized")
        assert cluster.get("/readyz", Authorization="Bearer other").status == 200
        assert cluster.get("/version", Authorization="").json["gitVersion"].startswith("v1.")

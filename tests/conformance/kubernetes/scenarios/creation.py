"""Objects are made: what is accepted, what is filled in, what is refused."""

from __future__ import annotations

from typing import Any

from tests.conformance.kubernetes.lab import Lab, pod, with_labels

MANY = {"cpu": "500m", "memory": "64Mi"}


def create(lab: Lab) -> None:
    with lab.node() as node:
        lab.ask("with a node", "POST", lab.pods, pod("c1", node))
        lab.ask("again", "POST", lab.pods, pod("c1", node, priority=7))
        lab.ask("without a node", "POST", lab.pods, pod("c2"))
        lab.ask("on a node that is not there", "POST", lab.pods, pod("c3", lab.named("nowhere")))
        lab.ask("get", "GET", f"{lab.pods}/c1")
        lab.ask("in a namespace that is not there", "POST", lab.path("pods", namespace="nowhere-at-all"), pod("c4"))
        elsewhere = {**pod("c5"), "metadata": {"name": "c5", "namespace": "default"}}
        lab.ask("with another namespace inside", "POST", lab.pods, elsewhere)


def create_refused(lab: Lab) -> None:
    lab.ask("a bad name", "POST", lab.pods, pod("Bad_Name"))
    lab.ask("no name", "POST", lab.pods, {**pod("x"), "metadata": {}})
    lab.ask("no containers", "POST", lab.pods, pod("x", containers=[]))
    lab.ask("no image", "POST", lab.pods, pod("x", containers=[{"name": "main"}]))
    lab.ask("two containers of one name", "POST", lab.pods, pod("x", containers=[_container("a"), _container("a")]))
    lab.ask("an unknown priority class", "POST", lab.pods, pod("x", priorityClassName="nope"))
    gated = pod("x", "node", schedulingGates=[{"name": "peloton.io/wait"}])
    lab.ask("a gate and a node", "POST", lab.pods, gated)
    lab.ask("a label that is too long", "POST", lab.pods, with_labels(pod("x"), job="j" * 64))
    lab.ask("a label with a blank", "POST", lab.pods, with_labels(pod("x"), job="not this"))
    lab.ask("an unknown restart policy", "POST", lab.pods, pod("x", restartPolicy="Sometimes"))
    lab.ask("a negative grace", "POST", lab.pods, pod("x", terminationGracePeriodSeconds=-5))
    over = _container("main", resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
    lab.ask("requests above limits", "POST", lab.pods, pod("x", containers=[over]))
    port = _container("main", ports=[{"containerPort": 70_000}])
    lab.ask("a port that cannot be", "POST", lab.pods, pod("x", containers=[port]))
    lab.ask("another kind", "POST", lab.pods, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}})
    lab.ask("no JSON", "POST", lab.pods, b"{", show=_without_message)
    lab.ask(
        "an amount that is none", "POST", lab.pods, pod("x", containers=[_wants(cpu="much")]), show=_without_message
    )
    lab.ask("another content type", "POST", lab.pods, b"x", "text/plain", show=_without_message)
    unknown = f"{lab.pods}?fieldValidation=Strict"
    lab.ask("a field that is none, strictly", "POST", unknown, pod("x", nodename="x"), show=_without_message)


def create_filled_in(lab: Lab) -> None:
    with lab.node() as node:
        _show_quality(lab, "no resources", pod("f1", node))
        limits = _container("main", resources={"limits": MANY})
        _show_quality(lab, "limits alone", pod("f2", node, containers=[limits]))
        _show_quality(lab, "requests alone", pod("f3", node, containers=[_wants(**MANY)]))
        equal = _container("main", resources={"limits": MANY, "requests": MANY})
        _show_quality(lab, "all alike", pod("f4", node, containers=[equal]))
        _show_quality(lab, "one of two", pod("f5", node, containers=[equal, _container("other")]))
        amounts = _wants(cpu="1500m", memory="0.5Gi", **{"ephemeral-storage": "1e3"})
        _show_quality(lab, "amounts in other forms", pod("f6", node, containers=[amounts]))
        probe = {"httpGet": {"path": "/", "port": 80}}
        whole = _container(
            "main",
            env=[{"name": "A", "value": "1"}],
            ports=[{"containerPort": 80, "name": "http"}],
            readinessProbe=probe,
            livenessProbe={**probe, "periodSeconds": 3},
            volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        )
        volumes = [{"name": "scratch", "emptyDir": {}}]
        lab.ask("a whole pod", "POST", lab.pods, pod("f7", node, containers=[whole], volumes=volumes))
        quiet = pod("f8", node, automountServiceAccountToken=False, enableServiceLinks=False)
        lab.ask("what drivers say", "POST", lab.pods, quiet)
        tolerant = pod("f9", node, tolerations=[{"operator": "Exists"}])
        lab.ask("tolerates all", "POST", lab.pods, tolerant, show=lambda body: body["spec"]["tolerations"])
        lab.ask("no policy", "POST", lab.pods, pod("f10", node, restartPolicy=None), show=lambda body: body["spec"])
        first = _container("first", command=["true"])
        lab.ask("containers to begin with", "POST", lab.pods, pod("f11", node, initContainers=[first]))


def generate_name(lab: Lab) -> None:
    body = {**pod("x"), "metadata": {"generateName": "made-"}}
    lab.ask(
        "a name is made",
        "POST",
        lab.pods,
        body,
        show=lambda found: [
            found["metadata"]["generateName"],
            found["metadata"]["name"][:5],
            len(found["metadata"]["name"]),
        ],
    )


def other_objects(lab: Lab) -> None:
    maps = lab.path("configmaps")
    lab.ask("a config map", "POST", maps, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    lab.ask("a bad key", "POST", maps, {"metadata": {"name": "n"}, "data": {"a b": "1"}})
    secrets = lab.path("secrets")
    lab.ask("a secret", "POST", secrets, {"metadata": {"name": "s"}, "stringData": {"key": "value"}})
    lab.ask("read again", "GET", f"{secrets}/s")
    lab.ask("no base64", "POST", secrets, {"metadata": {"name": "t"}, "data": {"key": "%"}}, show=_without_message)
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": lab.namespace, "name": "p"},
        "reason": "Placed",
        "message": "for a test",
        "type": "Normal",
        "count": 1,
    }
    lab.ask("an event", "POST", lab.path("events"), event)
    lab.ask(
        "an event about another namespace",
        "POST",
        lab.path("events"),
        {**event, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "metadata": {"name": "f"}},
    )
    account = lab.path("serviceaccounts")
    lab.ask("a service account", "POST", account, {"metadata": {"name": "robot"}})
    lab.ask("an unknown resource", "GET", lab.path("wishes"))
    lab.ask("an unknown group", "GET", "/apis/wishes.example.com/v1/wishes")


def namespaces(lab: Lab) -> None:
    name = lab.named("other")
    lab.ask("create", "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    lab.ask("again", "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    held = {**pod("held"), "metadata": {"name": "held", "finalizers": ["peloton.io/hold"]}}
    pods = lab.path("pods", namespace=name)
    lab.must("POST", pods, held)
    lab.ask("delete", "DELETE", f"/api/v1/namespaces/{name}", show=lambda body: body["status"]["phase"])
    lab.ask("what goes takes nothing", "POST", pods, pod("late"))
    lab.until("its pods go too", f"{pods}/held", lambda body: "deletionTimestamp" in body["metadata"], show=_deletion)
    lab.must("PATCH", f"{pods}/held", {"metadata": {"finalizers": None}}, "application/merge-patch+json")


def _deletion(body: Any) -> Any:
    return {key: body["metadata"].get(key) for key in ("finalizers", "deletionGracePeriodSeconds")}


def _without_message(body: Any) -> Any:
    """Texts of parsers are theirs."""
    return {key: body.get(key) for key in ("kind", "status", "reason", "code")}


def _container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox", **more}


def _wants(**requests: str) -> dict[str, Any]:
    return _container("main", resources={"requests": requests})


def _show_quality(lab: Lab, what: str, body: Any) -> None:
    lab.ask(
        what,
        "POST",
        lab.pods,
        body,
        show=lambda found: {
            "class": found["status"]["qosClass"],
            "resources": [container["resources"] for container in found["spec"]["containers"]],
        },
    )


SCENARIOS = (create, create_refused, create_filled_in, generate_name, other_objects, namespaces)

"""Lists and gets: selectors, pages, versions, permissions, served kinds."""

from __future__ import annotations

from typing import Any

from tests.conformance.kubernetes.lab import Lab, pod, with_labels
from tests.kubernetes.client import MERGE, Client

OTHERS = {"poddisruptionbudgets", "leases", "priorityclasses"}


def selectors(lab: Lab) -> None:
    with lab.node("node-1") as node, lab.node("node-2") as other:
        lab.must("POST", lab.pods, with_labels(pod("s1", node), app="web", tier="front"))
        lab.must("POST", lab.pods, with_labels(pod("s2", other, schedulerName="another"), app="web"))
        lab.must("POST", lab.pods, with_labels(pod("s3"), app="batch"))
        lab.must("POST", lab.pods, pod("s4"))
        lab.must("PATCH", f"{lab.pods}/s1/status", {"status": {"phase": "Running"}}, MERGE)
        for selector in (
            "app=web",
            "app==web,tier=front",
            "app!=web",
            "app in (web,batch)",
            "app notin (web)",
            "tier",
            "!app",
            "app=",
            "app in (web),!tier",
        ):
            lab.ask(f"labels {selector}", "GET", f"{lab.pods}?labelSelector={_quote_text(selector)}", show=_names)
        for selector in ("app in web", "=web", "app=a b", "app>>1"):
            lab.ask(f"labels {selector}", "GET", f"{lab.pods}?labelSelector={_quote_text(selector)}", show=_reason)
        for selector in (
            "metadata.name=s1",
            "metadata.name!=s1",
            f"spec.nodeName={node}",
            "spec.nodeName!=",
            "spec.nodeName=",
            "status.phase=Running",
            "status.phase!=Running,spec.nodeName!=",
            "spec.schedulerName=another",
            f"metadata.namespace={lab.namespace}",
            "spec.restartPolicy=Never",
        ):
            lab.ask(
                f"fields {lab.names.text(selector)}",
                "GET",
                f"{lab.pods}?fieldSelector={_quote_text(selector)}",
                show=_names,
            )
        for selector in ("spec.nodename=x", "status.phase", "spec.containers=x"):
            lab.ask(f"fields {selector}", "GET", f"{lab.pods}?fieldSelector={_quote_text(selector)}", show=_reason)
        everywhere = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&labelSelector=app"
        lab.ask("of all namespaces", "GET", everywhere, show=_names)
        lab.ask("whole", "GET", f"{lab.pods}?labelSelector=app%3Dweb")
        lab.ask("of no namespace", "GET", "/api/v1/namespaces/nowhere-at-all/pods", show=_names)


def pages(lab: Lab) -> None:
    for i in range(5):
        lab.must("POST", lab.pods, pod(f"g{i}"))
    first = lab.ask("the first two", "GET", f"{lab.pods}?limit=2", show=_page).json()
    token = _quote_text(first["metadata"]["continue"])
    lab.must("DELETE", f"{lab.pods}/g3")
    lab.must("POST", lab.pods, pod("g6"))
    second = lab.ask("goes on as it was", "GET", f"{lab.pods}?limit=2&continue={token}", show=_page).json()
    versions = {page["metadata"]["resourceVersion"] for page in (first, second)}
    assert len(versions) == 1, "the pages of a list have one version"
    token = _quote_text(second["metadata"]["continue"])
    lab.ask("the rest", "GET", f"{lab.pods}?limit=2&continue={token}", show=_page)
    lab.ask("now", "GET", lab.pods, show=_page)
    lab.ask("limit enough", "GET", f"{lab.pods}?limit=500", show=_page)
    lab.ask("no token", "GET", f"{lab.pods}?limit=2&continue=nonsense", show=_reason)
    lab.ask("with a selector", "GET", f"{lab.pods}?limit=2&labelSelector=%21app", show=_page)
    lab.ask("a negative limit", "GET", f"{lab.pods}?limit=-1", show=_code)


def versions(lab: Lab) -> None:
    body = lab.must("POST", lab.pods, pod("v1"))
    version = body["metadata"]["resourceVersion"]
    lab.ask(
        "not older than", "GET", f"{lab.pods}?resourceVersion={version}&resourceVersionMatch=NotOlderThan", show=_page
    )
    lab.ask("any", "GET", f"{lab.pods}?resourceVersion=0&labelSelector=nothing", show=_page)
    lab.must("POST", lab.pods, pod("v2"))
    lab.ask("exactly then", "GET", f"{lab.pods}?resourceVersion={version}&resourceVersionMatch=Exact", show=_page)
    lab.ask("one of the future", "GET", f"{lab.pods}?resourceVersion=99999999999")
    lab.ask("a word", "GET", f"{lab.pods}?resourceVersion=abc", show=_reason)
    lab.ask("match alone", "GET", f"{lab.pods}?resourceVersionMatch=Exact", show=_reason)
    lab.ask(
        "match with nothing", "GET", f"{lab.pods}?resourceVersion={version}&resourceVersionMatch=Almost", show=_reason
    )


def discovery(lab: Lab) -> None:
    lab.ask("health", "GET", "/readyz")
    lab.ask("alive", "GET", "/livez")
    lab.ask("version", "GET", "/version", show=lambda body: {key: body[key] for key in ("major", "minor")})
    lab.ask("versions of the core", "GET", "/api", show=lambda body: {key: body[key] for key in ("kind", "versions")})
    core = {
        "pods",
        "pods/binding",
        "pods/eviction",
        "pods/status",
        "pods/log",
        "nodes",
        "nodes/status",
        "namespaces",
        "events",
    }
    lab.ask("the core", "GET", "/api/v1", show=lambda body: _resources(body, core))
    for group in ("apps/v1", "policy/v1", "coordination.k8s.io/v1", "scheduling.k8s.io/v1"):
        lab.ask(group, "GET", f"/apis/{group}", show=lambda body: _resources(body, OTHERS))
    lab.ask("a path that is none", "GET", "/nothing/here", show=_code)


def users(lab: Lab) -> None:
    with Client(lab.client.login.with_token("nobody-has-this")) as stranger:
        reply = stranger.ask("GET", lab.pods)
    lab.transcript.append({"do": "a token that nobody has", "status": reply.status, "body": _reason(reply.json())})


def _quote_text(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._~" else f"%{ord(letter):02X}" for letter in text)


def _names(body: Any) -> Any:
    return [item["metadata"]["name"] for item in body["items"]] if "items" in body else body


def _page(body: Any) -> Any:
    return {"metadata": body["metadata"], "items": _names(body)} | (
        {} if body["kind"] == "PodList" else {"kind": body["kind"]}
    )


def _resources(body: Any, wanted: set[str]) -> Any:
    found = {resource["name"]: resource for resource in body["resources"] if resource["name"] in wanted}
    keys = ("kind", "namespaced", "singularName", "shortNames")
    return {name: {key: found[name].get(key) for key in keys} for name in sorted(found)}


def _reason(body: Any) -> Any:
    return {key: body.get(key) for key in ("kind", "status", "reason", "code")} if isinstance(body, dict) else body


def _code(body: Any) -> Any:
    return body.get("code") if isinstance(body, dict) else None


SCENARIOS = (selectors, pages, versions, discovery, users)

"""Watches: from where they begin, what they say, and how they end."""

from __future__ import annotations

from tests.conformance.kubernetes.lab import Lab, has, pod, with_labels
from tests.kubernetes.client import MERGE, STRATEGIC


def watch(lab: Lab) -> None:
    with lab.node() as node:
        lab.must("POST", lab.pods, pod("w0", node))
        version = lab.must("GET", lab.pods)["metadata"]["resourceVersion"]
        with (
            lab.watching(lab.pods) as from_nothing,
            lab.watching(f"{lab.pods}?resourceVersion=0") as from_any,
            lab.watching(f"{lab.pods}?resourceVersion={version}") as from_now,
            lab.watching(f"{lab.pods}?labelSelector=app%3Dweb&resourceVersion={version}") as of_a_label,
            lab.watching(f"{lab.pods}?fieldSelector=status.phase%3DRunning&resourceVersion={version}") as of_a_phase,
        ):
            lab.must("POST", lab.pods, with_labels(pod("w1", node), app="web"))
            lab.must("PATCH", f"{lab.pods}/w1", {"metadata": {"labels": {"app": "other"}}}, MERGE)
            lab.must("PATCH", f"{lab.pods}/w1/status", {"status": {"phase": "Running"}}, STRATEGIC)
            lab.must("PATCH", f"{lab.pods}/w1", {"metadata": {"labels": {"app": "web"}}}, MERGE)
            lab.must("PATCH", f"{lab.pods}/w1/status", {"status": {"phase": "Succeeded"}}, STRATEGIC)
            lab.must("DELETE", f"{lab.pods}/w1")
            from_now.note_until("from a version", has(1, "DELETED"))
            from_nothing.note_until("from nothing", has(1, "DELETED"))
            from_any.note_until("from any", has(1, "DELETED"))
            of_a_label.note_until("of a label", has(2, "DELETED"))
            of_a_phase.note_until("of a phase", has(1, "DELETED"))
        with lab.watching(f"{lab.pods}?resourceVersion={version}") as again:
            again.note_until("what was, once more", has(1, "DELETED"))


def watch_ends(lab: Lab) -> None:
    version = lab.must("GET", lab.pods)["metadata"]["resourceVersion"]
    with lab.watching(f"{lab.pods}?resourceVersion={version}&timeoutSeconds=1") as short:
        short.note_end("after its time")
    lab.must("POST", lab.pods, pod("w1"))
    with lab.watching(f"{lab.pods}?resourceVersion={version}&timeoutSeconds=5") as longer:
        longer.note_end("after its time, with an event")
    with lab.watching(f"{lab.pods}?resourceVersion=99999999999&timeoutSeconds=1") as future:
        future.note_end("from a version of the future")
    lab.ask("from a word", "GET", f"{lab.pods}?watch=1&resourceVersion=abc", show=lambda body: body["code"])


SCENARIOS = (watch, watch_ends)

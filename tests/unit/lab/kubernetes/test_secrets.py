"""Secrets: their data is in answers about them alone, as with a real apiserver, and in files for one user alone."""

from __future__ import annotations

import stat
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

from services.lab.kubernetes.journal import NAME, Journal
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.resources import RESOURCES
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.kubernetes.cluster import PODS, Answer, Cluster

TEXT = "swordfish-7f3a"
ENCODED = b64encode(TEXT.encode()).decode()
SECRETS = "/api/v1/namespaces/default/secrets"
STATISTICS = "/api/v1/nodes/n0/proxy/stats/summary"
NAMES = ("runs", "ended")
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def pod(name: str, command: str) -> dict[str, Any]:
    """Return a pod with the secret as a file and as variables."""
    container = {
        "name": "main",
        "image": "app",
        "command": ["/bin/sh", "-c", command],
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/run/v"}],
    }
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    spec = {"nodeName": "n0", "restartPolicy": "Never", "volumes": volumes, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def is_in(phase: str, answer: Answer) -> bool:
    return bool(answer.json["status"].get("phase") == phase)


def answers(cluster: Cluster) -> dict[str, str]:
    """Return the lists of all kinds, as objects and as tables, and the answers of nodes about their pods."""
    found = {}
    for resource in RESOURCES:
        root = f"/apis/{resource.group}/v1" if resource.group else "/api/v1"
        for accept in ("application/json", TABLE):
            found[f"{resource.plural} {accept}"] = cluster.get(f"{root}/{resource.plural}", Accept=accept)
    for path in (*(f"{PODS}/{name}{part}" for name in NAMES for part in ("", "/log")), STATISTICS, "/emulation/nodes"):
        found[path] = cluster.get(path)
    assert {200} == {answer.status for answer in found.values()}, found
    return {name: answer.body.decode() for name, answer in found.items()}


def test_only_answers_about_a_secret_have_its_data(tmp_path: Path) -> None:
    """Pods that use a secret, running or ended, events, tables and nodes do not show its data. A value that a client
    wrote in clear text is returned as base64 alone.
    """
    with Cluster(tmp_path / "kubernetes", nodes=NodeSettings(tmp_path / "nodes", (HostSpec("n0"),))) as cluster:
        made = cluster.create(
            SECRETS, {"metadata": {"name": "s"}, "data": {"old": "eA=="}, "stringData": {"key": TEXT}}
        )
        assert {"old": "eA==", "key": ENCODED} == made.json["data"]
        assert "stringData" not in made.json
        for name, command in zip(NAMES, ("sleep 600", 'test "$KEY" = "$(cat run/v/key)"'), strict=True):
            assert 201 == cluster.create(PODS, pod(name, command)).status
        for name, phase in zip(NAMES, ("Running", "Succeeded"), strict=True):
            cluster.wait(f"{PODS}/{name}", partial(is_in, phase))

        found = answers(cluster)
        keys = [path for path in (tmp_path / "nodes").rglob("key") if path.is_file() and "volumes" in path.parts]
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (*keys, tmp_path / "kubernetes" / NAME)}

    assert [] == [name for name, text in found.items() if TEXT in text]
    assert ["secrets application/json"] == [name for name, text in found.items() if ENCODED in text]
    assert (True, {0o600}) == (bool(keys), modes)


def test_a_journal_that_is_made_short_stays_private(tmp_path: Path) -> None:
    """The journal has the data of all secrets; a file that an earlier attempt left does not make it
    readable for others.
    """
    journal = Journal(tmp_path)
    journal.append(b"[]\n")
    (tmp_path / NAME).with_suffix(".new").touch(mode=0o644)
    journal.rewrite([b"[]\n"])
    assert 0o600 == stat.S_IMODE((tmp_path / NAME).stat().st_mode)

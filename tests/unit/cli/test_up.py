"""`peloton up`: its options become the settings of the local cluster, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import up
from services.lab.local.cluster import LocalSettings
from services.lab.local.own_kubernetes import OwnKubernetes
from tests.unit.cli.conftest import Run


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[LocalSettings]:
    """Record settings instead of starting a cluster."""
    found: list[LocalSettings] = []

    async def record(settings: LocalSettings) -> None:
        found.append(settings)

    monkeypatch.setattr(up, "_run", record)
    return found


def test_options_are_settings(run: Run, clusters: list[LocalSettings], tmp_path: Path) -> None:
    """Each option sets the field of LocalSettings that it is about; the others keep their defaults."""
    file = tmp_path / "file.yaml"
    file.write_text("")
    run("up")
    run(
        f"up --data {tmp_path} --simulate 3 --simulation {file} --port 0 --database sqlite:// --temporal t:7233 "
        "--workers 2 --apis 3 --image-download 1.5 --sandbox-retention 2 --pass-env A --pass-env B "
        "--enforce-disk-quota --cluster west --kubernetes --no-web --no-aurora"
    )
    run(f"up --hosts {file}")
    run("up --mesos m:5050 --kubernetes 7")
    run("up --kubernetes --no-mesos")
    run(f"up --kubeconfig {file} --context kind-kind")

    assert clusters == [
        LocalSettings(web=True, bridge=True),
        LocalSettings(
            data_dir=tmp_path, simulate=3, simulation_file=file, port=0, database="sqlite://", temporal="t:7233",
            workers=2, apis=3, image_download_s=1.5, sandbox_retention_h=2, pass_env=("A", "B"),
            enforce_disk_quota=True, more_clusters=("west",), kubernetes=0, web=False, bridge=False,
        ),
        LocalSettings(web=True, bridge=True, hosts_file=file),
        LocalSettings(web=True, bridge=True, mesos="m:5050", kubernetes=7),
        LocalSettings(web=True, bridge=True, kubernetes=0, no_mesos=True),
        LocalSettings(web=True, bridge=True, own_kubernetes=OwnKubernetes(file, "kind-kind")),
    ]  # fmt: skip


CONFLICTS = {
    "--hosts FILE --simulate 3": "--hosts and --simulate exclude each other",
    "--simulation FILE": "--simulation needs --simulate N",
    "--mesos m:5050 --image-download 1": "--mesos has hosts of its own",
    "--mesos m:5050 --enforce-disk-quota": "--mesos has hosts of its own",
    "--mesos m": "want HOST:PORT or zk://HOST:PORT,.../PATH",
    "--temporal t": "--temporal t: want HOST:PORT",
    "--cluster west --cluster west": "each cluster needs a name of its own",
    "--cluster local": "each cluster needs a name of its own",
    "--cluster W/": "W/",
    "--kubernetes --cluster kubernetes": "--kubernetes makes a cluster of the name kubernetes",
    "--no-mesos": "--no-mesos needs --kubernetes",
    "--context kind-kind": "--context needs --kubeconfig",
    "--kubeconfig FILE --kubernetes": "--kubeconfig names the only cluster",
    "--kubeconfig FILE --simulate 3": "--kubeconfig names the only cluster",
    "--kubeconfig FILE --pass-env A": "--kubeconfig names the only cluster",
    "--no-mesos --kubernetes --cluster west": "--no-mesos needs --kubernetes",
}


@pytest.mark.parametrize("line", CONFLICTS)
def test_conflicts_are_refused(run: Run, clusters: list[LocalSettings], tmp_path: Path, line: str) -> None:
    """The error names the options that exclude or need each other, and nothing starts."""
    (tmp_path / "file.yaml").write_text("")
    result = run(f"up {line.replace('FILE', str(tmp_path / 'file.yaml'))}")

    assert 2 == result.exit_code
    assert CONFLICTS[line] in " ".join(result.stderr.split())
    assert clusters == []

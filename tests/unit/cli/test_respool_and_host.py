"""``peloton respool`` and ``peloton host``: requests, printed texts and exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.respool import respool_pb2
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

CONFIG = "name: maps\nresources:\n  - {kind: cpu, reservation: 1, limit: 4, share: 1}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "pool.yaml"
    path.write_text(CONFIG)
    return path


def lookup_answer(pool_id: str) -> respool_pb2.LookupResponse:
    return respool_pb2.LookupResponse(id=peloton_pb2.ResourcePoolID(value=pool_id))


PARENTS = {"below the root": ("/maps", "/"), "below a pool": ("/eng/maps", "/eng"), "slash": ("/eng/maps/", "/eng")}


@pytest.mark.parametrize(("path", "parent"), PARENTS.values(), ids=PARENTS.keys())
def test_create_resolves_the_parent(run: Run, api: FakeApi, config: Path, path: str, parent: str) -> None:
    """The parent is the path without its last part."""
    api.answers["respools.LookupResourcePoolID"] = [lookup_answer("p")]
    api.answers["respools.CreateResourcePool"] = [
        respool_pb2.CreateResponse(result=peloton_pb2.ResourcePoolID(value="new"))
    ]
    result = run("respool", "create", path, config)
    assert (0, f"Resource Pool new created at {path.rstrip('/')}\n") == (result.exit_code, result.stdout)
    lookup, create = api.requests("respools.LookupResourcePoolID")[0], api.requests("respools.CreateResourcePool")[0]
    assert (parent, "p", "maps") == (lookup.path.value, create.config.parent.value, create.config.name)


def test_warnings_are_reported(run: Run, api: FakeApi, config: Path) -> None:
    """A warning is printed on standard error, and is part of the response with --json."""
    reported = []
    for flags in ([], ["--json"]):
        api.answers["respools.LookupResourcePoolID"] = [lookup_answer("p")]
        api.answers["respools.UpdateResourcePool"] = [respool_pb2.UpdateResponse(warnings=["12 is more than 8"])]
        result = run(*flags, "respool", "update", "/maps", config)
        reported.append((result.exit_code, result.stderr))
    assert [(0, "Warning: 12 is more than 8\n"), (0, "")] == reported
    assert {"warnings": ["12 is more than 8"]} == json.loads(result.stdout)


@pytest.mark.parametrize("line", ["", "name: maps\n", "name: /eng/maps\n"])
def test_a_file_may_repeat_the_name(run: Run, api: FakeApi, tmp_path: Path, line: str) -> None:
    """A file without a name, or with the name or the path of the pool, creates the pool at the path."""
    api.answers["respools.LookupResourcePoolID"] = [lookup_answer("p")]
    api.answers["respools.CreateResourcePool"] = [
        respool_pb2.CreateResponse(result=peloton_pb2.ResourcePoolID(value="new"))
    ]
    (tmp_path / "pool.yaml").write_text(f"{line}description: maps of the world\n")

    result = run("respool", "create", "/eng/maps", tmp_path / "pool.yaml")

    assert (0, "maps") == (result.exit_code, api.requests("respools.CreateResourcePool")[0].config.name)


WRONG_FILES = {
    "name": (CONFIG, "/eng/search", "resource pool name in path:search and config:maps don't match"),
    "root": (CONFIG, "/", "/ is the root pool: it is the whole cluster and has no configuration file"),
    "parent": (CONFIG + "parent: {value: p}\n", "/eng/maps", "parent should not be supplied in the config"),
}


@pytest.mark.parametrize(("text", "path", "expected"), WRONG_FILES.values(), ids=WRONG_FILES.keys())
@pytest.mark.parametrize("verb", ["create", "update"])
def test_files_that_contradict_the_path(
    run: Run, api: FakeApi, tmp_path: Path, verb: str, text: str, path: str, expected: str
) -> None:
    """The path alone determines the place of a pool."""
    api.answers["respools.LookupResourcePoolID"] = [lookup_answer("p")]
    (tmp_path / "pool.yaml").write_text(text)
    result = run("respool", verb, path, tmp_path / "pool.yaml")
    assert (1, f"{expected}\n") == (result.exit_code, result.stderr)


def test_create_below_an_unknown_parent(run: Run, api: FakeApi, config: Path) -> None:
    """The missing parent is named."""
    response = respool_pb2.LookupResponse()
    response.error.notFound.message = "resource pool not found"
    api.answers["respools.LookupResourcePoolID"] = [response]
    result = run("respool", "create", "/eng/maps", config)
    expected = "unable to find parent /eng: resource pool not found\n"
    assert (1, expected) == (result.exit_code, result.stderr)


REFUSALS = {
    "create, exists": (
        "create", "CreateResourcePool", respool_pb2.CreateResponse.Error(
            alreadyExists=respool_pb2.ResourcePoolAlreadyExists(message="taken")),
        "Resource Pool at /maps already exists: taken",
    ),
    "create, config": (
        "create", "CreateResourcePool", respool_pb2.CreateResponse.Error(
            invalidResourcePoolConfig=respool_pb2.InvalidResourcePoolConfig(message="no {kind}")),
        "Invalid resource pool config: no {kind}",
    ),
    "update, unknown": (
        "update", "UpdateResourcePool", respool_pb2.UpdateResponse.Error(
            notFound=respool_pb2.ResourcePoolNotFound(message="gone")),
        "Resource Pool p not found: gone",
    ),
    "update, config": (
        "update", "UpdateResourcePool", respool_pb2.UpdateResponse.Error(
            invalidResourcePoolConfig=respool_pb2.InvalidResourcePoolConfig(message="negative")),
        "Invalid resource pool config: negative",
    ),
    "delete, unknown": (
        "delete", "DeleteResourcePool", respool_pb2.DeleteResponse.Error(
            notFound=respool_pb2.ResourcePoolPathNotFound(message="gone")),
        "Resource Pool /maps not found: gone",
    ),
    "delete, busy": (
        "delete", "DeleteResourcePool", respool_pb2.DeleteResponse.Error(
            isBusy=respool_pb2.ResourcePoolIsBusy(message="2 cpus")),
        "Resource Pool /maps is busy: 2 cpus",
    ),
    "delete, parent": (
        "delete", "DeleteResourcePool", respool_pb2.DeleteResponse.Error(
            isNotLeaf=respool_pb2.ResourcePoolIsNotLeaf(message="has children")),
        "Resource Pool /maps is not a leaf: has children",
    ),
    "delete, storage": (
        "delete", "DeleteResourcePool", respool_pb2.DeleteResponse.Error(
            notDeleted=respool_pb2.ResourcePoolNotDeleted(message="disk full")),
        "Resource Pool /maps was not deleted: disk full",
    ),
    "get": (
        "get", "GetResourcePool", respool_pb2.GetResponse.Error(
            notFound=respool_pb2.ResourcePoolNotFound(message="gone")),
        "Resource Pool /maps not found: gone",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("verb", "method", "error", "text"), REFUSALS.values(), ids=REFUSALS.keys())
def test_errors_in_responses(
    run: Run, api: FakeApi, config: Path, verb: str, method: str, error: object, text: str
) -> None:
    """Each error inside a response is one line on standard error and exit code 1."""
    kind = getattr(respool_pb2, method.removesuffix("ResourcePool") + "Response")
    api.answers["respools.LookupResourcePoolID"] = [lookup_answer("p")]
    api.answers[f"respools.{method}"] = [kind(error=error)]
    result = run("respool", verb, "/maps", *([config] if verb in ("create", "update") else []))
    assert (1, "", f"{text}\n") == (result.exit_code, result.stdout, result.stderr)


@pytest.mark.parametrize(("flags", "reply", "forced"), [("", "", [False]), ("-f", "y\n", [True]), ("-f", "\n", []),
                                                        ("-f", "no\n", []), ("-f -y", "", [True])])  # fmt: skip
def test_update_asks_before_forcing(
    run: Run, api: FakeApi, config: Path, flags: str, reply: str, forced: list[bool]
) -> None:
    """--force asks for confirmation, and every answer but yes is a no."""
    api.answers["respools.LookupResourcePoolID"] = [lookup_answer("p")]
    api.answers["respools.UpdateResourcePool"] = [respool_pb2.UpdateResponse()]
    result = run("respool", "update", "/maps", config, *flags.split(), text=reply)
    sent = [request.Force for request in api.requests("respools.UpdateResourcePool")]
    assert (0 if forced else 1, forced) == (result.exit_code, sent)


def pools() -> respool_pb2.QueryResponse:
    response = respool_pb2.QueryResponse()
    for path in ("/eng/maps", "/", "/eng"):
        pool = response.resourcePools.add(path=respool_pb2.ResourcePoolPath(value=path))
        pool.config.resources.add(kind="cpu", reservation=1.5, limit=4, share=1)
        pool.usage.add(kind="cpu", allocation=0.25)
    return response


LIST = """\
Path       Kind        Reservation  Limit  Share  Allocation  Slack
/          cpu(cores)  1.5          4      1      0.25        0
/eng       cpu(cores)  1.5          4      1      0.25        0
/eng/maps  cpu(cores)  1.5          4      1      0.25        0
"""


def test_list_shows_the_tree_in_order(run: Run, api: FakeApi) -> None:
    """Parents precede their children, and each kind of resource has its own line."""
    api.answers["respools.Query"] = [pools()]
    assert LIST == run("respool list").stdout


DUMPS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "yaml": ("respool dump", yaml.safe_load),
    "yml": ("respool dump --format yml", yaml.safe_load),
    "json": ("respool dump --format json", json.loads),
    "-j": ("-j respool dump", json.loads),
}


@pytest.mark.parametrize("name", list(DUMPS))
def test_dump_is_a_list_that_programs_read(run: Run, api: FakeApi, name: str) -> None:
    """YAML and JSON hold the same list of pools."""
    line, load = DUMPS[name]
    api.answers["respools.Query"] = [pools()]
    assert ["/", "/eng", "/eng/maps"] == [pool["path"]["value"] for pool in load(run(line).stdout)]


def test_get_without_a_path_is_the_root(run: Run, api: FakeApi) -> None:
    """The root has a fixed id, without a lookup."""
    api.answers["respools.GetResourcePool"] = [respool_pb2.GetResponse(poolinfo=pools().resourcePools[1])]
    assert "path:\n  value: /\n" in run("respool get").stdout
    assert "root" == api.requests("respools.GetResourcePool")[0].id.value


def test_delete_says_so(run: Run, api: FakeApi) -> None:
    """The pool is named by its path, as it was given."""
    api.answers["respools.DeleteResourcePool"] = [respool_pb2.DeleteResponse()]
    assert "Resource Pool /eng/maps is deleted\n" == run("respool delete /eng/maps").stdout


HOSTS = """\
Hostname  IP        State     HostPool  CPUs free  MiB free   GPUs free  Slack CPUs  CPUs used  MiB used  Cluster  Kind
host-1    10.0.0.1  UP        default   1.5/4      512/2048   0/2        0.25/1.5    1.23       900       west     mesos
host-2    10.0.0.2  DRAINING            4/4        2048/2048  0/0        0/0
host-3    10.0.0.3  DOWN
"""


def test_host_query(run: Run, api: FakeApi) -> None:
    """Hosts are sorted by name with their known values; states are sent as numbers."""
    response = host_svc_pb2.QueryHostsResponse()
    response.host_infos.add(hostname="host-2", ip="10.0.0.2", state=host_pb2.HOST_STATE_DRAINING)
    response.host_infos[0].capacity.CopyFrom(host_pb2.HostAmounts(cpu=4, memory_mib=2048))
    response.host_infos[0].free.CopyFrom(response.host_infos[0].capacity)
    response.host_infos.add(hostname="host-3", ip="10.0.0.3", state=host_pb2.HOST_STATE_DOWN)
    response.host_infos.add(
        hostname="host-1", ip="10.0.0.1", state=host_pb2.HOST_STATE_UP, current_pool="default",
        capacity=host_pb2.HostAmounts(cpu=4, memory_mib=2048, gpu=2),
        free=host_pb2.HostAmounts(cpu=1.5, memory_mib=512),
        slack_cpu=1.5, slack_held_cpu=0.25, used=host_pb2.HostAmounts(cpu=1.234, memory_mib=900), cluster="west",
        labels=[{"key": "peloton/cluster-kind", "value": "mesos"}],
    )  # fmt: skip
    response.silent_clusters.append("east")
    api.answers["hosts.QueryHosts"] = [response, host_svc_pb2.QueryHostsResponse()]
    result = run("host query -s UP,HOST_STATE_DRAINING")
    assert (HOSTS, "Without the hosts of east, whose host managers do not answer\n") == (result.stdout, result.stderr)
    assert "No hosts found\n" == run("host query").stdout
    assert [[2, 3], []] == [list(request.host_states) for request in api.requests("hosts.QueryHosts")]


def host_pools() -> host_svc_pb2.ListHostPoolsResponse:
    response = host_svc_pb2.ListHostPoolsResponse()
    factors = host_pb2.HostPoolFactors(cpu=1.6, memory=1, disk=1)
    response.pools.add(name="batch", hosts=["h1", "h2"], serves=["batch", "shared"], factors=factors, minimum=1)
    response.pools.add(name="default", hosts=["h3"], serves=["gpu"], factors=host_pb2.HostPoolFactors())
    response.pools[1].factors.MergeFrom(host_pb2.HostPoolFactors(cpu=1, memory=1, disk=1))
    return response


def test_host_pool_list(run: Run, api: FakeApi) -> None:
    """The list has the number of hosts, the workloads and the factors of each host pool."""
    api.answers["hosts.ListHostPools"] = [host_pools()]
    assert run("host pool list").stdout == (
        "Host pool  Hosts  Minimum  Serves         CPU  Memory  Disk\n"
        "batch      2      1        batch, shared  1.6  1       1\n"
        "default    1      0        gpu            1    1       1\n"
    )


def test_host_pool_show(run: Run, api: FakeApi) -> None:
    """The output has only the pool's hosts, with the pools that they move to."""
    api.answers["hosts.ListHostPools"] = [host_pools(), host_pools()]
    response = host_svc_pb2.QueryHostsResponse()
    response.host_infos.add(hostname="h3", current_pool="default", desired_pool="default")
    response.host_infos.add(
        hostname="h1", state=host_pb2.HOST_STATE_UP, current_pool="batch", desired_pool="default", cluster="west",
        capacity=host_pb2.HostAmounts(cpu=16, memory_mib=100), free=host_pb2.HostAmounts(cpu=1.5, memory_mib=50),
    )  # fmt: skip
    api.answers["hosts.QueryHosts"] = [response]
    assert run("host pool show batch").stdout == (
        "Host pool batch serves batch, shared\n"
        "Overcommit factors: cpu 1.6, memory 1, disk 1\n"
        "Free and announced: 1.5 of 16 cpus, 50 of 100 MiB\n"
        "Hostname  State  Moves to  CPUs free  MiB free  Cluster\n"
        "h1        UP     default   1.5/16     50/100    west\n"
    )
    failed = run("host pool show other")
    assert (1, "host pool other not found\n") == (failed.exit_code, failed.stderr)


def test_host_pools_are_made_changed_and_deleted(run: Run, api: FakeApi) -> None:
    """The request contains only the given options; the texts are the original's where it had any."""
    api.answers["hosts.CreateHostPool"] = [host_svc_pb2.CreateHostPoolResponse()]
    changed = host_svc_pb2.UpdateHostPoolResponse(pool=host_pools().pools[0])
    api.answers["hosts.UpdateHostPool"] = [changed, changed]
    api.answers["hosts.DeleteHostPool"] = [host_svc_pb2.DeleteHostPoolResponse()]

    assert 'Created host pool "batch".\n' == run("host pool create batch --serves batch,shared --cpu 1.6").stdout
    (created,) = api.requests("hosts.CreateHostPool")
    assert (["batch", "shared"], host_pb2.HostPoolFactors(cpu=1.6)) == (list(created.serves), created.factors)

    assert (
        'Host pool "batch" serves batch, shared; factors: cpu 1.6, memory 1, disk 1. Minimum: 1 hosts.\n'
        == run("host pool update batch --memory 1").stdout
    )
    run("host", "pool", "update", "batch", "--serves", "")
    first, second = api.requests("hosts.UpdateHostPool")
    assert (False, True) == (first.sets_serves, second.sets_serves)
    assert 'Deleted host pool "batch".\n' == run("host pool delete batch").stdout


def test_hosts_are_moved_from_where_they_are(run: Run, api: FakeApi) -> None:
    """The source defaults to each host's current pool; an unknown host is refused before any move."""
    api.answers["hosts.ListHostPools"] = [host_pools(), host_pools()]
    api.answers["hosts.ChangeHostPool"] = [host_svc_pb2.ChangeHostPoolResponse() for _ in range(3)]

    assert (
        'Host "h1" is in host pool "default".\nHost "h3" is in host pool "default".\n'
        == run("host pool move h1 h3 --to default").stdout
    )
    run("host pool move h1 --to default --from batch")
    sent = [(one.hostname, one.sourcePool, one.destinationPool) for one in api.requests("hosts.ChangeHostPool")]
    assert [("h1", "batch", "default"), ("h3", "default", "default"), ("h1", "batch", "default")] == sent
    failed = run("host pool move h1 h9 --to default")
    assert (1, 'Pool for host "h9" not found\n') == (failed.exit_code, failed.stderr)

"""The table of permissions has a row for every method that is served, and every row finds its fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from peloton.access.caller import Role
from peloton.access.rules import Find, MethodRule, Needs
from peloton.access.table import RULES
from peloton.api.private import bulk_reads_pb2, processes_pb2, publisher_pb2
from peloton.api.service_names import SPELLINGS, list_methods
from services.access.methods import make_rules, names_in, request_class
from services.api.private_calls import REFUSED

OTHERS = [
    service
    for module in (bulk_reads_pb2, processes_pb2, publisher_pb2, health_pb2, reflection_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]


def test_each_method_has_a_row_and_each_row_a_method() -> None:
    """Each method has a row and each row a method."""
    services = [descriptor_pool.Default().FindServiceByName(names[0]) for names in SPELLINGS] + OTHERS
    served = {f"{service.full_name}/{method.name}" for service in services for method in service.methods}
    assert set() == served - set(RULES)
    assert set() == set(RULES) - served


def test_each_name_of_a_service_has_the_same_rules() -> None:
    """Each name of a service has the same rules."""
    rules = make_rules(REFUSED)
    assert set() == {path for path, _ in list_methods()} - {path.removeprefix("/") for path in rules}
    assert rules["/peloton.api.job.JobManager/Stop"] is rules["/peloton.api.v0.job.svc.JobManager/Stop"]


def test_methods_that_are_refused_by_name_need_a_reader() -> None:
    """Methods that are refused by name need a reader."""
    rules = make_rules(REFUSED)
    for service, methods in REFUSED.items():
        for method in methods:
            assert isinstance(rules[f"/{service}/{method}"], MethodRule)


def test_each_field_of_a_row_exists() -> None:
    """Each field of a row exists."""
    for path, rule in make_rules({}).items():
        if rule.sources:
            assert [] == list(names_in(rule, path, request_class(path)()))


def test_repeated_fields_lead_to_each_pool() -> None:
    """A watch names several jobs and pods."""
    path = "/peloton.api.v1alpha.watch.svc.WatchService/Watch"
    request = request_class(path)()
    request.stateless_job_filter.job_ids.add(value="a")  # type: ignore[attr-defined]
    request.pod_filter.pod_names.add(value="b-1")  # type: ignore[attr-defined]
    found = list(names_in(RULES[path.removeprefix("/")], path, request.SerializeToString()))
    assert [(Find.JOB, "a"), (Find.POD, "b-1")] == found


OF_POOLS = {"JobID", "PodName", "PodID", "UpdateID", "VolumeID", "ResourcePoolID", "ResourcePoolPath"}
"""Messages that name an object with a pool."""
TEXTS_OF_POOLS = {"job_id", "job_ids", "pod_name", "pool", "paths", "pool_path"}
CONFIGS = {"peloton.api.v0.task.TaskConfig", "peloton.api.v1alpha.pod.PodSpec"}
EXCEPT = {
    "pod_id.value": "checked to be a run of the named pod",
    "spec.names.value": "names pods of the named job",
    "respool_id.value": "the name of any pool is visible to readers; a creation refuses it",
    "path.value": "the name of any pool is visible to readers",
    "id.value": "the name of any pool is visible to readers",
    "config.parent.value": "plans tell of all pools, without the names of jobs",
    "spec.respool.value": "the answer has only what the caller may read",
}
"""Fields that need no source, with the reason."""
READ_OF_POOLS = {"GetResourcePool", "LookupResourcePoolID", "PoolPlan", "CreateResourcePool"}


def find_names(kind: Any, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the fields of a request that name an object with a pool."""
    for field in kind.fields:
        path, inner = (*above, field.name), field.message_type
        if inner is not None and inner.name in OF_POOLS:
            yield ".".join((*path, "value"))
        elif inner is not None and len(path) < 4 and inner.full_name not in CONFIGS:
            yield from find_names(inner, path)
        elif field.type == field.TYPE_STRING and field.name in TEXTS_OF_POOLS:
            yield ".".join(path)


@pytest.mark.parametrize("method", sorted(path for path, _ in list_methods()))
def test_each_name_of_an_object_leads_to_its_pool(method: str) -> None:
    """A request cannot name an object of another pool past the decision: each field is a source, or has a reason."""
    rule = make_rules({})[f"/{method}"]
    if rule.needs is not Needs.ROLE or rule.role is Role.ADMIN:
        return
    sources = {source.field for source in rule.sources}
    left = {name for name in find_names(request_class(f"/{method}").DESCRIPTOR) if name not in sources}
    reads_pools = method.rpartition("/")[2] in READ_OF_POOLS
    of_pools = {"respool_id.value", "path.value", "id.value", "config.parent.value"}

    assert set() == left - EXCEPT.keys()
    assert reads_pools or not left & of_pools

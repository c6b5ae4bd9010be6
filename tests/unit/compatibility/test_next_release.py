"""Processes of the last release and of the next one run together: on one schema, and over the private wire."""

from __future__ import annotations

import re
from dataclasses import replace

from alembic.script import ScriptDirectory

from services.storage import migrate, schema_version
from tests.unit.compatibility.release import Release, latest, present, schema_faults, wire_faults


def test_the_schema_only_expands() -> None:
    """The columns that the last release reads and writes exist, and it may omit new ones."""
    assert [] == schema_faults(latest(), present())


def test_the_private_wire_only_expands() -> None:
    """Messages, numbers and types of the last release are unchanged, and its methods are served."""
    assert [] == wire_faults(latest(), present())


def test_new_migrations_say_that_the_last_release_works_on_them() -> None:
    """Processes of the last release start on the newer schema, since an operator may roll one back."""
    release = latest()
    scripts = ScriptDirectory.from_config(migrate.configuration()).walk_revisions()
    newer = [script.revision for script in scripts if script.revision[:4] > release.schema[:4]]
    assert [] == [revision for revision in newer if not schema_version.works_on(revision, release.schema)]
    assert all(re.fullmatch(r"\d{4}_from_\d{4}", revision) for revision in newer)


def change_release(release: Release) -> Release:
    """Return the release with one fault of each kind."""
    job, pod = release.tables["job"], release.tables["pod"]
    columns = {**job["columns"], "state": "VARCHAR", "shelf": "INTEGER", "label": "TEXT optional"}
    del columns["goal"]
    tables = {**release.tables, "job": {**job, "columns": columns, "unique": ["one_name"]}, "pod": {**pod, "key": []}}
    del tables["lease"]
    message, method = "peloton.private.resmgr.EnqueueRequest", "peloton.private.resmgr.Admission.Evict"
    messages = {**release.messages, message: {"1": "type 5", "3": "type 9"}}
    methods = {name: types for name, types in release.methods.items() if name != method}
    return replace(release, tables=tables, messages=messages, methods=methods)


def test_a_contraction_is_noticed() -> None:
    """Removed or changed columns, tables, keys, numbers, types and methods are faults; additions are not."""
    release = latest()

    assert schema_faults(release, change_release(release)) == [
        "column job.goal was SMALLINT, is gone",
        "column job.shelf is new and neither nullable nor has a server's default",
        "column job.state was SMALLINT, is VARCHAR",
        "table job has a new unique index one_name",
        "table lease is gone",
        "table pod has another key",
    ]
    assert wire_faults(release, change_release(release)) == [
        "peloton.private.resmgr.Admission.Evict was peloton.private.resmgr.EvictRequest -> "
        "peloton.private.resmgr.EvictResponse, is gone",
        "peloton.private.resmgr.EnqueueRequest: number 1 was type 9, is type 5",
        "peloton.private.resmgr.EnqueueRequest: number 2 was type 13, is gone",
    ]

"""Triggers that keep the rows of ``job_label`` equal to the labels of jobs, and its first rows (ADR 83)."""

from __future__ import annotations

import sqlalchemy as sa

from services.storage.jobs.tables import LABEL_INDEXED_MAX

_ROWS = {
    "sqlite": """
SELECT substr((each.value -> 0) || ': ' || (each.value -> 1), 1, {most}) AS label, {job}.created_ns, {job}.job_id
FROM {source}json_each({job}.labels) AS each
""",
    # The type json keeps strings as they are written; jsonb refuses those that contain NUL.
    "postgresql": """
SELECT left((each.value -> 0)::text || ': ' || (each.value -> 1)::text, {most}) AS label, {job}.created_ns, {job}.job_id
FROM {source}json_array_elements({job}.labels::json) AS each
""",
}
_SQLITE_EVENTS = {"insert": "INSERT", "update": "UPDATE OF labels", "delete": "DELETE"}
_DELETE = """
DELETE FROM job_label
WHERE job_id = OLD.job_id AND created_ns = OLD.created_ns AND label IN (SELECT label FROM ({old}) AS was);
"""
_INSERT = "INSERT INTO job_label (label, created_ns, job_id) {new} {where} ON CONFLICT DO NOTHING;"
_FUNCTION = """
CREATE OR REPLACE FUNCTION keep_job_labels() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF TG_OP <> 'INSERT' THEN {delete} END IF;
IF TG_OP <> 'DELETE' THEN {insert} END IF;
RETURN NULL; END $$
"""


def create(conn: sa.Connection) -> None:
    """Create the triggers, which lock out writers of jobs until the commit, then the rows of all jobs."""
    drop(conn)
    rows = _ROWS[conn.dialect.name]
    delete = _DELETE.format(old=rows.format(job="OLD", source="", most=LABEL_INDEXED_MAX))
    insert = _INSERT.format(new=rows.format(job="NEW", source="", most=LABEL_INDEXED_MAX), where="WHERE true")
    if conn.dialect.name == "sqlite":
        bodies = {"insert": insert, "update": delete + insert, "delete": delete}
        for name, event in _SQLITE_EVENTS.items():
            conn.exec_driver_sql(f"CREATE TRIGGER job_labels_{name} AFTER {event} ON job BEGIN {bodies[name]} END")
    else:
        conn.exec_driver_sql(_FUNCTION.format(delete=delete, insert=insert))
        conn.exec_driver_sql(
            "CREATE TRIGGER job_labels AFTER INSERT OR UPDATE OF labels OR DELETE ON job "
            "FOR EACH ROW EXECUTE FUNCTION keep_job_labels()"
        )
    everyone = rows.format(job="job", source="job, ", most=LABEL_INDEXED_MAX)
    conn.exec_driver_sql(_INSERT.format(new=everyone, where="WHERE true"))


def drop(conn: sa.Connection) -> None:
    if conn.dialect.name == "sqlite":
        for name in _SQLITE_EVENTS:
            conn.exec_driver_sql(f"DROP TRIGGER IF EXISTS job_labels_{name}")
    else:
        conn.exec_driver_sql("DROP FUNCTION IF EXISTS keep_job_labels() CASCADE")

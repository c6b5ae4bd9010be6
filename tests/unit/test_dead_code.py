"""The product has no unused code: a change that removes the last caller removes the code as well."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from vulture import Vulture

from peloton.api.generate import REPOSITORY_ROOT, proto_files
from tests.unit.tidy import PACKAGES as OURS
from tests.unit.tidy import TIDY, python_files, tree_of

pytestmark = pytest.mark.xdist_group(TIDY)
PACKAGES = ("peloton", "workflows", "activities", "services", "cli", "deploy")
DECORATORS = ["@*.command", "@*.group", "@verb_commands", "@*.listens_for", "@on", "@*.validator"]
"""Decorators of functions that click, SQLAlchemy, Textual and Temporal call."""
GENERATED = ["*_pb2*", "*/mesos/pymesos/*"]
BY_OTHERS = {
    "click": "command_class format_commands",
    "gRPC": "intercept_unary_unary intercept_unary_stream intercept_stream_unary intercept_service",
    "pymesos": "_basic_credential _get_version reregistered resourceOffers offerRescinded statusUpdate slaveLost "
    "inverseOffers inverseOfferRescinded processHeartBeat executorLost frameworkMessage",
    "httptools": "on_message_begin on_url on_header on_body",
    "socketserver": "verify_request",
    "urllib.request": "redirect_request",
    "http.server": "do_GET do_POST log_message handle_error daemon_threads request_queue_size default_request_version",
    "io": "readinto",
    "textual": "BINDINGS ENABLE_COMMAND_PALETTE theme on_mount on_unmount on_key on_resize action_close_page "
    "action_filter action_help action_kind action_next_tab action_same_as action_scroll_above action_sort action_turn",
    "uvicorn": "capture_signals should_exit",
    "sqlite3": "isolation_level",
    "alembic": "down_revision branch_labels depends_on downgrade",
    "logging": "msg exc_text",
    "opentelemetry": "get_description",
    "temporalio": "intercept_activity intercept_client to_typed_value workflow_interceptor_class",
    "temporalio, options": "schedule_to_close_timeout heartbeat_timeout retry_policy",
    "pod machine, which names columns": "initial_health",
    "JSON of dataclasses": "hits misses prefetched",
    "tests": "settings_of shares_capacity",
    "enum": "_missing_ _value_",
    "mkdocs": "on_page_markdown",
    "programs of users, docs/client.md": "watch_pods watch_jobs",
    "joblib": "supports_retrieve_callback default_n_jobs effective_n_jobs retrieve_result_callback abort_everything "
    "ensure_ready",
    "concurrent.futures": "chunksize",
    "programs with pyspark": "peloton_session",
    "prefect": "PelotonWorker job_configuration job_configuration_variables grace_seconds",
    "ray": "PelotonNodeProvider non_terminated_nodes is_terminated node_tags set_node_tags external_ip "
    "create_node terminate_node",
    "dask": "PelotonCluster scale_down",
    "airflow": "PelotonOperator template_fields ui_color on_kill _process_workloads revoke_task "
    "try_adopt_task_instances",
    "public API": "PLACING PLACED LAUNCHING",
}
"""Names that are used where no name is written: by libraries, and by tests that read internals."""

BY_MODULES = {"SCENARIOS", "pytestmark", "pytest_plugins", "__all__"}
BY_MODULES |= {"revision", "down_revision", "branch_labels", "depends_on"}
"""Names that are read from modules which are not named."""

_RPC = re.compile(r"^\s*rpc (\w+)", re.MULTILINE)
_CONSTANT = re.compile(r"^(\w+(?:, \w+)*)(?:: [\w.]+(?:\[.*\])?)? = ", re.MULTILINE)
_NAME = re.compile(r"\w+")
_FIELD = re.compile(r"^\s+[\w.<>, ]+ (\w+) = \d+", re.MULTILINE)


def _wire_names() -> Iterator[str]:
    for path in proto_files(REPOSITORY_ROOT):
        text = (REPOSITORY_ROOT / path).read_text()
        yield from _RPC.findall(text)
        yield from _FIELD.findall(text)


def _is_table(path: Path, kind: str) -> bool:
    """SQLModel registers tables when their classes are made."""
    return path.name == "tables.py" and kind == "class"


def test_nothing_is_dead() -> None:
    """Every function, class, method, attribute and constant is used, or called by a library that is named here; and
    every name here occurs."""
    search = Vulture(ignore_decorators=DECORATORS)
    search.scavenge([str(REPOSITORY_ROOT / package) for package in PACKAGES], exclude=GENERATED)
    unused = [one for one in search.get_unused_code(min_confidence=60) if not _is_table(one.filename, one.typ)]
    by_others = {name for names in BY_OTHERS.values() for name in names.split()}
    wire = set(_wire_names())

    dead = [one for one in unused if one.name not in by_others | wire]
    assert [f"{one.filename.relative_to(REPOSITORY_ROOT)}:{one.first_lineno} {one.name}" for one in dead] == []
    assert by_others - {one.name for one in unused} == set()


def _list_assigned(tree: ast.Module) -> set[str]:
    """The names to which a module itself gives values."""
    statements = [one for one in tree.body if isinstance(one, ast.Assign | ast.AnnAssign)]
    return {node.id for one in statements for node in ast.walk(one) if isinstance(node, ast.Name)}


def test_every_constant_is_read() -> None:
    """Constants are read by their own module, or by one that names that module: a use of another constant of the same
    name does not count.
    """
    texts = {path: (REPOSITORY_ROOT / path).read_text() for path in python_files(*OURS, "tests")}
    words = {path: Counter(_NAME.findall(text)) for path, text in texts.items()}
    homes: dict[str, list[Path]] = {}
    for path, names in words.items():
        for name in names:
            homes.setdefault(name, []).append(path)

    def is_read(name: str, path: Path) -> bool:
        others = (other for other in homes[name] if other != path)
        return words[path][name] > 1 or any(path.stem in texts[other] for other in others)

    constants = (
        (path, name) for path, text in texts.items() for row in _CONSTANT.findall(text) for name in _NAME.findall(row)
    )
    unread = [(path, name) for path, name in constants if name not in BY_MODULES and not is_read(name, path)]
    # Not the content of a text of several lines, such as a file in another language.
    assert [f"{path} {name}" for path, name in unread if name in _list_assigned(tree_of(path))] == []

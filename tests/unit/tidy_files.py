"""The rule that files of users are read with a bound: ``peloton/files.py`` alone opens files to read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.tidy import find

HOME = Path("peloton/files.py")
NOT_IN = Path("services/lab")
"""Emulated clusters read what they wrote, and files of their users by ``services/lab/shared/bounded_file.py``."""
UNBOUNDED = {"read_text", "read_bytes", "open_file"}
OF_MODULES = {("json", "load"), ("tomllib", "load"), ("click", "File"), ("pickle", "load")}
OWN_CODE = "a file of the installed package"
ALLOWED = {
    ("peloton/api/comments.py", "read_text"): OWN_CODE,
    ("peloton/api/generate.py", "read_bytes"): OWN_CODE,
    ("peloton/api/generate.py", "read_text"): OWN_CODE,
    ("peloton/integrations/dask.py", "read_text"): OWN_CODE,
    ("peloton/integrations/futures.py", "read_text"): OWN_CODE,
    ("services/storage/schema_version.py", "read_text"): OWN_CODE,
    ("services/worker/build.py", "read_bytes"): OWN_CODE,
    ("cli/job/templates.py", "read_text"): OWN_CODE,
    ("cli/reference.py", "read_text"): OWN_CODE,
    ("cli/version.py", "read_text"): OWN_CODE,
    ("peloton/api/yaml_pieces.py", "open"): "streamed: a regular file, since its size was measured before",
    ("services/backup/manifest.py", "open"): "a file of a backup, block by block",
    ("services/backup/schedules.py", "open"): "lines of a backup, each with a bound",
    ("services/retention/archive.py", "open"): "an object of the archive, block by block",
    ("services/retention/archive.py", "read_bytes"): "its size was measured before",
    ("services/retention/stores.py", "open"): "an object of the archive, block by block",
    ("peloton/integrations/launch_agent.py", "read_bytes"): "the key that a member of the gang has written",
    ("peloton/integrations/spark_submit.py", "json.load"): "an answer of role web",
    ("peloton/api/mesos_access.py", "load_cert_chain"): "both files were read before",
    ("peloton/api/tls_files.py", "load_cert_chain"): "both files were read before",
    ("services/hostmgr/kubernetes/apiserver/access.py", "load_cert_chain"): "a temporary file of its own",
    ("services/tls/secured.py", "load_cert_chain"): "a temporary file of its own",
}


def find_unbounded_reads(path: Path, tree: ast.Module) -> Iterator[str]:
    if path == HOME or path.is_relative_to(NOT_IN):
        return
    for node in find(tree, ast.Call):
        if (name := name_of_read(node)) and (path.as_posix(), name) not in ALLOWED:
            yield f"{path}:{node.lineno}: {name} reads without a bound: use peloton/files.py"


def name_of_read(call: ast.Call) -> str:
    """Return the name of a call that reads a file without a bound, or ""."""
    match call.func:
        case ast.Name(id="open") if mode_of(call.args[1:], call) == "r":
            return "open"
        case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in OF_MODULES:
            return f"{module}.{name}"
        case ast.Attribute(attr=name) if name in UNBOUNDED or name == "load_cert_chain":
            return name
        case ast.Attribute(attr="open") if is_of_file(call) and mode_of(call.args, call) == "r":
            return "open"
        case ast.Attribute(attr="load_verify_locations") if {"cadata"} != {one.arg for one in call.keywords}:
            return "load_verify_locations"
    return "cafile" if any(one.arg == "cafile" for one in call.keywords) else ""


def is_of_file(call: ast.Call) -> bool:
    """Return whether a method of the name ``open`` has arguments like those of a path."""
    return bool(call.args) or any(one.arg in ("mode", "encoding", "errors") for one in call.keywords)


def mode_of(args: list[ast.expr], call: ast.Call) -> str:
    """Return "r" if the call opens to read, by its mode among ``args`` or by name; the mode of ``open`` is that by
    default."""
    named = [one.value for one in call.keywords if one.arg == "mode"]
    for value in [*args[:1], *named]:
        text = value.value if isinstance(value, ast.Constant) else None
        is_mode = isinstance(text, str) and set(text) <= set("rwxabt+")
        return "r" if is_mode and "r" in str(text) else ""
    return "r"

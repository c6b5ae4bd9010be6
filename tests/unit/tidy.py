"""The rules of the house that a machine can check: each yields its findings as ``file:line: rule``."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.unit.import_table import MAY

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("peloton", "workflows", "activities", "services", "cli")
TIDY = "tidy"
"""The group of tests that parse all files: in one worker they parse them once."""
SKIPPED_FOLDERS = {".git", ".venv", "__pycache__", ".hypothesis", "node_modules"}
SKIPPED_AT_THE_TOP = {"data", "dist", "build"}
PYMESOS = Path("services/hostmgr/mesos/pymesos")
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
POSITIONAL_MAX = 6
VARIADIC = {"Table", "_rule", "select", "together"}
"""Functions that take any number of arguments of one kind."""

# The inside and the workflows have no clock and no chance of their own: their callers pass both in.
BANNED_CALLS = re.compile(
    r"^(datetime\.(datetime|date)\.(now|utcnow|today)|time\.(?!struct_time)\w+|random\.\w+|secrets\.\w+|uuid\.uuid[14]"
    r"|os\.(urandom|environ|getenv|environb)|threading\.\w+|logging\.\w+|asyncio\.(sleep|create_task|wait))$"
)
BANNED_CALLS_IN = ("peloton", "workflows")
BANNED_CALLS_NOT_IN = Path("peloton/integrations")
"""Programs of users, which have threads and clocks."""
ALLOWED_CALLS = {
    (
        "workflows/calls.py",
        "asyncio.create_task",
    ): "on the workflow's loop, which runs tasks in the order of asking",
    ("peloton/api/agent_sessions.py", "threading.Lock"): "input and sizes of a terminal are written record by record",
    ("peloton/client/blocking.py", "time.sleep"): "of programs that call Peloton; tests pass their own",
    ("peloton/client/asynchronous.py", "asyncio.sleep"): "of programs that call Peloton; tests pass their own",
    ("peloton/files.py", "threading.Lock"): "calls of all threads read the same files",
    ("peloton/files.py", "time.monotonic"): "the limit of a pipe, and files that are examined once a second",
    ("peloton/client/repeats.py", "time.monotonic"): "of programs that call Peloton; tests pass their own",
    ("peloton/client/repeats.py", "random.random"): "of programs that call Peloton; tests pass their own",
    ("peloton/client/credentials.py", "os.environ"): "of programs that call Peloton; tests pass their own",
    ("peloton/client/credentials.py", "time.time"): "tokens expire; tests pass their own",
    ("peloton/client/sign_in.py", "time.time"): "tokens expire",
    ("peloton/client/sign_in.py", "time.monotonic"): "the limits of a sign-in and of a renewal",
    ("peloton/client/sign_in.py", "time.sleep"): "polls of the issuer, and of the lock of a token",
    ("peloton/client/sign_in.py", "secrets.compare_digest"): "the answer of the issuer by way of the browser",
    ("peloton/issuer.py", "secrets.token_urlsafe"): "states and verifiers that can be used once",
    ("peloton/client/token_files.py", "os.environ"): "of programs that call Peloton; tests pass their own",
    ("peloton/client/tls.py", "os.environ"): "of programs that call Peloton; tests pass their own",
    ("peloton/client/gang.py", "os.environ"): "a program in a pod, with the variables of one",
    ("peloton/client/gang.py", "time.sleep"): "a program in a pod, which waits while the API is away",
    ("peloton/integrations/spark_submit.py", "os.environ"): "where Spark is and which Python it runs, as Spark says it",
    ("peloton/model/ids.py", "uuid.uuid4"): "a new job id; no decision depends on it, and no workflow calls it",
}
# The host manager is independent of cluster kinds: words of one are in its driver only.
CLUSTER_WORDS = re.compile(r"offer|framework|mesos|agent|slave|kube", re.IGNORECASE)
CLUSTER_WORDS_ALLOWED = {
    "agent_id": "a stored column, and fields of messages: the driver's own id of a host",
    "mesos_master_hostname": "a field of a message",
    "mesos_master_port": "a field of a message",
}
CLUSTER_DRIVERS = ("services.hostmgr.kubernetes", "services.hostmgr.mesos")
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
# Written in two pieces, so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.})/])/(?:" + "work|" + "root" + r")/\w|/home/\w+/(?!\.)|/" + "Users/")
TEXT_ENDINGS = {
    ".py", ".md", ".toml", ".yml", ".yaml", ".txt", ".proto", ".sh", ".ini", ".cfg", ".json", ".mako", ".svg",
}  # fmt: skip
PAGE_ENDINGS = {".css", ".html", ".ts", ".tsx"}
MERGE_MARK = re.compile(r"(<{7}|>{7}) ")
TEXT_NAMES = {"Makefile", "Dockerfile", ".gitignore", ".dockerignore", "run"}


def name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_generated(path: Path) -> bool:
    return path.stem.endswith(("_pb2", "_pb2_grpc")) or path.parent == PYMESOS


def is_migration(path: Path) -> bool:
    """Return whether a file is a migration: frozen once it is released, it may be as long as the tables it makes."""
    return "migrations" in path.parts


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """Relative paths of all files below these folders of the repository, or of all of it."""
    found = []
    for folder in folders or ("",):
        for top, below, names in os.walk(ROOT / folder):
            at = Path(top).relative_to(ROOT)
            below[:] = [name for name in below if not _is_skipped(at / name)]
            found += [at / name for name in names if not _is_skipped(at / name)]
    return tuple(sorted(found))


def _is_skipped(path: Path) -> bool:
    hidden = path.name in SKIPPED_FOLDERS or path.name.endswith((".egg-info", "_cache"))
    return hidden or path.parts[0] in SKIPPED_AT_THE_TOP


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


@cache
def walk(tree: ast.AST) -> Mapping[type[ast.AST], list[ast.AST]]:
    """All nodes of a tree by their class, but for the contexts of names, for the rules that read all files. A third of
    the time of ``ast.walk``."""
    nodes = [tree]
    for node in nodes:  # which grows meanwhile
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                nodes += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                nodes.append(value)
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for node in nodes:
        found.setdefault(type(node), []).append(node)
    return found


def find(tree: ast.AST, *kinds: type[ast.AST]) -> Iterator[Any]:
    """Yield the nodes of these classes, class by class."""
    nodes = walk(tree)
    for kind in kinds:
        yield from nodes.get(kind, ())


def python_files(*folders: str) -> list[Path]:
    return [path for path in files(*folders) if path.suffix == ".py" and not is_generated(path)]


# Imports.


def imports(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, wherever in the file; a submodule by its own name."""
    for node in find(tree, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            source = node.module or ""
            if node.level:
                source = ".".join([*module.split(".")[: -node.level], *filter(None, [source])])
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield node.lineno, whole if is_module(whole) else source


SDK_INTERNALS = re.compile(r"^temporalio\.(bridge\b|(\w+\.)*_)|^(activity|workflow)\._[A-Z]")
SDK_INTERNALS_IN = Path("tests/workflow/sdk.py")
"""The one file that may use internals of Temporal's SDK; it names the version that has them."""


def sdk_faults(path: Path, tree: ast.AST) -> Iterator[str]:
    """Yield imports and attributes that are internals of Temporal's SDK."""
    for node in find(tree, ast.Import, ast.ImportFrom, ast.Attribute):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node.value, ast.Name) and node.value.id in ("temporalio", "activity", "workflow"):
            names = [f"{node.value.id}.{node.attr}"]
        for name in names:
            if SDK_INTERNALS.search(name):
                yield f"{path}:{node.lineno}: {name} is internal to Temporal's SDK; only {SDK_INTERNALS_IN} may use it"


@cache
def is_module(name: str) -> bool:
    path = ROOT / Path(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def owner_of(module: str) -> str:
    """The entry of the table that decides for a module."""
    fitting = [prefix for prefix in MAY if is_below(module, prefix)]
    assert fitting, f"{module} is in no row of the import table"
    return max(fitting, key=len)


def is_below(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def import_faults(path: Path, tree: ast.AST) -> Iterator[str]:
    module = name_of(path)
    if path.name == "__init__.py":
        return  # it is empty, which a rule of its own checks
    own = owner_of(module)
    may = MAY[own]
    for line, name in dict.fromkeys(imports(tree, module)):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            continue
        if top not in PACKAGES:
            allowed = top in may.others
        else:
            is_its_own = is_below(name, own) and owner_of(name) not in {*CLUSTER_DRIVERS} - {own}
            allowed = is_its_own or any(is_below(name, prefix) for prefix in may.ours)
        if not allowed:
            yield f"{path}:{line}: {own} may not import {name}"


def reachable(start: list[str]) -> dict[str, str]:
    """Every name that importing these modules imports, with one module that imports it."""
    found = dict.fromkeys(start, "")
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        path = Path(*module.split(".")).with_suffix(".py")
        if not (ROOT / path).is_file():
            continue
        for _, name in imports(tree_of(path), module):
            if name not in found:
                found[name] = module
                waiting.append(name)
    return found


def import_graph(*folders: str) -> dict[str, set[str]]:
    """The imports of each module of these folders, for type checkers alone too."""
    paths = {name_of(path): path for path in python_files(*folders)}
    return {
        module: {name for _, name in imports(tree_of(path), module) if name in paths} for module, path in paths.items()
    }


def import_circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The modules that lead back to themselves, as sets that lead to each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        found: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            module = waiting.pop()
            if module not in found:
                found.add(module)
                waiting += graph[module]
        reached[start] = found
    circles = {frozenset(other for other in found if module in reached[other]) for module, found in reached.items()}
    return sorted(sorted(circle) for circle in circles if circle)


# Sizes, names, calls, texts.


def size_faults(path: Path, tree: ast.Module, line_count: int) -> Iterator[str]:
    if line_count > FILE_LINES_MAX:
        yield f"{path}:{line_count}: a file has at most {FILE_LINES_MAX} lines"
    for node in find(tree, ast.FunctionDef, ast.AsyncFunctionDef):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def call_faults(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in find(tree, ast.Call):
        if len(node.args) > POSITIONAL_MAX:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name not in VARIADIC:
                count = f"{len(node.args)} arguments by position"
                yield f"{path}:{node.lineno}: {count} in a call of {name}, limit {POSITIONAL_MAX}: name them"


def list_raised(tree: ast.Module) -> set[str]:
    """Names of the classes that it raises."""
    calls = [node.exc for node in find(tree, ast.Raise)]
    return {call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}


def name_faults(path: Path) -> Iterator[str]:
    for part in path.with_suffix("").parts:
        if part in BANNED_NAMES:
            yield f"{path}:1: nothing is called {part!r}: name what it is about"


def cluster_word_faults(path: Path, tree: ast.Module) -> Iterator[str]:
    if owner_of(name_of(path)) != "services.hostmgr":
        return
    for line, name in names(tree):
        if CLUSTER_WORDS.search(name) and name not in CLUSTER_WORDS_ALLOWED:
            yield f"{path}:{line}: {name!r} is a word of one cluster, and belongs into its driver"


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """All names in a module except its imports."""
    for node in find(
        tree, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Name, ast.Attribute, ast.arg, ast.keyword
    ):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name


def find_banned_calls(path: Path, tree: ast.Module) -> Iterator[str]:
    if path.parts[0] not in BANNED_CALLS_IN or path.is_relative_to(BANNED_CALLS_NOT_IN):
        return
    aliases: dict[str, str] = {}
    for node in find(tree, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif node.module:
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in find(tree, ast.Name, ast.Attribute):
        name = dotted(node, aliases)
        if name and BANNED_CALLS.match(name) and (path.as_posix(), name) not in ALLOWED_CALLS:
            yield f"{path}:{node.lineno}: {name} in {path.parts[0]}/: time and chance are passed in"


def dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    """``a.b.c`` of an expression, its first name resolved through the imports; empty for anything else."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def path_faults(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := MACHINE_PATH.search(line):
            yield f"{path}:{number}: {found.group()!r} is a path of one machine"


def merge_faults(path: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if MERGE_MARK.match(line):
            yield f"{path}:{number}: a merge has left its mark"


def tests_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in find(tree, ast.FunctionDef, ast.AsyncFunctionDef):
        if node.name.startswith("test_"):
            yield node


def docstring_faults(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in tests_of(tree):
        if not ast.get_docstring(node):
            yield f"{path}:{node.lineno}: {node.name} does not say which fact it shows"

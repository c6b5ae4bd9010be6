"""The house rules hold: imports, sizes, names, clocks, paths. A broken one is named as ``file:line: rule``."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.errors import PelotonError
from peloton.lifecycle.pod_machine import TABLE, Actor, Event
from tests.unit.import_table import MAY
from tests.unit.tidy import (
    ALLOWED_CALLS,
    BANNED_CALLS_IN,
    CLUSTER_WORDS_ALLOWED,
    FUNCTION_LINES_MAX,
    PACKAGES,
    PAGE_ENDINGS,
    ROOT,
    SDK_INTERNALS_IN,
    TEXT_ENDINGS,
    TEXT_NAMES,
    TIDY,
    call_faults,
    cluster_word_faults,
    docstring_faults,
    files,
    find,
    find_banned_calls,
    import_circles,
    import_faults,
    import_graph,
    is_below,
    is_migration,
    list_raised,
    merge_faults,
    name_faults,
    name_of,
    names,
    path_faults,
    python_files,
    reachable,
    sdk_faults,
    size_faults,
    tree_of,
    walk,
)
from tests.unit.tidy_files import ALLOWED, find_unbounded_reads, name_of_read
from tests.unit.tidy_pods import POD_ACTORS, POD_WRITES, events_caused, pod_write_faults
from tests.unit.tidy_words import (
    BUDGETS,
    GENERATED_PAGES,
    PROSE_BUDGETS,
    SHOWN_MAX,
    SPARE,
    prose_faults,
    word_faults,
)
from tests.workflow.sdk import WRITTEN_FOR, OtherRelease, check_release

pytestmark = pytest.mark.xdist_group(TIDY)


@pytest.fixture(scope="module", autouse=True)
def forget_trees() -> Iterator[None]:
    """Drop the trees, and collect no garbage meanwhile: the collector would traverse all of them, here and in every
    later test.
    """
    gc.disable()
    yield
    tree_of.cache_clear()
    walk.cache_clear()
    gc.enable()


def none(faults: list[str]) -> None:
    assert not faults, "\n" + "\n".join(faults)


def test_imports_follow_the_table() -> None:
    """Every import in the project's packages is allowed by the import table."""
    none([fault for path in python_files(*PACKAGES) for fault in import_faults(path, tree_of(path))])


def test_the_import_table_has_no_dead_rows() -> None:
    """Every row of the import table is about modules that exist."""
    modules = [name_of(path) for path in python_files(*PACKAGES) if path.name != "__init__.py"]
    assert [row for row in MAY if not any(is_below(module, row) for module in modules)] == []


def test_emulated_clusters_stand_alone() -> None:
    """Emulated clusters import no other module of the project than their shared part and a listener that imports none,
    and do not name Peloton.
    """
    shared, listener = "services.lab.shared", "services.servers.bounded_listener"
    assert MAY[listener].ours == ()
    for cluster in (shared, "services.lab.mesos"):
        rows = [may for owner, may in MAY.items() if is_below(owner, cluster)]
        own = [name for may in rows for name in may.ours if not is_below(name, cluster)]
        assert [name for name in own if name != listener and not is_below(name, shared)] == []
    folders = ("services/lab/shared", "services/lab/mesos")
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in python_files(*folders)}
    none([f"{path}:1: names Peloton" for path, text in texts.items() if "peloton" in text.lower()])


def test_no_module_imports_itself_by_way_of_others() -> None:
    """No circle of imports exists, even for type checkers alone."""
    assert import_circles(import_graph(*PACKAGES)) == []


@pytest.mark.parametrize("package", ["numpy", "sqlalchemy", "sqlmodel", "grpc", "google", "pymesos", "services"])
def test_a_workflow_cannot_reach(package: str) -> None:
    """No import of a workflow leads to a package that its sandbox must not load."""
    found = reachable([name_of(path) for path in python_files("workflows")])
    none(
        [
            f"{module.replace('.', '/')}.py:1: workflows reach {name}"
            for name, module in found.items()
            if is_below(name, package)
        ]
    )


def test_internals_of_the_sdk_are_used_in_one_file() -> None:
    """The file names the release of the SDK for which it was written."""
    found = {path: list(sdk_faults(path, tree_of(path))) for path in python_files(*PACKAGES, "tests")}

    assert found.pop(SDK_INTERNALS_IN)
    none([fault for faults in found.values() for fault in faults])


@pytest.mark.parametrize(
    "source",
    [
        "from temporalio.worker._workflow_instance import WorkflowInstanceDetails",
        "from temporalio.bridge.proto.workflow_commands import WorkflowCommand",
        "import temporalio.bridge.client",
        "name = activity._Definition.must_from_callable(act).name",
    ],
)
def test_an_internal_of_the_sdk_is_noticed(source: str) -> None:
    """Public names of the SDK are not reported."""
    path = Path("tests/workflow/virtual.py")

    assert 1 == len(list(sdk_faults(path, ast.parse(source))))
    assert [] == list(sdk_faults(path, ast.parse("from temporalio.worker import WorkflowInstanceDetails")))


def test_another_release_of_the_sdk_is_refused_in_a_sentence() -> None:
    """The sentence names both versions and what to do."""
    check_release(f"{WRITTEN_FOR}.9")
    with pytest.raises(
        OtherRelease, match=rf"of temporalio {WRITTEN_FOR}, and 1\.99\.0 is installed: compare .* adapt"
    ):
        check_release("1.99.0")


def test_pods_are_written_in_one_place() -> None:
    """Exactly one module builds statements that write pods: changes of a pod are rows of the pod machine's table."""
    none([fault for path in python_files(*PACKAGES) for fault in pod_write_faults(path, tree_of(path))])


def test_events_of_pods_are_caused_by_those_who_may() -> None:
    """Each event of the pod machine is caused by some module, and only in the name of an actor that its rule allows."""
    caused: dict[Event, set[Actor]] = {}
    faults: list[str] = []
    for path in python_files(*PACKAGES):
        if path.as_posix() in (POD_WRITES, "peloton/lifecycle/pod_machine.py"):
            continue
        for line, event in events_caused(path, tree_of(path)):
            actors = POD_ACTORS.get(path.as_posix(), set()) & TABLE[event].by
            caused[event] = caused.get(event, set()) | actors
            if not actors:
                faults.append(f"{path}:{line}: {event.name} is not caused from here")

    none(faults)
    assert {event: set(rule.by) for event, rule in TABLE.items()} == caused


@pytest.mark.parametrize(
    "line",
    [
        "conn.execute(sa.update(POD).values(state=1))",
        "POD.insert().values(rows)",
        "sqlite.insert(POD)",
        "self.db.upsert(POD)",
        "for table in (JOB, POD): sa.update(table)",
        "conn.execute(sa.text('UPDATE pod SET state = 4'))",
        "conn.exec_driver_sql('insert into pod values (1)')",
    ],
)
def test_a_pod_written_elsewhere_is_noticed(line: str) -> None:
    """A statement that writes pods is found in whatever way it is built, and others are not."""
    here = Path("services/storage/elsewhere.py")
    harmless = "sa.update(JOB); JOB.insert(); insert(POD_EVENT); values.update(more); 'update pod_event'; 'a pod'"

    assert [f"{here}:1"] == [fault.rpartition(": pods")[0] for fault in pod_write_faults(here, ast.parse(line))]
    assert [] == list(pod_write_faults(here, ast.parse(harmless)))


def test_files_and_functions_are_short() -> None:
    """No hand-written file or function is longer than its limit."""
    faults: list[str] = []
    for path in python_files():
        if not is_migration(path):
            faults += size_faults(path, tree_of(path), len((ROOT / path).read_text(encoding="utf-8").splitlines()))
    none(faults)


CLIENT = Path("peloton/client")


def test_long_calls_name_their_arguments() -> None:
    """No call of the product has so many arguments by position that two could be exchanged unseen."""
    none([fault for path in python_files(*PACKAGES) for fault in call_faults(path, tree_of(path))])


def test_package_files_are_empty() -> None:
    """Every ``__init__.py`` of the project is empty, so that importing a package loads no module. Programs of users
    import the client from its package."""
    found = [path for path in files(*PACKAGES, "tests") if path.name == "__init__.py" and path.parent != CLIENT]
    none([f"{path}:1: __init__.py is empty" for path in found if (ROOT / path).stat().st_size])


def test_no_module_is_called_after_nothing() -> None:
    """No module or folder has a name without meaning, such as a collection of helpers."""
    none([fault for path in python_files() for fault in name_faults(path)])


def test_the_inside_has_no_clock() -> None:
    """Time, chance and environment reach the inside and the workflows as arguments only."""
    none([fault for path in python_files(*BANNED_CALLS_IN) for fault in find_banned_calls(path, tree_of(path))])


def test_files_are_read_with_a_bound() -> None:
    """A file of a user may be a device, a pipe or a folder: one module reads them, and each exception is used."""
    paths = python_files(*PACKAGES)
    none([fault for path in paths for fault in find_unbounded_reads(path, tree_of(path))])
    calls = [(path, node) for path in paths for node in find(tree_of(path), ast.Call)]
    assert set(ALLOWED) <= {(path.as_posix(), name_of_read(call)) for path, call in calls}


def test_the_rule_about_files_notices() -> None:
    """Each way to read a whole file is found, and none to write one."""
    reads = "open(p)", "open(p, 'rb')", "p.open('r')", "p.read_text()", "json.load(f)", "create(cafile=p)"
    writes = "open(p, 'w')", "p.open('ab')", "store.open(name)", "load_verify_locations(cadata=x)", "json.loads(x)"
    path = Path("cli/x.py")

    assert 6 == sum(len(list(find_unbounded_reads(path, ast.parse(text)))) for text in reads)
    assert [] == [fault for text in writes for fault in find_unbounded_reads(path, ast.parse(text))]


def test_the_host_manager_knows_no_cluster() -> None:
    """Names of Mesos, and of any other cluster, are in its driver only; each exception is used."""
    paths = python_files("services/hostmgr")
    none([fault for path in paths for fault in cluster_word_faults(path, tree_of(path))])
    used = {name for path in paths for _, name in names(tree_of(path))}
    assert set(CLUSTER_WORDS_ALLOWED) <= used


def test_the_word_rule_notices() -> None:
    """A word of Mesos is found in any name, but not in its driver."""
    source = ast.parse("class OfferBook:\n  def f(self, agent_id): self.known_agents = agent_id")
    core, driver = Path("services/hostmgr/x.py"), Path("services/hostmgr/mesos/x.py")

    assert ["'OfferBook'", "'known_agents'"] == [f.split()[1] for f in cluster_word_faults(core, source)]
    assert [] == list(cluster_word_faults(driver, source))


def test_exceptions_to_the_clock_rule_are_used() -> None:
    """Every exception to the rule about time and chance still has its reason in the code."""
    unused = [key for key in ALLOWED_CALLS if key[1] not in (ROOT / key[0]).read_text(encoding="utf-8")]
    assert unused == []


def test_no_file_names_a_path_of_one_machine() -> None:
    """No text file of the repository names a folder of one user: a clone works at any path."""
    texts = [path for path in files() if path.suffix in TEXT_ENDINGS or path.name in TEXT_NAMES]
    none([fault for path in texts for fault in path_faults(path, (ROOT / path).read_text(encoding="utf-8"))])


def test_no_file_has_marks_of_a_merge() -> None:
    """Marks of a merge are in no file, web pages included, which no interpreter would refuse."""
    endings = TEXT_ENDINGS | PAGE_ENDINGS
    texts = [path for path in files() if path.suffix in endings or path.name in TEXT_NAMES]
    none([fault for path in texts for fault in merge_faults(path, (ROOT / path).read_text(encoding="utf-8"))])


def test_every_test_says_what_it_shows() -> None:
    """Each test function has a docstring: the fact that it shows."""
    none([fault for path in python_files("tests") for fault in docstring_faults(path, tree_of(path))])


def test_no_refusal_is_without_a_code() -> None:
    """No error is raised without a code, or as INTERNAL, which is the code of a bug."""
    faults = {PelotonError.__name__, "Internal"}

    assert [path for path in files(*PACKAGES) if path.suffix == ".py" and faults & list_raised(tree_of(path))] == []


# The rules themselves.


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("peloton/lifecycle/x.py", "import numpy", "peloton.lifecycle may not import numpy"),
        (
            "peloton/model/x.py",
            "from peloton.lifecycle import goal",
            "peloton.model may not import peloton.lifecycle.goal",
        ),
        (
            "workflows/x.py",
            "def f():\n  import services.temporal.task_queues",
            "workflows may not import services.temporal.task_queues",
        ),
        ("services/api/x.py", "import sqlalchemy.orm", "services.api may not import sqlalchemy.orm"),
        ("services/hostmgr/x.py", "import pymesos", "services.hostmgr may not import pymesos"),
        (
            "services/hostmgr/x.py",
            "from services.hostmgr.mesos import codec",
            "services.hostmgr may not import services.hostmgr.mesos.codec",
        ),
        (
            "services/hostmgr/mesos/x.py",
            "from services.hostmgr import hosts",
            "services.hostmgr.mesos may not import services.hostmgr.hosts",
        ),
        (
            "services/api/x.py",
            "from services.hostmgr import hosts",
            "services.api may not import services.hostmgr.hosts",
        ),
        ("cli/job/group.py", "from services import runtime", "cli may not import services.runtime"),
        ("peloton/scheduling/x.py", "from ..api import merge", "peloton.scheduling may not import peloton.api.merge"),
    ],
)
def test_the_import_rule_notices(path: str, source: str, fault: str) -> None:
    """Imports against the table are found, inside functions and by relative name too."""
    found = [text.partition(": ")[2] for text in import_faults(Path(path), ast.parse(source))]
    assert found == [fault]


@pytest.mark.parametrize(
    ("graph", "circles"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a", "c": "a"}, [["a", "b"]]),
        ({"a": "b", "b": "c", "c": "a", "d": "e", "e": "d"}, [["a", "b", "c"], ["d", "e"]]),
    ],
)
def test_the_circle_rule_notices(graph: dict[str, str], circles: list[list[str]]) -> None:
    """Modules that lead back to themselves are found together, modules that only lead there are not."""
    assert import_circles(graph) == circles


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import time\ntime.time()", 1),
        ("from time import time_ns as now\nclock = now", 1),
        ("import datetime as d\nd.datetime.now()", 1),
        ("from datetime import datetime\ndatetime.now(tz=None)", 1),
        ("import random\nrandom.choice([1])", 1),
        ("from datetime import timedelta\ntimedelta(seconds=1)", 0),
        ("from temporalio import workflow\nworkflow.now()", 0),
    ],
)
def test_the_clock_rule_notices(source: str, count: int) -> None:
    """A clock or a random source is found under any name, except Temporal's own clock."""
    assert len(list(find_banned_calls(Path("workflows/x.py"), ast.parse(source)))) == count


def test_the_other_rules_notice() -> None:
    """Too long a function, a meaningless module name and a user's folder are found with their line."""
    long = "\n\ndef f():\n" + "    pass\n" * FUNCTION_LINES_MAX
    folder = "".join(["/", "root", "/x"])

    assert [f.partition(": ")[0] for f in size_faults(Path("a.py"), ast.parse(long), 3)] == ["a.py:3"]
    assert [f.partition(": ")[0] for f in name_faults(Path("services/helpers/a.py"))] == ["services/helpers/a.py:1"]
    calls = ast.parse("f(1, 2, 3, 4, 5, 6)\na.f(1, 2, 3, 4, 5, 6, *more)\nTable(1, 2, 3, 4, 5, 6, 7)\n")
    assert [f.partition(": ")[0] for f in call_faults(Path("a.py"), calls)] == ["a.py:2"]
    merged = f"a\n{'<' * 7} HEAD\nb\n=======\nc\n{'>' * 7} main\n"
    assert [f.partition(": ")[0] for f in merge_faults(Path("a.css"), merged)] == ["a.css:2", "a.css:6"]
    assert [f.partition(": ")[0] for f in path_faults(Path("a.md"), f"\nsee {folder}")] == ["a.md:2"]


def test_the_rules_for_words_notice() -> None:
    """Riddles are found in docstrings and in names of functions, and function words at the beginning of docstrings."""
    source = 'def room_is_left(): pass\ndef mushroom():\n  "What somebody does."\nasync def test_it_goes_on(): pass\n'
    found = word_faults(iter([(Path("a.py"), ast.parse(source))]))

    assert ["a.py:3: 'somebody'", "a.py:1: room_is_left", "a.py:4: test_it_goes_on"] == found.riddles
    assert ["a.py:3"] == [fault.partition(": ")[0] for fault in found.odd]


@pytest.mark.parametrize("part", BUDGETS)
def test_words_stay_within_their_budget(part: str) -> None:
    """No change adds a docstring, a word or a name of the old idiom; a change that removes some lowers the budget."""
    folders = PACKAGES if part == "product" else ("tests",)
    found = word_faults((path, tree_of(path)) for path in python_files(*folders))
    faults = {"odd": found.odd, "riddles": found.riddles, "participles": found.participles}

    for kind, budget in BUDGETS[part].items():
        some = "\n".join(faults[kind][-SHOWN_MAX:])
        count = len(faults[kind])
        assert count <= budget, f"{part}: {count} {kind}, budget {budget}; the last of them:\n{some}"
        assert count + SPARE >= budget, f"{part}: only {count} {kind} are left: lower the budget from {budget}"


def prose_files(part: str) -> list[Path]:
    if part == "protos":
        return [path for path in files("peloton") if path.suffix == ".proto"]
    pages = [path for path in files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    return [path for path in pages if path.as_posix() not in GENERATED_PAGES]


@pytest.mark.parametrize("part", PROSE_BUDGETS)
def test_prose_stays_within_its_budget(part: str) -> None:
    """Documents and comments of .proto files have no more riddles than their budget."""
    paths = prose_files(part)
    found = [fault for path in paths for fault in prose_faults(path, (ROOT / path).read_text(encoding="utf-8"))]

    assert paths
    assert len(found) <= PROSE_BUDGETS[part], "\n" + "\n".join(found[-SHOWN_MAX:])


def test_the_rule_for_prose_notices() -> None:
    """A riddle is found in prose, also over the end of a line, but not in names, code, links and paths."""
    page = (
        "# A\n\nA host with `room` ([it](room.md)).\n\n```\nnobody\n```\n\n* Placed in\n  vain, and nobody is told.\n"
    )
    proto = "message Room {}  // of others\nbool told = 1;\n"

    assert ["a.md:9: 'in vain'", "a.md:10: 'nobody'", "a.md:10: 'told'"] == list(prose_faults(Path("a.md"), page))
    assert ["a.proto:1: 'of others'"] == list(prose_faults(Path("a.proto"), proto))
    assert ["a.md:1: 'are away'"] == list(prose_faults(Path("a.md"), "Pods that are away"))

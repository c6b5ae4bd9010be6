"""Settings come from the environment and a file, once, and are checked before anything starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peloton.errors import InvalidSettings
from services.lab.local.cluster import QUICKER, LocalCluster, LocalSettings, own_defaults
from services.other_variables import OTHER_VARIABLES
from services.role_settings import load_for
from services.setting_rules import Setting, mask
from services.settings import Settings, find, is_unknown, list_given, load
from services.settings_table import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [one for one in SETTINGS.values() if one.kind in ("int", "float")]
BAD_NUMBERS = ["", " ", "nan", "inf", "-inf", "-1000000", "1e999", "1e12", "five", "5s", "0x10", "true"]
BAD_TEXTS = {
    "DATABASE": ["mysql://h/x", "peloton.db", "postgres", "postgresql+psycopg://h/a b"],
    "TEMPORAL": ["temporal", "temporal:", ":7233", "temporal:0", "temporal:65536", "a b:1", "http://temporal:7233"],
    "MESOS": ["", "master", "https://master:5050", "a:1,b:2"],
    "API": ["", "api", "api:5397,", "api:5397,other"],
    "CLUSTER": ["", "-west", "we st", "w" * 64],
    "MESOS_ROLE": ["", "a b"],
    "HOST": ["", "a b"],
    "KUBERNETES_NAMESPACE": [""],
    "KUBERNETES_DEFAULT_IMAGE": [""],
    "WORKER_PROMOTE": ["", "AUTO", "never"],
    "LOG_LEVEL": ["", "info", "LOUD"],
    "TEMPORAL_UI": ["temporal:8080", "ftp://temporal"],
    "PREFETCH_URL": ["host:1/images"],
    "OTLP": ["collector", "grpc://collector"],
    "PREEMPTION": ["", "off", "1", "yes"],
}
GOOD = {
    "DATABASE": ["", "sqlite:///x", "sqlite:////var/lib/x.db", "postgresql://h/x", "postgresql+psycopg://u:p@h:1/x"],
    "TEMPORAL": ["", "temporal:7233", "127.0.0.1:1", "[::1]:7233", "a.b.tmprl.cloud:7233"],
    "MESOS": ["m:1", "zk://a:1,b:2/mesos", "zk://user:secret@a:1/mesos"],
    "API": ["a:1", "a:1, b:2"],
    "OTLP": ["", "http://collector:4317", "collector:4317"],
    "KUBERNETES_PRIORITY_CLASS": ["", "high"],
    "KUBERNETES_PORTS": [""],
    "PREEMPTION": ["true", "False"],
    "LEADER_TTL_S": ["0.5", "1e1", "3600"],
}


def refusal(environment: dict[str, str], config: str = "") -> str:
    with pytest.raises(InvalidSettings) as caught:
        load(environment, config)
    return caught.value.message


def test_the_environment_sets_fields_by_their_names() -> None:
    """PELOTON_ and the name in capitals; numbers become numbers, the rest keeps its default."""
    settings = load({"PELOTON_PORT": "6000", "PELOTON_LEADER_TTL_S": "2.5", "PELOTON_MESOS": "m:1", "OTHER": "x"})

    assert (6000, 2.5, "m:1") == (settings.port, settings.leader_ttl_s, settings.mesos)
    assert Settings().temporal == settings.temporal


def test_a_value_of_the_wrong_kind_names_the_variable() -> None:
    """The text has the variable, the value, its source, and the rule."""
    expected = "PELOTON_PORT=http (environment): want a whole number from 1 to 65,535"

    assert expected == refusal({"PELOTON_PORT": "http"})
    assert "PELOTON_LEADER_TTL_S=-3 (environment): want seconds from 0.5 to 3,600" == refusal(
        {"PELOTON_LEADER_TTL_S": "-3"}
    )
    assert "PELOTON_PORT (environment) is empty" in refusal({"PELOTON_PORT": ""})


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_bad_numbers_are_refused(setting: Setting) -> None:
    """No number takes nan, an infinity, a text, nothing, or a value beyond its bounds, which are values themselves."""
    low, high = setting.rule.low, setting.rule.high
    assert low is not None
    assert high is not None
    others = ["2.5"] if setting.kind == "int" else [str(low / 2)] if low else []
    for text in [*BAD_NUMBERS, *others, str(low - 1), str(high + 1)]:
        assert f"{setting.variable}" in refusal({setting.variable: text}), text
    for bound in (low, high):
        assert bound == setting.convert(str(bound))


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD_TEXTS.items() for text in texts])
def test_bad_texts_are_refused(name: str, text: str) -> None:
    """Texts have a form, and the fault names it."""
    fault = refusal({f"PELOTON_{name}": text})

    assert fault.startswith(f"PELOTON_{name}")
    assert "want " in fault


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in GOOD.items() for text in texts])
def test_good_values_are_taken(name: str, text: str) -> None:
    """Every value that roles have taken so far is taken."""
    setting = SETTINGS[name.lower()]

    assert setting.convert(text) == getattr(load({setting.variable: text}), setting.name)


def test_every_default_keeps_the_rules() -> None:
    """The defaults are values that the table takes, and each setting has help, readers and a rule."""
    given = {one.variable: str(one.default) for one in SETTINGS.values() if one.default != ""}

    assert Settings() == load({}) == load(given)
    assert [one.name for one in SETTINGS.values() if not one.rule.help or not one.rule.readers] == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"QOS_HOT_PERCENT": "80"}, "QOS_TARGET_PERCENT=80 (default), PELOTON_QOS_HOT_PERCENT=80 (environment): want"),
        ({"ADVISOR_RED_PERCENT": "70"}, "PELOTON_ADVISOR_ORANGE_PERCENT=80 (default), PELOTON_ADVISOR_RED_PERCENT=70"),
        ({"P95_ORANGE_MS": "9", "P95_RED_MS": "8"}, "PELOTON_P95_ORANGE_MS=9 (environment), PELOTON_P95_RED_MS=8"),
        ({"P99_ORANGE_MS": "9", "P99_RED_MS": "8"}, "PELOTON_P99_ORANGE_MS=9 (environment), PELOTON_P99_RED_MS=8"),
        ({"RETRY_WAIT_S": "601"}, "PELOTON_RETRY_WAIT_S=601 (environment), PELOTON_RETRY_WAIT_MAX_S=600 (default)"),
        ({"HISTORY_PERIOD_S": "50"}, "PELOTON_HISTORY_PERIOD_S=50 (environment): want 0, or seconds that divide"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, str], wanted: str) -> None:
    """The fault names each of them with its value and its source."""
    assert wanted in refusal({f"PELOTON_{name}": text for name, text in given.items()})


def test_files_of_a_role_are_checked_at_its_start(tmp_path: Path) -> None:
    """The fault has the source of each setting that it names; other roles do not read the file."""
    file = tmp_path / "peloton.toml"
    file.write_text('mesos_secret_file = "/none"\ndatabase = "sqlite:///x"')
    environment = {"PELOTON_MESOS_PRINCIPAL": "ops", "PELOTON_CONFIG": str(file)}
    for roles in (["hostmgr"], ["api", "web"]):
        with pytest.raises(InvalidSettings, match=rf"cannot be read.* \(mesos_secret_file: {file}\)"):
            load_for(roles, environment)

    assert "ops" == load_for(["api", "worker", "resmgr"], environment).mesos_principal
    kubernetes = {**environment, "PELOTON_KUBERNETES": "in-cluster", "PELOTON_KUBERNETES_PORTS": "9-1"}
    with pytest.raises(
        InvalidSettings, match=r"PELOTON_KUBERNETES_PORTS='9-1'.* \(PELOTON_KUBERNETES_PORTS: environment"
    ):
        load_for(["hostmgr"], kubernetes)


def test_a_role_that_others_connect_to_advertises_an_address() -> None:
    """The lease of a leader would name 0.0.0.0 otherwise, and each other role would connect to itself."""
    environment = {"PELOTON_DATABASE": "sqlite:///p.db", "PELOTON_HOST": "0.0.0.0", "PELOTON_MESOS": "mesos:5050"}
    environment["PELOTON_INSECURE"] = "true"
    for role in ("resmgr", "hostmgr"):
        with pytest.raises(InvalidSettings, match=rf"PELOTON_ADVERTISE must be set for role {role}: PELOTON_HOST=0"):
            load_for([role, "api"], environment)
        assert "h7" == load_for([role, "api"], environment | {"PELOTON_ADVERTISE": "h7"}).advertised
    registers = environment | {"PELOTON_AURORA_ZOOKEEPER": "zk://zk:2181/aurora/scheduler"}
    with pytest.raises(InvalidSettings, match=r"PELOTON_ADVERTISE must be set for role aurorabridge"):
        load_for(["aurorabridge"], registers)

    assert "0.0.0.0" == load_for(["api", "worker", "aurorabridge"], environment).host


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "peloton.example.com"])
def test_other_machines_are_served_with_tls_and_credentials(host: str) -> None:
    """The refusal names the setting and the way out; a worker listens on no port."""
    given = {"PELOTON_DATABASE": "sqlite:///p.db", "PELOTON_ADVERTISE": "h7", "PELOTON_HOST": host}
    for role in ("api", "web", "aurorabridge", "resmgr", "hostmgr"):
        with pytest.raises(
            InvalidSettings,
            match=rf"PELOTON_TLS_CERT_FILE must be set for role {role}: other machines reach PELOTON_HO",
        ):
            load_for([role, "worker"], given)
    tls = given | {"PELOTON_TLS_CERT_FILE": "/tls/cert.pem", "PELOTON_TLS_CA_FILE": "/tls/ca.pem"}
    without = tls | {"PELOTON_TLS_CLIENTS": "none"}
    for role in ("api", "web", "aurorabridge"):
        with pytest.raises(InvalidSettings, match=rf"PELOTON_TLS_CLIENTS=none leaves role {role} without credentials"):
            load_for([role, "resmgr"], without)

    for allowed in (["worker"], given), (["api", "web", "hostmgr"], tls), (["resmgr", "hostmgr"], without):
        assert host == load_for(*allowed).host
    issuer = without | {"PELOTON_AUTH_OIDC_ISSUER": "https://id.example.com", "PELOTON_AUTH_OIDC_AUDIENCE": "peloton"}
    assert host == load_for(["api", "web"], issuer).host
    assert host == load_for(["api"], given | {"PELOTON_INSECURE": "true"}).host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_is_served_without(host: str) -> None:
    """Loopback needs no settings."""
    assert host == load_for(["api", "web"], {"PELOTON_DATABASE": "sqlite:///p.db", "PELOTON_HOST": host}).host


def test_all_faults_are_named() -> None:
    """A process that is started again after each fault would take as many starts as there are faults."""
    faults = refusal({"PELOTON_PORT": "x", "PELOTON_QOS": "x", "PELOTON_LEADER_TTL": "3"}).splitlines()

    assert [
        "PELOTON_LEADER_TTL (environment): unknown setting; did you mean PELOTON_LEADER_TTL_S?",
        "PELOTON_PORT=x (environment): want a whole number from 1 to 65,535",
        "PELOTON_QOS=x (environment): want true or false",
    ] == faults


def test_variables_of_commands_pods_and_tests_are_known() -> None:
    """Variables that roles ignore are no faults, and neither are those with another prefix."""
    others = [*OTHER_VARIABLES, "PELOTON_TEST_SEEDS", "PELOTON_BENCH_HOSTS", "_PELOTON_COMPLETE", "peloton_port"]
    others.remove("PELOTON_CONFIG")

    assert Settings() == load(dict.fromkeys(others, "x"))
    assert is_unknown("PELOTON_SERVICE_HOST")


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    """The file comes before the defaults; its values have types of their own, and each source is named."""
    file = tmp_path / "peloton.toml"
    file.write_text('leader_ttl_s = 4\nport = 6000\nqos = false\ntemporal = "t:1"\n')
    found = find({"PELOTON_CONFIG": str(file), "PELOTON_PORT": "7000"})

    assert (4.0, str(file)) == (found["leader_ttl_s"].value, found["leader_ttl_s"].source)
    assert (7000, "environment") == (found["port"].value, found["port"].source)
    assert (False, "t:1") == (found["qos"].value, found["temporal"].value)
    assert (10, "default") == (found["retry_wait_s"].value, found["retry_wait_s"].source)
    assert 6000 == load({}, str(file)).port


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("leader_ttl = 4", "leader_ttl ({file}): unknown setting; did you mean leader_ttl_s?"),
        ("[hostmgr]\nport = 1", "hostmgr ({file}): unknown setting; did you mean hostmgr_port?"),
        ("port = true", "port=true ({file}): want a whole number from 1 to 65,535"),
        ("port = 5.5", "port=5.5 ({file}): want a whole number from 1 to 65,535"),
        ("port = [1]", "port=[1] ({file}): want a whole number from 1 to 65,535"),
        ("leader_ttl_s = nan", "leader_ttl_s=nan ({file}): want seconds from 0.5 to 3,600"),
        ("qos = 1", "qos=1 ({file}): want true or false"),
        ("temporal = 7233", "temporal=7233 ({file}): want HOST:PORT"),
        ("port = ", "{file}: the file of settings is not TOML: Invalid value (at end of document)"),
    ],
)
def test_faults_of_the_file_name_it(tmp_path: Path, text: str, fault: str) -> None:
    """The fault has the key as it is in the file, and the path."""
    file = tmp_path / "peloton.toml"
    file.write_text(text)

    assert fault.format(file=file) == refusal({}, str(file))


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    """A role does not start with defaults in place of its file."""
    assert f"{tmp_path}/none: the file of settings cannot be read" in refusal({"PELOTON_CONFIG": f"{tmp_path}/none"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg://peloton:s3cr3t@db/peloton", "postgresql+psycopg://peloton:***@db/peloton"),
        ("postgresql+psycopg://peloton:a@b/c@db/peloton", "postgresql+psycopg://peloton:***@db/peloton"),
        ("postgresql://db/x?user=a&password=b&x=1", "postgresql://db/x?user=a&password=***&x=1"),
        ("zk://u:p@a:1,b:2/mesos", "zk://u:***@a:1,b:2/mesos"),
        ("sqlite:///file.db", "sqlite:///file.db"),
        (5, 5),
    ],
)
def test_passwords_are_masked(text: Any, shown: Any) -> None:
    """Passwords of URLs are masked, whatever characters they have."""
    assert shown == mask(text)


def test_a_fault_shows_no_password() -> None:
    """Logs keep the faults of a start."""
    assert "s3cr3t" not in refusal({"PELOTON_DATABASE": "mysql://peloton:s3cr3t@db/peloton"})


def test_the_database_is_required() -> None:
    """A role without a database setting would work on a store that no other process reads."""
    assert "sqlite:///x" == load({"PELOTON_DATABASE": "sqlite:///x"}).require_database()
    with pytest.raises(InvalidSettings, match="PELOTON_DATABASE is not set: want sqlite:///FILE or postgresql"):
        load({}).require_database()


def test_the_advertised_host_is_the_one_listened_on_unless_set() -> None:
    """The advertised host is the setting, for containers, or else the host it listens on."""
    assert "127.0.0.1" == load({}).advertised
    assert "api-1" == load({"PELOTON_ADVERTISE": "api-1", "PELOTON_HOST": "0.0.0.0"}).advertised


def test_the_local_cluster_is_quicker_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    """The local cluster's own defaults are replaced by variables of the environment or keys of its file, one by one."""
    file = tmp_path / "peloton.toml"
    file.write_text("leader_ttl_s = 9.0")
    own = own_defaults(list_given({"PELOTON_PREEMPTION_PERIOD_S": "60", "PELOTON_CONFIG": str(file)}))

    assert {"PELOTON_PREEMPTION_PERIOD_S", "PELOTON_LEADER_TTL_S"} == set(QUICKER) - set(own)
    assert load(own).preemption_rounds == 3


def test_agents_of_a_real_mesos_have_the_long_time_to_find_a_new_master() -> None:
    """Agents without ZooKeeper need 75 s, which no emulated agent does."""
    emulated, real = load(own_defaults({})), load(own_defaults({}, has_real_mesos=True))
    assert (20.0, 600.0) == (emulated.agent_reregister_timeout_s, real.agent_reregister_timeout_s)
    assert emulated.agents_period_s == real.agents_period_s


def test_the_parts_of_the_local_cluster_get_settings_that_load(tmp_path: Path) -> None:
    """Each part of `peloton up` has an environment without a fault."""
    kinds = LocalSettings(0, tmp_path, workers=2, apis=2, more_clusters=("west",), kubernetes=0, web=True)
    cluster = LocalCluster(kinds, lambda part, line: None)
    cluster._describe_parts()
    loaded = {name: load(part.whole_environment) for name, part in cluster.parts.items()}

    assert {"local", "west", "kubernetes"} == {settings.cluster for settings in loaded.values()}


async def test_the_local_cluster_refuses_bad_settings_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster starts no role that would end, and be started again and again."""
    monkeypatch.setenv("PELOTON_LEADER_TTL_S", "nan")
    cluster = LocalCluster(LocalSettings(0, tmp_path / "data"), lambda part, line: None)
    with pytest.raises(InvalidSettings, match="PELOTON_LEADER_TTL_S=nan"):
        await cluster.start()

    assert not (tmp_path / "data").exists()


def test_a_role_with_bad_settings_ends_with_code_2(tmp_path: Path) -> None:
    """A process names each fault in a line of its own, and opens no database."""
    given = {
        "PELOTON_DATABASE": f"sqlite:///{tmp_path}/peloton.db",
        "PELOTON_LEADER_TTL_S": "-3",
        "PELOTON_HOSTMRG_PORT": "5395",
    }
    command = [sys.executable, "-m", "cli.main", "serve", "--upgrade-schema", "resmgr"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **given}, cwd=ROOT, check=False
    )

    assert [
        "PELOTON_HOSTMRG_PORT (environment): unknown setting; did you mean PELOTON_HOSTMGR_PORT?",
        "PELOTON_LEADER_TTL_S=-3 (environment): want seconds from 0.5 to 3,600",
    ] == ended.stderr.splitlines()
    assert (2, "", []) == (ended.returncode, ended.stdout, list(tmp_path.iterdir()))


def test_deployments_name_settings_only() -> None:
    """Compose, the image, the manifests and the Makefile name no variable that a role would refuse."""
    files = [ROOT / name for name in ("docker-compose.yml", "Dockerfile", "Makefile")]
    files += [path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    named = {
        (path.name, name)
        for path in files
        for name in re.findall(r"\bPELOTON_[A-Z0-9_]+", path.read_text(encoding="utf-8"))
    }
    variables = {one.variable for one in SETTINGS.values()}

    assert len(named) > 20
    assert [(where, name) for where, name in sorted(named) if name not in variables and is_unknown(name)] == []


def test_metrics_are_served_to_other_machines_with_tls() -> None:
    """A port of metrics that other machines reach has a certificate, or the word of the operator."""
    given = {"PELOTON_DATABASE": "sqlite:///p.db", "PELOTON_METRICS_PORT": "9464", "PELOTON_METRICS_HOST": "0.0.0.0"}

    with pytest.raises(InvalidSettings, match=r"PELOTON_TLS_CERT_FILE must be set for PELOTON_METRICS_HOST=0\.0\.0\.0"):
        load_for(["worker"], given)
    tls = given | {"PELOTON_TLS_CERT_FILE": "/tls/cert.pem", "PELOTON_TLS_CA_FILE": "/tls/ca.pem"}
    for allowed in (tls, given | {"PELOTON_INSECURE": "true"}, given | {"PELOTON_METRICS_HOST": "::1"}):
        assert 9464 == load_for(["worker"], allowed).metrics_port

"""``peloton-spark-submit``: spark-submit with Peloton as the master.

It takes the options of spark-submit. In client mode it runs spark-submit here; in cluster mode it creates a controller
job, whose instance 0 is the driver, and whose other instances the driver adds as executors:

    peloton-spark-submit --master peloton://127.0.0.1:5398/batch/etl --deploy-mode cluster app.py
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peloton.integrations.spark import MASTER_SCHEME, jar_path

SCHEMES = ("peloton", MASTER_SCHEME)
FLAGS = frozenset({"--supervise", "--verbose", "-v", "--version", "--help", "-h", "--usage-error"})
"""Options of spark-submit without a value."""
CALL_TIMEOUT_S = 60.0
JOBS, POOLS = "peloton.api.v0.job.JobManager", "peloton.api.v0.respool.ResourceManager"
UNITS_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
OVERHEAD_MIN_MIB, OVERHEAD_FACTOR = 384, 0.1
IMAGE_SPARK_HOME = "/opt/spark"
UI_PORT = "SPARK_UI_PORT"
OWN_ADDRESS = (
    "host=$(hostname -i 2>/dev/null | cut -d' ' -f1); case \"$host\" in ''|127.*|::1) host=$(hostname -f);; esac"
)


class SubmitError(Exception):
    """An application that cannot be submitted, with the reason."""


@dataclass
class Submission:
    """The parts of a command line of spark-submit. ``rest`` are options that only spark-submit reads, the application
    and its arguments."""

    master: str = ""
    deploy_mode: str = "client"
    name: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self._place()[0]

    @property
    def pool(self) -> str:
        return self._place()[1]

    def _place(self) -> tuple[str, str]:
        scheme, _, place = self.master.partition("://")
        address, _, pool = place.partition("/")
        if scheme not in SCHEMES or ":" not in address or not pool:
            raise SubmitError(f"--master {self.master}: want peloton://HOST:PORT/POOL, where role web listens")
        return address, f"/{pool}"


NAMED = {
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
"""Options that stand for settings."""


def parse(arguments: list[str]) -> Submission:
    """Take a command line of spark-submit apart, up to the application. Raises SubmitError."""
    found, at = Submission(), 0
    while at < len(arguments) and arguments[at].startswith("-"):
        option, equals, value = arguments[at].partition("=")
        at += 1
        if option in FLAGS:
            found.rest.append(option)
            continue
        if not equals:
            if at == len(arguments):
                raise SubmitError(f"{option} needs a value")
            value, at = arguments[at], at + 1
        _take(found, option, value)
    found.rest += arguments[at:]
    return found


def _take(found: Submission, option: str, value: str) -> None:
    if option == "--master":
        found.master = value
    elif option == "--deploy-mode":
        found.deploy_mode = value
    elif option in ("--conf", "-c"):
        key, equals, text = value.partition("=")
        if not equals:
            raise SubmitError(f"--conf {value}: want KEY=VALUE")
        found.settings[key] = text
    elif option in NAMED:
        found.settings[NAMED[option]] = value
    else:
        found.name = value if option == "--name" else found.name
        found.rest += [option, value]


def client_command(asked: Submission, jar: str, spark_home: str) -> list[str]:
    """Return the command of spark-submit that runs the driver in its own process."""
    class_path = ":".join(filter(None, (jar, asked.settings.get("spark.driver.extraClassPath"))))
    settings = {**asked.settings, "spark.driver.extraClassPath": class_path} if class_path else asked.settings
    command = [f"{spark_home}/bin/spark-submit", "--master", f"{MASTER_SCHEME}://{asked.address}{asked.pool}"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, *asked.rest]


def driver_job(asked: Submission, jar: str, spark_home: str) -> dict[str, Any]:
    """Return the configuration of the controller job, without its pool."""
    settings = asked.settings
    image = settings.get("spark.peloton.container.image", "")
    spark_home = settings.get("spark.peloton.driver.sparkHome", IMAGE_SPARK_HOME if image else spark_home)
    command = [shlex.quote(word) for word in client_command(asked, "" if image else jar, spark_home)]
    own = ["spark.driver.host=$host", "spark.peloton.driver.job=$PELOTON_JOB_ID", f"spark.ui.port=${UI_PORT}"]
    command[3:3] = [word for setting in own for word in ("--conf", f'"{setting}"')]
    environment = {"SPARK_HOME": spark_home, "PYSPARK_PYTHON": _python(settings, image)}
    is_preemptible = settings.get("spark.peloton.driver.preemptible", "false") == "true"
    driver: dict[str, Any] = {
        "name": "driver",
        "controller": True,
        "complete": True,
        "resource": {
            "cpuLimit": _number(settings, "spark.driver.cores", 1),
            "memLimitMb": driver_memory_mib(settings),
            "diskLimitMb": mebibytes(settings.get("spark.peloton.driver.disk", "1g")),
        },
        "command": {
            "shell": True,
            "value": f"{OWN_ADDRESS}\nexec {' '.join(command)}",
            "environment": {"variables": [{"name": key, "value": value} for key, value in environment.items()]},
        },
        "ports": [{"name": "spark-ui", "envName": UI_PORT}],
        "preemptionPolicy": {"type": "TYPE_PREEMPTIBLE" if is_preemptible else "TYPE_NON_PREEMPTIBLE"},
        "restartPolicy": {"maxFailures": int(_number(settings, "spark.peloton.driver.maxFailures", 3))},
    }
    if image:
        driver["container"] = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": image}}}}
    labels = dict(one.split("=", 1) for one in settings.get("spark.peloton.labels", "").split(",") if "=" in one)
    return {
        "name": settings.get("spark.peloton.job.name") or asked.name or _name_of(asked.rest),
        "owningTeam": settings.get("spark.peloton.team") or getpass.getuser(),
        "instanceCount": 1,
        "sla": {"preemptible": True, "priority": int(_number(settings, "spark.peloton.priority", 0))},
        "labels": [{"key": key.strip(), "value": value.strip()} for key, value in labels.items()],
        "instanceConfig": {"0": driver},
    }


def driver_memory_mib(settings: dict[str, str]) -> int:
    """Return heap and overhead of the driver in MiB."""
    heap = mebibytes(settings.get("spark.driver.memory", "1g"))
    factor = _number(settings, "spark.driver.memoryOverheadFactor", OVERHEAD_FACTOR)
    given = settings.get("spark.driver.memoryOverhead")
    return heap + (mebibytes(given) if given else max(OVERHEAD_MIN_MIB, int(heap * factor)))


def mebibytes(size: str) -> int:
    """Read a size of Spark, like 512m or 2g; a number alone is in MiB. Raises SubmitError."""
    text = size.strip().lower().removesuffix("b")
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS_MIB else (text, "m")
    if not number.isdecimal():
        raise SubmitError(f"size {size!r}: want a whole number and k, m, g or t")
    return int(int(number) * UNITS_MIB[unit])


def _number(settings: dict[str, str], name: str, usual: float) -> float:
    text = settings.get(name, str(usual))
    try:
        return float(text)
    except ValueError:
        raise SubmitError(f"{name} is {text!r}: want a number") from None


def _python(settings: dict[str, str], image: str) -> str:
    chosen = settings.get("spark.pyspark.driver.python") or settings.get("spark.pyspark.python")
    return chosen or os.environ.get("PYSPARK_PYTHON") or ("python3" if image else sys.executable)


def _name_of(rest: list[str]) -> str:
    """Return the file name of the application, or of the first word that may be one."""
    return next((Path(word).name for word in rest if word.endswith((".py", ".jar", ".R"))), "spark")


def spark_home() -> str:
    """Return the folder of Spark: SPARK_HOME, that of pyspark here, or that of spark-submit. Raises SubmitError."""
    if own := os.environ.get("SPARK_HOME"):
        return own
    if (spec := find_spec("pyspark")) and spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    if found := shutil.which("spark-submit"):
        return str(Path(found).resolve().parents[1])
    raise SubmitError("no Spark found: install pyspark, or set SPARK_HOME")


def create_job(address: str, pool: str, config: dict[str, Any]) -> str:
    """Create the job in the pool; returns its id. Raises SubmitError."""
    found = call(address, POOLS, "LookupResourcePoolID", {"path": {"value": pool}})
    created = call(address, JOBS, "Create", {"config": {**config, "respoolID": found["id"]}})
    return str(created["jobId"]["value"])


def call(address: str, service: str, method: str, message: dict[str, Any]) -> dict[str, Any]:
    """Call the API of role web. Raises SubmitError."""
    request = urllib.request.Request(
        f"http://{address}/api/{service}/{method}", json.dumps(message).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=CALL_TIMEOUT_S) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as refusal:
        raise SubmitError(f"{method}: {refusal.read().decode(errors='replace')}") from None
    except OSError as away:
        raise SubmitError(f"{method}: Peloton does not answer at {address}: {away}") from None
    except ValueError:
        raise SubmitError(f"{method}: the answer at {address} is no JSON: want the port of role web") from None
    for error in answer.get("error", {}).values():
        raise SubmitError(f"{method}: {error.get('message', error)}")
    return answer


def main() -> None:
    try:
        asked = parse(sys.argv[1:])
        home, jar = spark_home(), str(jar_path())
        if asked.deploy_mode == "client":
            command = client_command(asked, jar, home)
            os.execv(command[0], command)  # noqa: S606
        job_id = create_job(asked.address, asked.pool, driver_job(asked, jar, home))
    except (SubmitError, FileNotFoundError) as refusal:
        sys.exit(f"peloton-spark-submit: {refusal}")
    print(f"created job {job_id} in {asked.pool}: peloton task logs {job_id} 0 follows its driver")

"""Command lines of ``peloton-spark-submit``, and the jobs that come of them."""

from __future__ import annotations

import pytest

from peloton.integrations.spark_submit import Submission, SubmitError, client_command, driver_job, mebibytes, parse

MASTER = "peloton://web:5398/batch/etl"
JAR = "/jars/peloton-spark.jar"


def command(line: str) -> Submission:
    return parse(["--master", MASTER, *line.split()])


def test_options_stand_for_settings_and_the_rest_is_left_as_it_is() -> None:
    """Options that stand for settings become settings; others, and all after the application, stay."""
    asked = command("--executor-memory 2g --conf a.b=c=d --py-files x.py --verbose --name=words app.py --conf mine")

    assert asked.settings == {"spark.executor.memory": "2g", "a.b": "c=d"}
    assert asked.rest == ["--py-files", "x.py", "--verbose", "--name", "words", "app.py", "--conf", "mine"]
    assert (asked.address, asked.pool, asked.name) == ("web:5398", "/batch/etl", "words")


def test_client_mode_keeps_the_class_path_of_the_user() -> None:
    """The jar is put before the class path that the user gave."""
    asked = command("--driver-class-path /a.jar app.py x")

    assert client_command(asked, JAR, "/spark") == [
        "/spark/bin/spark-submit",
        "--master",
        "spark+peloton://web:5398/batch/etl",
        "--conf",
        f"spark.driver.extraClassPath={JAR}:/a.jar",
        "app.py",
        "x",
    ]


def test_cluster_mode_is_a_controller_that_is_not_preempted() -> None:
    """The driver is instance 0, the controller, sized by its settings, and its command is quoted."""
    asked = command(
        "--deploy-mode cluster --driver-memory 2g --driver-cores 2 --conf spark.peloton.labels=a=b app.py 'x"
    )
    job = driver_job(asked, JAR, "/spark")
    driver = job["instanceConfig"]["0"]

    assert (job["name"], job["instanceCount"], job["labels"]) == ("app.py", 1, [{"key": "a", "value": "b"}])
    assert driver["controller"]
    assert driver["preemptionPolicy"] == {"type": "TYPE_NON_PREEMPTIBLE"}
    assert driver["resource"] == {"cpuLimit": 2.0, "memLimitMb": 2048 + 384, "diskLimitMb": 1024}
    assert '--conf "spark.peloton.driver.job=$PELOTON_JOB_ID"' in driver["command"]["value"]
    assert driver["command"]["value"].endswith("""app.py ''"'"'x'""")


def test_settings_that_are_no_numbers_are_refused() -> None:
    """The refusal names the setting."""
    with pytest.raises(SubmitError, match=r"spark\.driver\.cores is 'two': want a number"):
        driver_job(command("--driver-cores two app.py"), JAR, "/spark")


def test_an_image_has_spark_and_the_jar() -> None:
    """A driver in an image runs the image's Spark, whose class path has the jar already."""
    driver = driver_job(command("--conf spark.peloton.container.image=spark:4 a.py"), JAR, "/own")["instanceConfig"][
        "0"
    ]

    assert driver["container"]["mesos"]["image"] == {"type": "DOCKER", "docker": {"name": "spark:4"}}
    assert JAR not in driver["command"]["value"]
    assert "exec /opt/spark/bin/spark-submit" in driver["command"]["value"]


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        (["--master"], "--master needs a value"),
        (["--conf", "a"], "--conf a: want KEY=VALUE"),
    ],
)
def test_broken_options_are_refused(line: list[str], refusal: str) -> None:
    """An option without its value, and a setting without =, are refused."""
    with pytest.raises(SubmitError, match=f"^{refusal}$"):
        parse(line)


@pytest.mark.parametrize("master", ["", "yarn", "peloton://web/pool", "peloton://web:5398", "spark://web:1/pool"])
def test_masters_without_port_or_pool_are_refused(master: str) -> None:
    """A master without port or pool, or of another scheme, is refused."""
    with pytest.raises(SubmitError, match="want peloton://HOST:PORT/POOL"):
        _ = Submission(master).pool


def test_sizes_are_those_of_spark() -> None:
    """Sizes have the units of Spark, and MiB without one."""
    assert [mebibytes(size) for size in ("512m", "2g", "2GB", "1024k", "300")] == [512, 2048, 2048, 1, 300]
    with pytest.raises(SubmitError, match=r"size '1\.5g'"):
        mebibytes("1.5g")

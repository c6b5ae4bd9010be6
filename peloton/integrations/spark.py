"""Spark on Peloton, from Python: where the jar of its cluster manager is, and sessions that use it.

    spark = peloton_session("127.0.0.1:5398", "/batch/etl").appName("count").getOrCreate()

Executors are pods of a job in the pool. ``peloton-spark-submit`` runs whole applications
(:mod:`peloton.integrations.spark_submit`).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

JAR = Path(__file__).parent / "jars" / "peloton-spark.jar"
"""Written by ``make spark``, and part of the wheel when it was there."""
MASTER_SCHEME = "spark+peloton"
"""Scheme of master URLs that spark-submit and pyspark accept: they refuse names that do not begin with "spark"."""


def jar_path() -> Path:
    """Return the jar that Spark's driver needs on its class path. Raises FileNotFoundError."""
    if not JAR.exists():
        raise FileNotFoundError(f"{JAR} does not exist: run make spark, which needs Maven and a JDK, and install again")
    return JAR


def master_url(address: str, pool: str) -> str:
    """Return the master URL of a pool: ``address`` is HOST:PORT of role web, ``pool`` the path of a leaf."""
    return f"{MASTER_SCHEME}://{address}/{pool.strip('/')}"


def peloton_session(address: str, pool: str) -> Any:
    """Return a builder of pyspark's sessions with executors in the pool, for further settings and ``getOrCreate()``."""
    builder = import_module("pyspark.sql").SparkSession.builder
    return builder.master(master_url(address, pool)).config("spark.driver.extraClassPath", str(jar_path()))

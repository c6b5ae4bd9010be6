"""Sorts rows of 80 bytes: arguments are the master, the jar, how many thousands of rows, the number of executors, and
settings as KEY=VALUE.

Prints one line of JSON: whether all rows are there and in order, seconds, bytes spilled and attempts of stages.
"""

import json
import sys
import time
import urllib.request

from pyspark.sql import Observation, SparkSession, functions

SAMPLE = 50
"""Distance of the rows whose order is checked."""

master, jar, thousands, executors, *settings = sys.argv[1:]
began = time.monotonic()
builder = SparkSession.builder.appName("sort").master(master).config("spark.ui.showConsoleProgress", "false")
for setting in [
    "spark.driver.memory=512m",
    f"spark.driver.extraClassPath={jar}",
    "spark.executor.memory=512m",
    "spark.executor.memoryOverhead=200m",
    f"spark.executor.instances={executors}",
    "spark.sql.shuffle.partitions=2",
    "spark.memory.fraction=0.4",
    "spark.sql.adaptive.enabled=false",
    *settings,
]:
    key, _, value = setting.partition("=")
    builder = builder.config(key, value)
spark = builder.getOrCreate()
context = spark.sparkContext
session_s = time.monotonic() - began
context.parallelize(range(1), 1).count()
first_s = time.monotonic() - began
scheduler = context._jsc.sc()
while scheduler.getExecutorMemoryStatus().size() < int(executors) + 1 and time.monotonic() - began < 120:
    time.sleep(0.1)
all_s = time.monotonic() - began
print("ready", flush=True)

count = int(thousands) * 1000
rows = spark.range(0, count, 1, 8).selectExpr("id", "concat(md5(cast(id as string)), md5(cast(-id as string))) as text")
began_sort = time.monotonic()
seen = Observation()
ordered = rows.orderBy("text").observe(seen, functions.count(functions.lit(1)).alias("rows"))
numbered = ordered.selectExpr("text", "monotonically_increasing_id() as place")
texts = [row.text for row in numbered.where(f"place % {SAMPLE} = 0").collect()]
sort_s = time.monotonic() - began_sort
api = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
stages = json.load(urllib.request.urlopen(f"{api}/stages"))
print(
    json.dumps(
        {
            "is_right": seen.get["rows"] == count and len(texts) >= count // SAMPLE and texts == sorted(texts),
            "session_s": round(session_s, 1),
            "first_s": round(first_s, 1),
            "all_s": round(all_s, 1),
            "sort_s": round(sort_s, 1),
            "spilled": sum(stage["diskBytesSpilled"] for stage in stages),
            "failed_tasks": sum(stage["numFailedTasks"] for stage in stages),
            "attempts": max(stage["attemptId"] for stage in stages) + 1,
        }
    ),
    flush=True,
)
spark.stop()

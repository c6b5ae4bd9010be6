"""Writes shuffle files, waits until the file ``go`` exists, then reads them again: arguments are the master, the jar, a
folder, and settings as KEY=VALUE.

Prints lines of JSON: when the files are written, and at the end the sum and the attempts of stages.
"""

import json
import sys
import time
import urllib.request
from pathlib import Path

from pyspark import SparkConf, SparkContext

master, jar, folder, *settings = sys.argv[1:]
conf = SparkConf().setAppName("rounds").setMaster(master).set("spark.driver.extraClassPath", jar)
conf.setAll([tuple(setting.split("=", 1)) for setting in settings])
context = SparkContext(conf=conf)
pairs = context.parallelize(range(400_000), 8).map(lambda i: (i % 1000, i)).reduceByKey(lambda a, b: a + b, 8)
print(
    json.dumps({"keys": pairs.count(), "executors": context._jsc.sc().getExecutorMemoryStatus().size() - 1}), flush=True
)
while not (Path(folder) / "go").exists():
    time.sleep(0.2)
total = pairs.map(lambda pair: pair[1]).sum()
api = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
stages = json.load(urllib.request.urlopen(f"{api}/stages"))
executors = json.load(urllib.request.urlopen(f"{api}/allexecutors"))
print(
    json.dumps(
        {
            "sum": total,
            "failed_tasks": sum(stage["numFailedTasks"] for stage in stages),
            "tasks": sum(stage["numCompleteTasks"] for stage in stages),
            "removed": sorted(one.get("removeReason", "") for one in executors if not one["isActive"]),
            "executors": sum(one["isActive"] for one in executors) - 1,
        }
    ),
    flush=True,
)
while not (Path(folder) / "end").exists():
    time.sleep(0.2)
print(json.dumps({"executors": context._jsc.sc().getExecutorMemoryStatus().size() - 1}), flush=True)
context.stop()

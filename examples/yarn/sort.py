"""A sort with a shuffle, for `spark-submit --master yarn`: prints the number of rows, and whether they are in order."""

from __future__ import annotations

import sys
from itertools import pairwise

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("sort").getOrCreate()
rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
numbers = spark.sparkContext.parallelize(range(rows), 8).map(lambda number: (number * 7919 % rows, number))
keys = numbers.sortByKey(numPartitions=8).keys().collect()
print(f"sorted {len(keys)} rows: {all(a <= b for a, b in pairwise(keys))}")
spark.stop()

"""Counts words on executors that are pods of a pool. Run it with the Python that has pyspark:

python examples/spark/words.py 127.0.0.1:5398 /tutorial
"""

import sys

from peloton.integrations.spark import peloton_session

address, pool = sys.argv[1:]
spark = (
    peloton_session(address, pool)
    .appName("words")
    .config("spark.driver.memory", "512m")
    .config("spark.executor.memory", "512m")
    .config("spark.executor.instances", "2")
    .getOrCreate()
)
lines = spark.sparkContext.parallelize(["to be or not", "to be", "that is"] * 1000, 4)
counts = lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
for word, count in sorted(counts.collect()):
    print(word, count)
spark.stop()

"""Copies the words of text files, a file per batch, from a folder to another with a checkpoint; ends after the last."""

import sys

from pyspark.sql import SparkSession

source, sink, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("stream").config("spark.ui.showConsoleProgress", "false").getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", "1").text(source)
words = lines.selectExpr("explode(split(value, ' ')) as word")
query = (
    words.writeStream.format("text")
    .option("path", sink)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()

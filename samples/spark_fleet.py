"""A model for every key in Spark Structured Streaming: `kbnn.step` in its keyed state.

    pip install kbnn pyspark pandas pyarrow      (and Java 17)
    python samples/spark_fleet.py readings/ forecasts/

reads every CSV file that is in `readings/` (columns device, row, a, b, y), a file at a time, lets
the model of each device forecast its rows and then learn them, and writes what was said to
`forecasts/`. The state of a device is the bytes of its model file: Spark's checkpoints keep it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import kbnn

READ = "device string, row long, a double, b double, y double"
SAID = "device string, row long, y double, mean double, sd double"

learn = partial(
    kbnn.step,
    target="y",
    features=["a", "b"],
    task="regression",
    layers=10,
    covariance="neuron",
    rehearse="off",
)


def update(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Forecast the new rows of a device, then learn them; Spark sends them in any order."""
    known = state.get[0] if state.exists else None
    rows = pd.concat(list(frames)).sort_values("row")
    known, said = learn(known, rows[["a", "b", "y"]])
    state.update((known,))
    told = {"device": key[0], "row": rows["row"], "y": rows["y"]}
    yield pd.DataFrame({**told, "mean": said["mean"], "sd": said["sd"]})


def main(readings: str, forecasts: str) -> int:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need the same packages
    spark = SparkSession.builder.appName("kbnn fleet").master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = spark.readStream.schema(READ).option("header", True).option("maxFilesPerTrigger", 1)
    said = (
        rows.csv(readings)
        .groupBy("device")
        .applyInPandasWithState(update, SAID, "model binary", "append", GroupStateTimeout.NoTimeout)
    )
    writer = said.writeStream.format("csv").outputMode("append").option("header", True)
    writer = writer.option("checkpointLocation", f"{forecasts}/state").option("path", forecasts)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    done = spark.read.schema(SAID).option("header", True).csv(forecasts)
    done.groupBy("device").count().orderBy("device").show()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:3]))

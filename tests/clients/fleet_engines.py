"""Asks the same questions in SQL of the same tables with several engines, and holds their rows equal.

fleet_engines.py HEAPTRACE STORE ENGINE...: DuckDB is asked always, the engines (spark, datafusion) beside it. Prints how
many rows each question has and how long each engine took.
"""

import decimal
import json
import math
import os
import subprocess
import sys
import time

import duckdb

heaptrace, store, *engines = sys.argv[1:]
root = store.removeprefix("file://") + "/data/v1"
QUESTIONS = ["top", "leaks", "regress", "outliers", "budget", "minutes"]
if not os.path.exists(root + "/site_minutes"):
    print("no table of minutes: that question is left out", file=sys.stderr)
    QUESTIONS.remove("minutes")
ROWS = 100_000


def statements(question, *options):
    command = [heaptrace, "fleet", "sql", store, question, "-n", str(ROWS), *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [statement for statement in text.split(";\n") if statement.strip()]


def plain(value):
    """Engines differ in what they call a number, and in the last digits of sums of fractions."""
    if isinstance(value, (decimal.Decimal, float)):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return float(f"{value:.9g}") if abs(value) > 2**53 else float(value)
    return bytes(value).hex() if isinstance(value, (bytes, bytearray, memoryview)) else value


def rows(found):
    return sorted((json.dumps([plain(value) for value in row]) for row in found))


class DuckDB:
    def ask(self, question):
        connection = duckdb.connect()
        *tables, select = statements(question)
        for table in tables:
            connection.execute(table)
        return connection.execute(select).fetchall()

    def stop(self):
        pass


class Spark:
    def __init__(self):
        from pyspark.sql import SparkSession

        # Executors are programs of their own, as in a cluster.
        master = os.environ.get("SPARK_MASTER", "local-cluster[2,1,1024]")
        builder = SparkSession.builder.master(master).appName("fleet").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        self.spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def ask(self, question):
        *tables, select = statements(question, "--engine", "spark")
        for table in tables:
            self.spark.sql(table)
        return [tuple(row) for row in self.spark.sql(select).collect()]

    def stop(self):
        # Else its executors start anew while the process ends.
        self.spark.stop()


class DataFusion:
    def ask(self, question):
        import datafusion
        import pyarrow as arrow
        import pyarrow.dataset as dataset

        context = datafusion.SessionContext()
        keys = arrow.schema([(key, arrow.string()) for key in ["service", "version", "day", "recording"]])
        parts = dataset.partitioning(keys, flavor="hive")
        for table in os.listdir(root):
            if not table.startswith("_"):
                context.register_dataset(table, dataset.dataset(f"{root}/{table}", partitioning=parts))
        [select] = statements(question, "--without-tables")
        return [tuple(row.values()) for batch in context.sql(select).collect() for row in batch.to_pylist()]

    def stop(self):
        pass


answers = {}
for name in ["duckdb", *engines]:
    engine = {"duckdb": DuckDB, "spark": Spark, "datafusion": DataFusion}[name]()
    for question in QUESTIONS:
        began = time.monotonic()
        found = rows(engine.ask(question))
        took = time.monotonic() - began
        expected = answers.setdefault(question, found)
        if found != expected:
            for row in sorted(set(found) ^ set(expected))[:6]:
                print(f"{name}: {question}: only {'here' if row in found else 'in DuckDB'}: {row}", file=sys.stderr)
            sys.exit(f"{name} answers {question} with {len(found)} rows, DuckDB with {len(expected)}")
        print(f"{name:10} {question:9} {len(found):7} rows  {took:6.1f} s", file=sys.stderr)
    engine.stop()
totals = {question: len(found) for question, found in answers.items()}
# What `heaptrace fleet top` says is the same.
totals["top_rows"] = sorted(json.loads(row)[:2] for row in answers["top"])
if "minutes" in answers:
    totals["grown_bytes"] = sum(json.loads(row)[6] for row in answers["minutes"])
print(json.dumps(totals))

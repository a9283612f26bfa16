"""Reads the tables of a Parquet export with Spark, whose types are given and not taken from the files, and with DuckDB:
all tables must have equal rows in number, and equal sums of each column of numbers.

spark_types.py FOLDER
"""

import pathlib
import sys

import duckdb
import pyarrow as arrow
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession

[folder] = sys.argv[1:]


def spark_type(kind):
    if arrow.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if arrow.types.is_fixed_size_binary(kind):
        return "binary"
    # No type is unsigned: Spark has none, and reads such files as numbers of another width.
    return {"int64": "bigint", "string": "string", "bool": "boolean", "double": "double"}[str(kind)]


quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[1]").config(map=quiet).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for path in sorted(pathlib.Path(folder).glob("*.parquet")):
    fields = [(field.name, spark_type(field.type)) for field in parquet.read_schema(path)]
    table = spark.read.schema(", ".join(f"`{name}` {kind}" for name, kind in fields)).parquet(str(path))
    numbers = [name for name, kind in fields if kind == "bigint"]
    table.createOrReplaceTempView("given")
    # As text: a sum of addresses is more than 64 bits.
    sums = [f"cast(sum(cast({{0}}{name}{{0}} as decimal(38, 0))) as {{1}})" for name in numbers]
    columns = ", ".join(["cast(count(*) as {1})", *sums])
    by_spark = tuple(spark.sql(f"select {columns.format('`', 'string')} from given").collect()[0])
    query = f"select {columns.format(chr(34), 'varchar')} from read_parquet('{path}')"
    by_duckdb = duckdb.sql(query).fetchall()[0]
    assert by_spark == by_duckdb, f"{path.name}: {by_spark} {by_duckdb}"
    print(f"spark      {path.stem:15} {by_spark[0]:>7} rows, {len(numbers)} sums")
spark.stop()

"""lineitem without partitions by other writers than Spark: their encodings, page sizes and page versions differ.

A writer is a function of the world, a table's name and the paths of the slices; add it to `WRITERS`
and its benchmark is there. Flink and Trino belong here.
"""

import os

import duckdb as duck
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from . import adding, inputs
from .lake import CATALOG, plain


def pyiceberg(world, table, slices):
    """One append a slice, by pyarrow's writer with PyIceberg's settings."""
    loaded = world.lake.catalog.load_table(table)
    for path in slices:
        loaded.append(pq.read_table(path).cast(schema_to_pyarrow(loaded.schema(), include_field_ids=False)))


def duckdb(world, table, slices):
    """DuckDB's own parquet writer, with field ids, one file a slice; the files are added as they are."""
    loaded = world.lake.catalog.load_table(table)
    folder = f"{plain(loaded.location())}/data"
    os.makedirs(folder, exist_ok=True)
    ids = "{" + ", ".join(f"{field.name}: {field.field_id}" for field in loaded.schema().fields) + "}"
    made = [f"{folder}/duck_{number:05}.parquet" for number in range(len(slices))]
    with duck.connect() as con:
        for path, to in zip(slices, made):
            con.execute(f"COPY (FROM '{path}') TO '{to}' (FORMAT parquet, COMPRESSION zstd, FIELD_IDS {ids})")
    adding.add_files(loaded, made)


WRITERS = {"pyiceberg": pyiceberg, "duckdb": duckdb}


def seed(world, writer, size):
    def make(table):
        world.spark.sql(f"CREATE TABLE {CATALOG}.{table} ({inputs.LINEITEM}) USING iceberg TBLPROPERTIES ({inputs.properties()})")
        WRITERS[writer](world, table, sorted(inputs.slices(world, size).glob("*.parquet")))
        return {"scale": f"SF{size.scale:g}"}

    return world.lake.seed(f"by_{writer}_{size.name}", make)

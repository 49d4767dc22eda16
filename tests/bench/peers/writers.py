"""lineitem without partitions by other writers than Spark: their encodings, page sizes and page versions differ.

A writer is a function of the world, a table's name and the paths of the slices; add it to `WRITERS`
and its benchmark is there. Flink and Trino belong here.
"""

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from . import inputs
from .lake import CATALOG


def pyiceberg(world, table, slices):
    """One append a slice, by pyarrow's writer with PyIceberg's settings."""
    loaded = world.lake.catalog.load_table(table)
    for path in slices:
        loaded.append(pq.read_table(path).cast(schema_to_pyarrow(loaded.schema(), include_field_ids=False)))


def duckdb(world, table, slices):
    """DuckDB's own parquet writer, with field ids, one file a slice; the files are added as they are."""
    import duckdb as duck

    from .adding import add_files

    loaded = world.lake.catalog.load_table(table)
    con = duck.connect()
    ids = "{" + ", ".join(f"{field.name}: {field.field_id}" for field in loaded.schema().fields) + "}"
    made = []
    for number, path in enumerate(slices):
        made.append(f"{inputs_folder(loaded)}/data/duck_{number:05}.parquet")
        con.execute(f"COPY (FROM '{path}') TO '{made[-1]}' (FORMAT parquet, COMPRESSION zstd, FIELD_IDS {ids})")
    add_files(loaded, made)


WRITERS = {"pyiceberg": pyiceberg, "duckdb": duckdb}


def inputs_folder(loaded):
    import pathlib

    from .lake import plain

    folder = plain(loaded.location())
    pathlib.Path(folder, "data").mkdir(parents=True, exist_ok=True)
    return folder


def seed(world, writer, size):
    def make(table):
        world.spark.sql(f"CREATE TABLE {CATALOG}.{table} ({inputs.LINEITEM}) USING iceberg TBLPROPERTIES ({inputs.properties()})")
        WRITERS[writer](world, table, sorted(inputs.slices(world, size).glob("*.parquet")))
        return {"scale": f"SF{size.scale:g}"}

    return world.lake.seed(f"by_{writer}_{size.name}", make)

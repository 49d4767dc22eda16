"""lineitem without partitions by several writers: their encodings, page sizes and page versions differ.

A writer is a function of the world, a table's name and the size; add it to `WRITERS` and its benchmark is there.
Flink and Trino are started as the tests of interoperability start them, by what `tests/run` installs.
"""

import contextlib
import os
import pathlib
import sys
import types

import duckdb as duck
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from . import adding, inputs
from .lake import CATALOG, plain


def spark(world, table, size):
    """One task, and so one file, a slice."""
    world.spark.append(table, inputs.slices(world, size))


def pyiceberg(world, table, size):
    """One append a slice, by pyarrow's writer with PyIceberg's settings."""
    loaded = world.lake.catalog.load_table(table)
    for path in slices(world, size):
        loaded.append(pq.read_table(path).cast(schema_to_pyarrow(loaded.schema(), include_field_ids=False)))


def duckdb(world, table, size):
    """DuckDB's own parquet writer, with field ids, one file a slice; the files are added as they are."""
    loaded = world.lake.catalog.load_table(table)
    folder = f"{plain(loaded.location())}/data"
    os.makedirs(folder, exist_ok=True)
    ids = "{" + ", ".join(f"{field.name}: {field.field_id}" for field in loaded.schema().fields) + "}"
    sources = slices(world, size)
    made = [f"{folder}/duck_{number:05}.parquet" for number in range(len(sources))]
    with duck.connect() as con:
        for path, to in zip(sources, made):
            con.execute(f"COPY (FROM '{path}') TO '{to}' (FORMAT parquet, COMPRESSION zstd, FIELD_IDS {ids})")
    adding.add_files(loaded, made)


def flink(world, table, size):
    """One checkpoint of a streaming job a slice."""
    with engine(world, "flink", "Flink") as (child, home), duck.connect() as con:
        job = child.open(home, table)
        for path in slices(world, size):
            job.upsert(con.execute(f"FROM '{path}'").fetchall())
        job.close()


def trino(world, table, size):
    """One INSERT a slice, from DuckDB's table of the slices: Trino opens no files outside of tables."""
    source = seed(world, "duckdb", size)
    with engine(world, "trino", "Trino") as (child, home):
        asked = child.open(home)
        for path in source.data_files():
            asked.sql(f"INSERT INTO {table} SELECT * FROM seed.{source.name} WHERE \"$path\" = 'file://{path}'")
        counts = [asked.sql(f"SELECT count(*) FROM {name}")[1] for name in (table, f"seed.{source.name}")]
        if counts[0] != counts[1]:
            raise RuntimeError(f"Trino has copied {counts[0]} of {counts[1]} rows")


@contextlib.contextmanager
def engine(world, name, kind):
    """An engine of the tests, and the lake as it knows it."""
    caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    cache = os.environ.setdefault("AFTERWRITE_TEST_CACHE", str(caches / "afterwrite"))
    if not pathlib.Path(cache, "classes", name).exists():
        raise RuntimeError(f"{kind} is not installed: run `tests/run --with true` once")
    tests = str(pathlib.Path(__file__).parents[2] / "interop")
    if tests not in sys.path:
        sys.path.append(tests)
    child = getattr(__import__(name), kind)(world.scratch)
    try:
        yield child, types.SimpleNamespace(folder=world.lake.folder, name=CATALOG, database=world.lake.database, warehouse=world.lake.warehouse)
    finally:
        child.stop()


WRITERS = {"spark": spark, "pyiceberg": pyiceberg, "duckdb": duckdb, "flink": flink, "trino": trino}


def slices(world, size):
    return sorted(inputs.slices(world, size).glob("*.parquet"))


def seed(world, writer, size):
    def make(table):
        world.spark.sql(f"CREATE TABLE {CATALOG}.{table} ({inputs.LINEITEM}) USING iceberg TBLPROPERTIES ({inputs.properties()})")
        WRITERS[writer](world, table, size)
        return {"scale": f"SF{size.scale:g}"}

    return world.lake.seed(f"by_{writer}_{size.name}", make)

"""Spark's Parquet readers, of its own and of Iceberg, in batches and row by row.

Iceberg reads in batches only where all columns are flat, and its property says nothing to Spark's own reader of files:
each way is asked for by itself, and is seen to read in batches or not.
"""

import re

import pyarrow.parquet as pq

SWITCHES = {
    "Iceberg": ["spark.sql.iceberg.vectorization.enabled"],
    # its own reader makes batches for compiled queries alone
    "Spark": ["spark.sql.parquet.enableVectorizedReader", "spark.sql.parquet.enableNestedColumnVectorizedReader", "spark.sql.codegen.wholeStage"],
}
# What a way does not know: its own word for it, and how to tell such a chunk. Anything else must be read.
UNKNOWN = {
    "Iceberg in batches": (r"boolean \w+ = \d+ with encoding RLE", lambda chunk: chunk.physical_type == "BOOLEAN" and "RLE" in chunk.encodings),
    "Iceberg row by row": None,
    "Spark in batches": ("Unsupported encoding: BYTE_STREAM_SPLIT", lambda chunk: "BYTE_STREAM_SPLIT" in chunk.encodings),
    "Spark row by row": None,
}


def ways(lab, table, path):
    """Of each way: its name, the columns that it knows, and their rows."""
    session = lab.spark.session
    schema = session.table(f"{lab.spark.catalog}.{table}").schema
    flat = [f.name for f in schema if f.dataType.typeName() not in ("array", "map", "struct")]
    for way in UNKNOWN:
        engine, batches = way.split(" ")[0], way.endswith("in batches")
        for switch in SWITCHES[engine]:
            session.conf.set(switch, str(batches).lower())
        source = session.table(f"{lab.spark.catalog}.{table}") if engine == "Iceberg" else session.read.schema(schema).parquet(path)
        columns, rows = known(source, way, flat if way == "Iceberg in batches" else schema.names, path)
        for switch in SWITCHES[engine]:
            session.conf.unset(switch)
        if columns:
            yield way, columns, rows


def known(source, way, columns, path):
    """The columns that a way reads, and their rows: all, or those without what it refuses by name."""
    try:
        return columns, rows_of(source, way, columns)
    except Exception as refused:
        word, told = UNKNOWN[way] or ("nothing", None)
        assert re.search(word, str(refused)), f"{way} refuses {path}: {refused}"
        left = [name for name in columns if name not in having(path, told)]
        print(f"{way} reads {left} of {columns}: {word}")
        return left, rows_of(source, way, left) if left else None


def rows_of(source, way, columns):
    frame = source.select(*(f"`{name}`" for name in columns))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert (("ColumnarToRow" if way.startswith("Iceberg") else "Batched: true") in plan) == way.endswith("in batches"), f"{way}: {plan}"
    return frame.toArrow()


def having(path, told):
    """Columns of the table with a chunk of which that can be told."""
    footer = pq.read_metadata(path)
    groups = map(footer.row_group, range(footer.num_row_groups))
    return {chunk.path_in_schema.split(".")[0] for group in groups for chunk in map(group.column, range(group.num_columns)) if told(chunk)}

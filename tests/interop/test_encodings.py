"""One table for each engine's way of writing Parquet: its encodings, codecs and page versions, compacted and read by all."""

import datetime as dt
import decimal
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

import engines
import files
import prune

ROWS = 2400
FILES = 4
COLUMNS = "id BIGINT, few STRING, many STRING, falls BIGINT, f DOUBLE, d DECIMAL(15,3), b BOOLEAN, day DATE, ts TIMESTAMP_NTZ, late STRING"
ALL = ("pyiceberg", "duckdb", "trino")


def values(n):
    """Row `n`: a small dictionary, distinct texts, a dictionary that falls back, floats with both zeros, a column that starts late."""
    return {
        "id": n, "few": f"v{n % 40}", "many": None if n % 11 == 0 else f"text {n}", "falls": n % 3 if n < 4000 else n * 7919, "f": None if n % 13 == 0 else n / 8 if n % 5 else -0.0,
        "d": decimal.Decimal(n * 77).scaleb(-3), "b": n % 2 == 0, "day": dt.date(1965, 1, 1) + dt.timedelta(days=n % 9000), "ts": dt.datetime(2024, 2, 29) + dt.timedelta(seconds=n, microseconds=n),
        "late": None if n < 5000 else f"late {n % 7}",
    }


SQL = {
    "few": "concat('v', CAST(id % 40 AS {text}))", "many": "CASE WHEN id % 11 = 0 THEN NULL ELSE concat('text ', CAST(id AS {text})) END",
    "falls": "CASE WHEN id < 4000 THEN id % 3 ELSE id * 7919 END", "f": "CASE WHEN id % 13 = 0 THEN NULL WHEN id % 5 = 0 THEN CAST('-0.0' AS DOUBLE) ELSE CAST(id AS DOUBLE) / 8 END",
    "d": "CAST(CAST(id * 77 AS DECIMAL(18,0)) / 1000 AS DECIMAL(15,3))", "b": "id % 2 = 0", "day": "{day}", "ts": "{ts}",
    "late": "CASE WHEN id < 5000 THEN NULL ELSE concat('late ', CAST(id % 7 AS {text})) END",
}
DIALECTS = {
    "spark": {"text": "STRING", "day": "date_add(DATE'1965-01-01', CAST(id % 9000 AS INT))", "ts": "CAST(timestamp_micros(1709164800000000 + id * 1000001) AS TIMESTAMP_NTZ)"},
    "trino": {"text": "VARCHAR", "day": "date_add('day', id % 9000, DATE '1965-01-01')", "ts": "CAST(from_unixtime_nanos(1709164800000000000 + id * 1000001000) AS TIMESTAMP(6))"},
    "duckdb": {"text": "VARCHAR", "day": "DATE '1965-01-01' + (id % 9000)::INTEGER", "ts": "make_timestamp(1709164800000000 + id * 1000001)"},
}


def select(dialect, numbers):
    columns = ", ".join(f"{text.format(**DIALECTS[dialect])} AS {name}" for name, text in SQL.items())
    return f"SELECT id, {columns} FROM {numbers}"


def create(lab, table, codec="zstd", extra=""):
    lab.spark.sql(f"CREATE TABLE lake.db.{table} ({COLUMNS}) USING iceberg TBLPROPERTIES ('format-version'='2', 'write.parquet.compression-codec'='{codec}' {extra})")


def spans():
    return [(i * ROWS, (i + 1) * ROWS) for i in range(FILES)]


def append_pyiceberg(lab, table):
    loaded = lab.pyiceberg.catalog.load_table(f"db.{table}")
    for first, end in spans():
        loaded.append(pa.Table.from_pylist([values(n) for n in range(first, end)], schema=loaded.schema().as_arrow()))


def prove(lab, trino, table, path="re-pack", before=ALL):
    """Read by all; `before`: by whom the files can be read as they were written, besides Spark."""
    results = lab.prove(f"db.{table}", confirm=ALL, before_confirm=before, landed=1)
    found = [(r["path"], r["files_in"], r["rows"]) for r in results]
    assert found == [(path, FILES, FILES * ROWS)], [r["path_reason"] for r in results]
    prune.check(lab, f"db.{table}", trino)


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4"])
def test_spark_writes(lab, trino, codec):
    create(lab, f"spark_{codec}", codec, ", 'write.parquet.page-row-limit'='1200', 'write.parquet.dict-size-bytes'='20000'")
    for first, end in spans():
        lab.spark.sql(f"INSERT INTO lake.db.spark_{codec} {select('spark', f'(SELECT nullif(id, -1) AS id FROM range({first}, {end}, 1, 1))')}")
    # in Hadoop's frames, which neither PyArrow nor DuckDB reads
    hadoop = codec == "lz4"
    prove(lab, trino, f"spark_{codec}", path="re-encode" if hadoop else "re-pack", before=("trino",) if hadoop else ALL)


@pytest.mark.parametrize("codec", ["snappy", "uncompressed"])
def test_trino_writes(lab, trino, codec):
    create(lab, f"trino_{codec}", codec)
    for first, end in spans():
        numbers = f"(SELECT CAST(id AS BIGINT) AS id FROM UNNEST(sequence({first}, {end - 1})) AS t (id))"
        trino.sql(f"INSERT INTO trino_{codec} {select('trino', numbers)}")
    assert sum(f["record_count"] for f in lab.spark.files(f"db.trino_{codec}")) == ROWS * FILES
    prove(lab, trino, f"trino_{codec}")


@pytest.mark.parametrize("codec", ["snappy", "lz4"])
def test_pyiceberg_writes(lab, trino, codec):
    create(lab, f"pyiceberg_{codec}", codec)
    append_pyiceberg(lab, f"pyiceberg_{codec}")
    # Trino stumbles over the LZ4 blocks that PyArrow makes
    prove(lab, trino, f"pyiceberg_{codec}", before=("pyiceberg", "duckdb") if codec == "lz4" else ALL)


def test_pyiceberg_writes_brotli_that_spark_cannot_read(lab, trino):
    create(lab, "brotli", "brotli")
    append_pyiceberg(lab, "brotli")
    lab.spark.sql("ALTER TABLE lake.db.brotli SET TBLPROPERTIES ('write.parquet.compression-codec'='zstd')")
    before = lab.pyiceberg.digest("db.brotli")
    results = lab.afterwrite.compact("db.brotli")
    assert [(r["path"], r["files_in"], r["rows"]) for r in results] == [("re-pack", FILES, FILES * ROWS)], results
    assert set(lab.digests("db.brotli", ALL).values()) == {before}
    prune.check(lab, "db.brotli", trino)


def test_pages_of_the_second_version_and_newer_encodings(lab, trino):
    create(lab, "second")
    schema = schema_to_pyarrow(lab.pyiceberg.catalog.load_table("db.second").schema())
    # not RLE for booleans, which Iceberg does not read in batches
    encodings = {name: "DELTA_BINARY_PACKED" for name in ("id", "falls", "d", "day", "ts")} | {"few": "DELTA_BYTE_ARRAY", "many": "DELTA_LENGTH_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT", "b": "PLAIN", "late": "DELTA_BYTE_ARRAY"}
    paths = [f"{lab.home.warehouse}/db/second/data/{first}.parquet" for first, _ in spans()]
    os.makedirs(os.path.dirname(paths[0]))
    for path, (first, end) in zip(paths, spans()):
        rows = pa.Table.from_pylist([values(n) for n in range(first, end)], schema=schema)
        pq.write_table(rows, path, data_page_version="2.0", use_dictionary=False, column_encoding=encodings, store_decimal_as_integer=True, data_page_size=8000, write_page_index=True)
    files.append(lab, "second", paths)
    prove(lab, trino, "second")
    [output] = lab.parquet("db.second")
    assert {e for column in range(len(schema)) for e in pq.read_metadata(output).row_group(0).column(column).encodings} >= set(encodings.values())


def test_flink_writes(lab, trino, flink):
    create(lab, "flink", "gzip")
    job = flink.open(lab.home, "db.flink")
    for first, end in spans():
        job.upsert([list(values(n).values()) for n in range(first, end)])
    job.close()
    prove(lab, trino, "flink")


def test_duckdb_writes(lab, trino):
    create(lab, "duck")
    rest = engines.RestCatalog(lab.home)
    try:
        inserts = [f"INSERT INTO ice.db.duck {select('duckdb', f'(SELECT range AS id FROM range({first}, {end}))')}" for first, end in spans()]
        lab.duckdb.run(rest.attach(), *inserts)
    finally:
        rest.stop()
    prove(lab, trino, "duck")


def test_all_engines_write_one_table(lab, trino, flink):
    create(lab, "all_engines")
    (a, b), (c, d), (e, f), *_ = spans()
    lab.spark.sql(f"INSERT INTO lake.db.all_engines {select('spark', f'(SELECT nullif(id, -1) AS id FROM range({a}, {b}, 1, 1))')}")
    trino.sql(f"INSERT INTO all_engines {select('trino', f'(SELECT CAST(id AS BIGINT) AS id FROM UNNEST(sequence({c}, {d - 1})) AS t (id))')}")
    job = flink.open(lab.home, "db.all_engines")
    job.upsert([list(values(n).values()) for n in range(e, f)])
    job.close()
    loaded = lab.pyiceberg.catalog.load_table("db.all_engines")
    for first, end in spans()[3:]:
        loaded.append(pa.Table.from_pylist([values(n) for n in range(first, end)], schema=loaded.schema().as_arrow()))
    assert lab.spark.digest("db.all_engines") == lab.pyiceberg.digest("db.all_engines") == lab.trino.digest("db.all_engines")
    prove(lab, trino, "all_engines")


def test_h67_what_trino_analyzed_is_known_after_a_compaction(lab, trino):
    lab.spark.sql("CREATE TABLE lake.db.analyzed (id BIGINT, v STRING) USING iceberg")
    for i in range(6):
        lab.spark.sql(f"INSERT INTO lake.db.analyzed SELECT id, concat('v', id % 17) FROM range({i * 100}, {i * 100 + 100}, 1, 1)")
    trino.sql("ANALYZE analyzed")

    def statistics():
        names, found = trino.sql("SHOW STATS FOR analyzed")
        # bytes of a column are those of its files
        return [{name: value for name, value in zip(names, row) if name != "data_size"} for row in found]

    before = statistics()
    distinct = {row["column_name"]: row["distinct_values_count"] for row in before}
    assert (distinct["id"], distinct["v"]) == (600, 17), before
    assert [bool(r.get("snapshot_id")) for r in lab.afterwrite.compact("db.analyzed")] == [True]
    assert statistics() == before

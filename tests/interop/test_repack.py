"""Files re-packed page by page, or spliced of whole row groups: every reader sees the rows of the files before, vectorized or not."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batches
import files
import prune

ROWS = 6000


def write(lab, table, commits, columns, rows=ROWS):
    """Every expression may be NULL: Spark writes a column that cannot be as a required one, which is another schema."""
    for i in range(commits):
        numbers = f"(SELECT nullif(id, -1) AS id FROM range({i * rows}, {(i + 1) * rows}, 1, 1))"
        lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT {columns} FROM {numbers}")


def repacked(lab, table, path="re-pack", **how):
    results = lab.prove(f"db.{table}", **how)
    assert {r["path"] for r in results if r.get("snapshot_id")} == {path}, [r.get("path_reason") for r in results]
    [file] = lab.spark.files(f"db.{table}")
    local = file["file_path"].removeprefix("file:")
    # Spark's names of types, and rows that PyArrow has read with their checksums
    whole = files.read(local).cast(lab.spark.sql(f"SELECT * FROM lake.db.{table} LIMIT 0").toArrow().schema)
    assert whole.num_rows == file["record_count"]
    for way, columns, rows in batches.ways(lab, f"db.{table}", local):
        assert columns == [f.name for f in whole.schema if way != "Iceberg in batches" or not f.type.num_fields], f"{way} refuses the others"
        assert rows.equals(whole.select(columns)), f"{way} sees other rows than PyArrow"
    return results


FLAT = (
    "id, concat('v', id % 40) AS few, IF(id % 11 = 0, NULL, concat('text ', id)) AS many, "
    "CASE WHEN id < 9000 THEN id % 3 ELSE id * 7919 END AS falls_back, CAST(id % 100 AS DECIMAL(20,3)) AS d, id / 3 AS f, id % 2 = 0 AS b, "
    "IF(id < 12000, NULL, DATE'2024-02-29') AS late, CAST(NULL AS STRING) AS never"
)
TYPES = "id BIGINT, few STRING, many STRING, falls_back BIGINT, d DECIMAL(20,3), f DOUBLE, b BOOLEAN, late DATE, never STRING"


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip"])
@pytest.mark.parametrize("dictionary", [2 << 20, 20_000])
def test_spark_writes_flat_columns(lab, codec, dictionary):
    table = f"flat_{codec}_{dictionary}"
    lab.spark.sql(
        f"CREATE TABLE lake.db.{table} ({TYPES}) USING iceberg TBLPROPERTIES ('format-version'='2', "
        f"'write.parquet.compression-codec'='{codec}', 'write.parquet.dict-size-bytes'='{dictionary}', 'write.parquet.page-row-limit'='1500')"
    )
    write(lab, table, 5, FLAT)
    repacked(lab, table, landed=1)
    for where in ["many = 'text 12001'", "few = 'v7'", "falls_back = 9100 * 7919", "late IS NOT NULL AND id % 1000 = 0", "d > 98"]:
        counts = []
        for vectorized in ["true", "false"]:
            lab.spark.session.conf.set("spark.sql.iceberg.vectorization.enabled", vectorized)
            counts.append(lab.spark.sql(f"SELECT count(*) FROM lake.db.{table} WHERE {where}").collect()[0][0])
        expected = lab.spark.sql(f"SELECT count(*) FROM (SELECT {FLAT} FROM range({5 * ROWS})) WHERE {where}").collect()[0][0]
        assert counts == [expected, expected], where


def test_spark_writes_nested_columns(lab):
    lab.spark.sql(
        "CREATE TABLE lake.db.nested (id BIGINT, l ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<a: INT, l: ARRAY<BIGINT>>) USING iceberg "
        "TBLPROPERTIES ('format-version'='2', 'write.parquet.page-row-limit'='1500')"
    )
    columns = (
        "id, IF(id % 5 = 0, NULL, array_repeat(concat('v', id % 30), CAST(id % 4 AS INT))) AS l, map(concat('k', id % 7), CAST(id AS INT)) AS m, "
        "IF(id % 9 = 0, NULL, named_struct('a', CAST(id % 50 AS INT), 'l', transform(sequence(1, id % 6 + 1), x -> nullif(x, -1)))) AS s"
    )
    write(lab, "nested", 4, columns)
    repacked(lab, "nested", landed=1)


def test_pyiceberg_and_spark_write_one_table(lab):
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("f", pa.float64())])
    table = lab.pyiceberg.catalog.create_table("db.mixed", schema, properties={"write.parquet.compression-codec": "snappy"})
    for i in range(3):
        numbers = range(i * ROWS, (i + 1) * ROWS)
        table.append(pa.table({"id": numbers, "v": [f"v{n % 30}" for n in numbers], "f": [n / 7 if n % 5 else None for n in numbers]}, schema=schema))
    lab.spark.sql("ALTER TABLE lake.db.mixed SET TBLPROPERTIES ('write.parquet.compression-codec'='zstd')")
    write(lab, "mixed", 3, "id, concat('w', id % 50) AS v, id / 3 AS f")
    repacked(lab, "mixed", landed=1)
    prune.check(lab, "db.mixed")


@pytest.mark.parametrize("rows", [200, ROWS])
@pytest.mark.parametrize("dictionary", [2 << 20, 20_000])
def test_rows_deleted_by_position_are_cut_from_pages(lab, rows, dictionary):
    table = f"cut_{rows}_{dictionary}"
    lab.spark.sql(
        f"CREATE TABLE lake.db.{table} ({TYPES}, l ARRAY<STRING>) USING iceberg TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read', "
        f"'write.parquet.dict-size-bytes'='{dictionary}', 'write.parquet.page-row-limit'='1500')"
    )
    columns = FLAT + ", IF(id % 5 = 0, NULL, array_repeat(concat('v', id % 30), CAST(id % 4 AS INT))) AS l"
    for i in range(5):
        numbers = f"(SELECT nullif(id, -1) AS id FROM range({i * rows}, {(i + 1) * rows}, 1, 1))"
        lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT {columns} FROM {numbers}")
    gone = f"id % 21 = 4 OR (id BETWEEN {rows} AND {rows + 150}) OR id = 0"
    lab.spark.sql(f"DELETE FROM lake.db.{table} WHERE {gone}")
    repacked(lab, table, before_confirm=("duckdb",), landed=1)
    if dictionary < 1 << 20 and rows == ROWS:  # once
        prune.check(lab, f"db.{table}")
    expected = f"(SELECT {columns} FROM range({5 * rows}) WHERE NOT ({gone}))"
    for what in ["count(*)", "min(id)", "max(id)", "min(d)", "max(f)", "min(many)", "max(late)", "count(never)", "sum(falls_back)"]:
        found = lab.spark.sql(f"SELECT {what} FROM lake.db.{table}").collect()[0][0]
        assert found == lab.spark.sql(f"SELECT {what} FROM {expected}").collect()[0][0], what


def test_a_table_that_wants_bloom_filters_gets_them(lab):
    wants = ", ".join(f"'write.parquet.bloom-filter-enabled.column.{name}'='true'" for name in ("id", "many"))
    lab.spark.sql(f"CREATE TABLE lake.db.blooms ({TYPES}) USING iceberg TBLPROPERTIES ('format-version'='2', {wants})")
    write(lab, "blooms", 3, FLAT, rows=500)
    results = repacked(lab, "blooms", landed=1)
    assert "2 columns are encoded anew: the table wants bloom filters" in results[0]["path_reason"]
    prune.check(lab, "db.blooms")


def test_pages_of_tiny_files_are_put_together(lab):
    table = "tiny"
    lab.spark.sql(f"CREATE TABLE lake.db.{table} ({TYPES}) USING iceberg TBLPROPERTIES ('format-version'='2')")
    for i in range(12):
        lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT {FLAT} FROM (SELECT nullif(id, -1) AS id FROM range({i * 90}, {(i + 1) * 90}, 1, 1))")
    repacked(lab, table, landed=1)
    [file] = lab.spark.files(f"db.{table}")
    footer = pq.ParquetFile(file["file_path"].removeprefix("file:")).metadata
    assert (footer.num_row_groups, footer.num_rows) == (1, 12 * 90)


HEALTHY = 125_000


@pytest.mark.parametrize("writer", ["spark", "pyiceberg"])
def test_row_groups_that_are_large_enough_are_spliced_whole(lab, writer):
    table = f"spliced_{writer}"
    lab.spark.sql(f"CREATE TABLE lake.db.{table} (id BIGINT, few STRING, many STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    if writer == "spark":
        write(lab, table, 2, "id, concat('v', id % 40) AS few, IF(id % 11 = 0, NULL, concat('text ', id)) AS many", rows=HEALTHY)
    else:
        loaded = lab.pyiceberg.catalog.load_table(f"db.{table}")
        for i in range(2):
            ids = range(i * HEALTHY, (i + 1) * HEALTHY)
            loaded.append(pa.table({"id": ids, "few": [f"v{n % 40}" for n in ids], "many": [f"text {n}" if n % 11 else None for n in ids]}))
    groups = sorted(row_groups(lab, table))
    repacked(lab, table, path="splice", landed=1)
    assert len(lab.spark.files(f"db.{table}")) == 1
    assert (len(groups), sorted(row_groups(lab, table))) == (2, groups), "row groups were not copied as they are"


@pytest.mark.parametrize("writer", ["spark", "pyiceberg"])
def test_healthy_row_groups_are_copied_between_small_ones_that_are_joined(lab, writer):
    table = f"between_{writer}"
    columns = "id, concat('v', id % 40) AS few, IF(id % 11 = 0, NULL, concat('text ', id)) AS many"
    small = {"spark": ("write.parquet.row-group-size-bytes", 300_000), "pyiceberg": ("write.parquet.row-group-limit", 40_000)}[writer]
    lab.spark.sql(f"CREATE TABLE lake.db.{table} (id BIGINT, few STRING, many STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    # the files' order is that of their paths, which is not known: each is enough to be joined with itself
    lab.spark.sql(f"ALTER TABLE lake.db.{table} SET TBLPROPERTIES ('{small[0]}'='{small[1]}', 'write.parquet.row-group-check-min-record-count'='1000')")
    for commit in range(3):
        if commit == 2:
            lab.spark.sql(f"ALTER TABLE lake.db.{table} UNSET TBLPROPERTIES ('{small[0]}')")
        if writer == "spark":
            numbers = f"(SELECT nullif(id, -1) AS id FROM range({commit * HEALTHY}, {(commit + 1) * HEALTHY}, 1, 1))"
            lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT {columns} FROM {numbers}")
        else:
            ids = range(commit * HEALTHY, (commit + 1) * HEALTHY)
            rows = pa.table({"id": ids, "few": [f"v{n % 40}" for n in ids], "many": [f"text {n}" if n % 11 else None for n in ids]})
            lab.pyiceberg.catalog.load_table(f"db.{table}").append(rows)
    sizes = lambda: [(rows, [(codec, *bytes) for codec, _, *bytes in columns]) for rows, columns in row_groups(lab, table)]  # noqa: E731
    [healthy] = [group for group in sizes() if group[0] == HEALTHY]
    results = repacked(lab, table, landed=1)
    assert results[0]["path_reason"].endswith("; 1 healthy row groups are copied whole"), results[0]["path_reason"]
    found = sizes()
    assert healthy in found and sum(rows for rows, _ in found) == 3 * HEALTHY and len(found) in (2, 3)
    prune.check(lab, f"db.{table}")


def row_groups(lab, table):
    """Of each row group: rows, and of its columns the codec, encodings and bytes."""
    for file in lab.spark.files(f"db.{table}"):
        footer = pq.ParquetFile(file["file_path"].removeprefix("file:")).metadata
        for group in map(footer.row_group, range(footer.num_row_groups)):
            columns = [group.column(i) for i in range(group.num_columns)]
            yield group.num_rows, [(c.compression, sorted(set(c.encodings)), c.total_compressed_size, c.total_uncompressed_size) for c in columns]

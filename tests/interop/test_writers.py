"""Every engine writes, afterwrite compacts, every engine reads the same rows."""

import datetime as dt
import decimal
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import engines

SMALL = "'write.distribution-mode'='none'"
MERGE_ON_READ = "'write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read','write.merge.mode'='merge-on-read'"


def insert(lab, table, commits=10, rows=50, columns="id, concat('v', id) AS v, id % 3 AS p"):
    for i in range(commits):
        lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT {columns} FROM range({i * rows}, {(i + 1) * rows}, 1, 1)")


def live_data_files(lab, table):
    return len(lab.spark.files(table))


@pytest.mark.parametrize("version", [1, 2])
def test_spark_appends_to_a_partitioned_table(lab, version):
    lab.spark.sql(f"CREATE TABLE lake.db.appends{version} (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version'='{version}')")
    insert(lab, f"appends{version}")
    assert live_data_files(lab, f"db.appends{version}") == 30
    results = lab.prove(f"db.appends{version}", landed=3)
    assert live_data_files(lab, f"db.appends{version}") == 3
    assert sorted(r["files_in"] for r in results) == [10, 10, 10]
    assert sorted(r["rows"] for r in results) == [166, 167, 167]


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_spark_merge_on_read_deletes_updates_and_merges(lab, granularity):
    table = f"mor_{granularity}"
    lab.spark.sql(
        f"CREATE TABLE lake.db.{table} (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES ('format-version'='2', 'write.delete.granularity'='{granularity}', {MERGE_ON_READ})"
    )
    insert(lab, table)
    lab.spark.sql(f"DELETE FROM lake.db.{table} WHERE id % 7 = 0")
    lab.spark.sql(f"UPDATE lake.db.{table} SET v = 'updated' WHERE id % 11 = 0")
    lab.spark.sql(
        f"MERGE INTO lake.db.{table} t USING (SELECT id * 5 AS id FROM range(0, 60)) s ON t.id = s.id "
        "WHEN MATCHED AND t.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'merged'"
    )
    assert len(lab.spark.files(f"db.{table}", "delete_files")) > 0
    lab.prove(f"db.{table}", landed=3)
    assert lab.spark.files(f"db.{table}", "delete_files") == [], "deletes that cover nothing go with the data they covered"


def test_partition_evolution_keeps_files_of_two_specs_apart(lab):
    lab.spark.sql("CREATE TABLE lake.db.evolved (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version'='2')")
    insert(lab, "evolved")
    lab.spark.sql("ALTER TABLE lake.db.evolved REPLACE PARTITION FIELD p WITH bucket(2, id)")
    insert(lab, "evolved")
    lab.prove("db.evolved", landed=5)
    assert sorted(f["spec_id"] for f in lab.spark.files("db.evolved")) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_merge_on_read_deletes_in_files_of_two_specs(lab, granularity):
    table = f"evolved_mor_{granularity}"
    lab.spark.sql(
        f"CREATE TABLE lake.db.{table} (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES ('format-version'='2', 'write.delete.granularity'='{granularity}', {MERGE_ON_READ})"
    )
    insert(lab, table, commits=4)
    lab.spark.sql(f"DELETE FROM lake.db.{table} WHERE id % 7 = 0")
    lab.spark.sql(f"ALTER TABLE lake.db.{table} REPLACE PARTITION FIELD p WITH bucket(2, id)")
    insert(lab, table, commits=4)
    # both statements reach rows of both specs
    lab.spark.sql(f"DELETE FROM lake.db.{table} WHERE id % 7 = 1")
    lab.spark.sql(f"UPDATE lake.db.{table} SET v = 'updated' WHERE id % 11 = 0")
    assert {f["spec_id"] for f in lab.spark.files(f"db.{table}", "delete_files")} == {0, 1}
    lab.prove(f"db.{table}", landed=5)
    assert lab.spark.files(f"db.{table}", "delete_files") == [], "deletes that cover nothing go with the data they covered"
    assert sorted(f["spec_id"] for f in lab.spark.files(f"db.{table}")) == [0, 0, 0, 1, 1]


def test_a_dropped_partition_source_column(lab):
    lab.spark.sql("CREATE TABLE lake.db.dropped (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version'='2')")
    insert(lab, "dropped")
    lab.spark.sql("ALTER TABLE lake.db.dropped DROP PARTITION FIELD p")
    lab.spark.sql("ALTER TABLE lake.db.dropped DROP COLUMN p")
    insert(lab, "dropped", columns="id, concat('v', id) AS v")
    # DuckDB cannot read a table whose partition source column was dropped
    lab.prove("db.dropped", confirm=("pyiceberg",))


def test_a_global_equality_delete_under_a_later_spec_reaches_every_partition(lab):
    lab.spark.sql(f"CREATE TABLE lake.db.global_delete (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version'='2')")
    insert(lab, "global_delete")
    lab.spark.sql("ALTER TABLE lake.db.global_delete DROP PARTITION FIELD p")
    equality_delete(lab, "db.global_delete", [3, 4, 5, 499])
    assert lab.spark.digest("db.global_delete")[0] == 496
    # PyIceberg reads no table with equality deletes: it is asked once none is left
    lab.prove("db.global_delete", confirm=("pyiceberg", "duckdb"), before_confirm=("duckdb",))
    assert lab.spark.digest("db.global_delete")[0] == 496
    assert lab.spark.files("db.global_delete", "delete_files") == []


def test_equality_deletes_with_nulls_and_a_newer_delete(lab):
    lab.spark.sql("CREATE TABLE lake.db.equality (id BIGINT, v STRING, p BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2')")
    insert(lab, "equality", columns="id, IF(id % 10 = 0, NULL, concat('v', id)) AS v, id % 3 AS p")
    equality_delete(lab, "db.equality", [1, 2, 3])
    insert(lab, "equality", commits=1)
    # DuckDB takes an equality delete for one of NULLs too, and PyIceberg reads none: both are asked only once none is left
    lab.prove("db.equality", confirm=("pyiceberg", "duckdb"), before_confirm=())
    assert lab.spark.files("db.equality", "delete_files") == []
    equality_delete(lab, "db.equality", [None, 7])
    assert lab.spark.digest("db.equality")[0] == 500 - 3 + 50 - 2 - 50
    lab.prove("db.equality", confirm=("pyiceberg", "duckdb"), before_confirm=())
    assert lab.spark.files("db.equality", "delete_files") == []


def equality_delete(lab, table, numbers):
    """Writes an equality delete on column `v` (a string: the gateway would turn a long into an int) under the current,
    unpartitioned spec, with Iceberg Java's own writer."""
    jvm = lab.spark.session._jvm
    iceberg = jvm.org.apache.iceberg
    java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lab.spark.session._jsparkSession, f"lake.{table}")
    schema = java.schema().select(["v"])
    location = f"{java.location()}/data/eq-{uuid.uuid4()}.parquet"
    ids_of_key = _ints(lab, [java.schema().findField("v").fieldId()])
    factory = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(java).equalityFieldIds(ids_of_key).equalityDeleteRowSchema(schema).build()
    out = java.io().newOutputFile(location)
    encrypted = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(out)
    writer = factory.newEqualityDeleteWriter(encrypted, java.spec(), None)
    record = iceberg.data.GenericRecord.create(schema)
    for value in numbers:
        row = record.copy()
        row.setField("v", None if value is None else f"v{value}")
        writer.write(row)
    writer.close()
    java.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def _ints(lab, values):
    gateway = lab.spark.session.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.int, len(values))
    for i, v in enumerate(values):
        array[i] = v
    return array


def test_schema_evolution(lab):
    lab.spark.sql(
        "CREATE TABLE lake.db.schema (id INT, gone STRING, f FLOAT, d DECIMAL(5,2), old_name STRING, s STRUCT<a: INT, b: STRING>, m MAP<STRING, INT>, l ARRAY<INT>) "
        "USING iceberg TBLPROPERTIES ('format-version'='2')"
    )
    for i in range(5):
        lab.spark.sql(
            f"INSERT INTO lake.db.schema SELECT CAST(id AS INT), 'x', CAST(id AS FLOAT) / 3, CAST(id AS DECIMAL(5,2)) / 8, concat('n', id), "
            f"named_struct('a', CAST(id AS INT), 'b', 'b'), map('k', CAST(id AS INT)), array(1, NULL, CAST(id AS INT)) FROM range({i * 10}, {i * 10 + 10}, 1, 1)"
        )
    for change in [
        "ALTER COLUMN id TYPE BIGINT", "DROP COLUMN gone", "ALTER COLUMN f TYPE DOUBLE", "ALTER COLUMN d TYPE DECIMAL(12,2)", "RENAME COLUMN old_name TO new_name",
        "ADD COLUMN s.c DOUBLE", "DROP COLUMN s.b", "ALTER COLUMN s.a TYPE BIGINT", "ALTER COLUMN m.value TYPE BIGINT", "ALTER COLUMN l.element TYPE BIGINT", "ADD COLUMN gone DATE",
        "ALTER COLUMN new_name FIRST",
    ]:
        lab.spark.sql(f"ALTER TABLE lake.db.schema {change}")
    for i in range(5):
        lab.spark.sql(
            f"INSERT INTO lake.db.schema SELECT concat('n', id), id + 3000000000, id / 7, CAST(1234567890.12 AS DECIMAL(12,2)), "
            f"named_struct('a', id, 'c', 1.5D), map('k', id), array(id), DATE'2024-02-29' FROM range({i * 10}, {i * 10 + 10}, 1, 1)"
        )
    lab.prove("db.schema")


def test_every_type_that_spark_writes(lab):
    lab.spark.sql(
        "CREATE TABLE lake.db.types (b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, d9 DECIMAL(9,3), d18 DECIMAL(18,0), d38 DECIMAL(38,10), s STRING, x BINARY, dt DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, "
        "st STRUCT<a: STRUCT<b: ARRAY<STRING>>, c: MAP<STRING, STRUCT<e: INT>>>, ll ARRAY<ARRAY<INT>>, mm MAP<INT, ARRAY<STRING>>) USING iceberg TBLPROPERTIES ('format-version'='2')"
    )
    for i in range(6):
        lab.spark.sql(
            f"""INSERT INTO lake.db.types
            SELECT id % 2 = 0, CAST(id - 25 AS INT), id * 1000000007 - 9, CASE id % 4 WHEN 0 THEN FLOAT('NaN') WHEN 1 THEN FLOAT('-0.0') WHEN 2 THEN FLOAT('-Infinity') ELSE FLOAT(id) END,
              CASE id % 4 WHEN 0 THEN DOUBLE('NaN') WHEN 1 THEN DOUBLE('-0.0') WHEN 2 THEN DOUBLE('Infinity') ELSE id / 3 END,
              CAST(id - 25 AS DECIMAL(9,3)) / 7, CAST(-999999999999999999 + id AS DECIMAL(18,0)), CAST('-1234567890123456789012345678.0123456789' AS DECIMAL(38,10)) + id,
              CASE id % 5 WHEN 0 THEN '' WHEN 1 THEN NULL WHEN 2 THEN 'ü€😀' WHEN 3 THEN repeat('z', 300) ELSE concat('s', id) END,
              CASE id % 3 WHEN 0 THEN X'' WHEN 1 THEN NULL ELSE X'ff00ff' END,
              DATE'1969-12-25' + CAST(id AS INT), TIMESTAMP'1969-12-31 23:59:59.999999' + make_dt_interval(0, CAST(id AS INT)), TIMESTAMP_NTZ'2024-02-29 12:00:00.123456',
              CASE WHEN id % 3 = 0 THEN NULL ELSE named_struct('a', named_struct('b', IF(id % 2 = 0, NULL, array('p', NULL, ''))), 'c', map('k', named_struct('e', CAST(id AS INT)))) END,
              CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN array() WHEN 2 THEN array(NULL, array()) ELSE array(array(1, NULL), array(CAST(id AS INT))) END,
              CASE WHEN id % 2 = 0 THEN map() ELSE map(CAST(id AS INT), array('q', NULL)) END
            FROM range({i * 10}, {i * 10 + 10}, 1, 1)"""
        )
    lab.prove("db.types", landed=1)


@pytest.mark.parametrize("time", [False, True])
def test_every_type_that_pyiceberg_writes(lab, time):
    fields = [
        pa.field("i", pa.int32()), pa.field("u", pa.uuid()), pa.field("fx", pa.binary(5)), pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("dec", pa.decimal128(20, 4)), pa.field("nested", pa.struct([pa.field("m", pa.map_(pa.string(), pa.list_(pa.int64())))])),
    ]
    # Spark reads no table that has a time column
    schema = pa.schema(fields + ([pa.field("tm", pa.time64("us"))] if time else []))
    name = f"db.pytypes_{time}"
    table = lab.pyiceberg.catalog.create_table(name, schema)
    for i in range(9):
        rows = [
            {
                "i": n, "u": uuid.UUID(int=n * 2**100 + 7).bytes, "fx": bytes([n % 256, 255, 0, 128, 1]) if n % 4 else None,
                "ts": dt.datetime(1960, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(days=n), "dec": decimal.Decimal(n) / 8,
                "nested": None if n % 5 == 0 else {"m": [("a", [n, None]), ("b", None)]}, "tm": dt.time(23, 59, n % 60, n),
            }
            for n in range(i * 20, i * 20 + 20)
        ]
        table.append(pa.Table.from_pylist(rows, schema=schema))
    readers = [lab.pyiceberg, lab.duckdb] + ([] if time else [lab.spark])
    before = [reader.digest(name) for reader in readers]
    results = lab.afterwrite.compact(name)
    assert [r["files_in"] for r in results if r.get("snapshot_id")] == [9]
    assert [reader.digest(name) for reader in readers] == before
    assert before[0][0] == 180


def test_pyiceberg_appends_overwrites_and_deletes(lab):
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = lab.pyiceberg.catalog.create_table("db.py", schema)
    for i in range(12):
        table.append(pa.table({"id": range(i * 10, i * 10 + 10), "p": [f"p{i % 2}"] * 10}))
    table.delete("id >= 20 and id < 25")
    table.overwrite(pa.table({"id": [1000], "p": ["p9"]}), overwrite_filter="id < 5")
    lab.prove("db.py", landed=1)
    assert lab.spark.digest("db.py")[0] == 120 - 5 - 5 + 1


@pytest.fixture(scope="module")
def rest(lab):
    server = engines.RestCatalog(lab.home)
    yield server
    server.stop()


def test_duckdb_inserts_updates_and_deletes_through_a_rest_catalog(lab, rest):
    attach = rest.attach()
    lab.duckdb.run(attach, "CREATE TABLE ice.db.duck (id BIGINT, v VARCHAR, d DECIMAL(12,3), t TIMESTAMP, l INTEGER[])")
    for i in range(10):
        lab.duckdb.run(
            attach,
            f"INSERT INTO ice.db.duck SELECT range, 'v' || range, range / 8, TIMESTAMP '2024-01-01' + range * INTERVAL 1 HOUR, CASE WHEN range % 3 = 0 THEN NULL ELSE [range, NULL] END FROM range({i * 100}, {i * 100 + 100})",
        )
    lab.duckdb.run(attach, "DELETE FROM ice.db.duck WHERE id % 10 = 3")
    assert lab.spark.digest("db.duck")[0] == 900
    lab.prove("db.duck", landed=1)
    lab.duckdb.run(attach, "DELETE FROM ice.db.duck WHERE id % 10 = 4")
    assert lab.spark.digest("db.duck")[0] == 800


def expected_path(lab, table, path):
    """Where Iceberg's own location provider puts a file of that name and partition."""
    jvm = lab.spark.session._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lab.spark.session._jsparkSession, f"lake.{table}")
    folder, name = path.rsplit("/", 2)[1:]
    return loaded.locationProvider().newDataLocation(loaded.spec(), jvm.org.apache.iceberg.DataFiles.data(loaded.spec(), folder), name)


def test_outputs_in_object_storage_layout_lie_where_iceberg_puts_them(lab):
    properties = "'write.object-storage.enabled'='true'"
    lab.spark.sql(f"CREATE TABLE lake.db.scattered (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ({properties})")
    insert(lab, "scattered", commits=6)
    lab.prove("db.scattered", landed=3)
    ours = [f["file_path"] for f in lab.spark.files("db.scattered")]
    assert ours == [expected_path(lab, "db.scattered", path) for path in ours] and len(ours) == 3


def test_files_without_ids_are_read_by_the_name_mapping(lab, tmp_path):
    for i in range(4):
        pq.write_table(pa.table({"v": [f"v{i}-{n}" for n in range(50)], "id": pa.array(range(50), pa.int64())}), tmp_path / f"{i}.parquet")
    lab.spark.sql("CREATE TABLE lake.db.mapped (id BIGINT, v STRING) USING iceberg")
    lab.spark.sql(f"CALL lake.system.add_files(table => 'db.mapped', source_table => '`parquet`.`{tmp_path}`')")
    # by the mapping its values are still those of v
    lab.spark.sql("ALTER TABLE lake.db.mapped RENAME COLUMN v TO w")
    lab.spark.sql("INSERT INTO lake.db.mapped VALUES (1000, 'later')")
    lab.prove("db.mapped", landed=1)
    assert lab.spark.sql("SELECT count(*), count(DISTINCT w) FROM lake.db.mapped").collect()[0] == (201, 201)


def test_columns_whose_names_are_awkward_or_differ_in_case_only(lab):
    names = ["id", "a b", "ü-1/%", "1st", "a.b", "_x2D", "日本"]
    columns = ", ".join(f"`{name}` BIGINT" for name in names)
    lab.spark.sql(f"CREATE TABLE lake.db.named ({columns}) USING iceberg TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    for i in range(6):
        lab.spark.sql(f"INSERT INTO lake.db.named SELECT {', '.join(f'id * {n} + {i}' for n in range(1, 8))} FROM range(50)")
    lab.spark.sql("DELETE FROM lake.db.named WHERE `a b` % 5 = 0")
    lab.prove("db.named", landed=1)

    table = lab.pyiceberg.catalog.create_table("db.cased", pa.schema([("id", pa.int64()), ("Id", pa.string()), ("ID", pa.int64())]))
    for i in range(6):
        table.append(pa.table([range(i * 10, i * 10 + 10), [f"v{i}"] * 10, [i] * 10], schema=table.schema().as_arrow()))
    lab.spark.session.conf.set("spark.sql.caseSensitive", "true")
    try:
        lab.prove("db.cased", confirm=("pyiceberg",), landed=1)
        assert lab.spark.sql("SELECT sum(id), sum(ID), max(Id) FROM lake.db.cased").collect()[0] == (1770, 150, "v5")
    finally:
        lab.spark.session.conf.unset("spark.sql.caseSensitive")


AWKWARD = ["a", "", " ", "+", "a b", "%2F", "a/b", "ü", "null", "__HIVE_DEFAULT_PARTITION__", "a=b", "a&b#c?d", "..", "日本"]


def test_awkward_partition_values(lab):
    lab.spark.sql("CREATE TABLE lake.db.awkward (id BIGINT, s STRING) USING iceberg PARTITIONED BY (s) TBLPROPERTIES ('format-version'='2')")
    values = ", ".join(f"({i}, '{s}')" for i, s in enumerate(AWKWARD)) + ", (99, NULL)"
    for _ in range(3):
        lab.spark.sql(f"INSERT INTO lake.db.awkward VALUES {values}")
    results = lab.prove("db.awkward", landed=len(AWKWARD) + 1)
    assert {r["files_in"] for r in results} == {3}
    for value in AWKWARD:
        assert lab.spark.sql(f"SELECT count(*) FROM lake.db.awkward WHERE s = '{value}'").collect()[0][0] == 3, value
    assert lab.spark.sql("SELECT count(*) FROM lake.db.awkward WHERE s IS NULL").collect()[0][0] == 3


@pytest.mark.parametrize("transform", ["years(ts)", "months(ts)", "days(ts)", "hours(ts)", "bucket(3, s)", "truncate(2, s)", "truncate(10, dec)", "d", "x", "b"])
def test_every_transform(lab, transform):
    table = "transform_" + "".join(c for c in transform if c.isalnum())
    lab.spark.sql(f"CREATE TABLE lake.db.{table} (ts TIMESTAMP, s STRING, dec DECIMAL(10,2), d DATE, x BINARY, b BOOLEAN) USING iceberg PARTITIONED BY ({transform}) TBLPROPERTIES ('format-version'='2')")
    for _ in range(3):
        lab.spark.sql(
            f"INSERT INTO lake.db.{table} VALUES (TIMESTAMP'1969-12-31 23:59:59', 'abc', -1.23, DATE'1969-12-31', X'ff00', true), "
            "(TIMESTAMP'2024-02-29 01:02:03', 'ab', 123.45, DATE'2024-02-29', X'', false), (NULL, NULL, NULL, NULL, NULL, NULL)"
        )
    results = lab.prove(f"db.{table}", confirm=("pyiceberg",) if transform in ("x",) else ("pyiceberg", "duckdb"))
    assert all(r["files_in"] % 3 == 0 for r in results if r.get("snapshot_id"))


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "uncompressed"])
def test_every_codec(lab, codec):
    lab.spark.sql(f"CREATE TABLE lake.db.codec_{codec} (id BIGINT, v STRING, p BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2', 'write.parquet.compression-codec'='{codec}')")
    insert(lab, f"codec_{codec}", commits=8)
    lab.prove(f"db.codec_{codec}", landed=1)


def test_h57_a_spark_stream_neither_fails_on_nor_rereads_a_replace(lab, tmp_path):
    lab.spark.sql("CREATE TABLE lake.db.stream (id BIGINT, v STRING, p BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2')")
    insert(lab, "stream", commits=8)
    seen = []

    def collect(frame, _):
        seen.append(frame.count())

    def drain():
        query = (
            lab.spark.session.readStream.format("iceberg").load("lake.db.stream").writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )
        query.awaitTermination()

    drain()
    assert sum(seen) == 400
    lab.prove("db.stream", landed=1)
    drain()
    assert sum(seen) == 400
    insert(lab, "stream", commits=1)
    drain()
    assert sum(seen) == 450


def test_h58_a_replace_of_three_hundred_files_holds_up_no_spark_stream(lab, tmp_path):
    lab.spark.sql("CREATE TABLE lake.db.lag (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2', 'write.distribution-mode'='none')")
    lab.spark.sql("INSERT INTO lake.db.lag SELECT /*+ REPARTITION(300) */ id FROM range(0, 30000, 1, 2)")
    seen = []

    def drain():
        """Seconds until the stream has all that there is, from where it ended before."""
        began = time.monotonic()
        query = (
            lab.spark.session.readStream.format("iceberg").load("lake.db.lag").writeStream
            .foreachBatch(lambda frame, _: seen.append(frame.count()))
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        return time.monotonic() - began

    def one_more():
        lab.spark.sql("INSERT INTO lake.db.lag VALUES (-1)")
        seen.clear()
        took = drain()
        assert seen == [1]
        return took

    drain()
    before = one_more()
    [done] = lab.afterwrite.compact("db.lag")
    assert done.get("snapshot_id") and done["files_in"] > 300, done
    lag = one_more() - before
    # where a reader went through every file that was replaced, it came to minutes
    assert lag < 5, f"{lag} s behind, and {before} s without a replace"

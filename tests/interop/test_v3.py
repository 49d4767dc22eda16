"""Tables of format v3: Spark writes deletion vectors and row lineage, afterwrite compacts by every way it has, and Spark finds
every row as it was, with the id that it had and the sequence number that last updated it."""

import pytest

import engines
from test_carry import free, overtaken_by

MERGE_ON_READ = "'write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read','write.merge.mode'='merge-on-read'"
V3 = f"'format-version'='3', {MERGE_ON_READ}"
COLUMNS = "id BIGINT, v STRING, d DOUBLE, p BIGINT"
ROWS = "SELECT id, concat('v', id % 97) AS v, id / 3.0D AS d, id % 2 AS p FROM range({}, {}, 1, 1)"
# Which way is taken, and what makes it so: pages joined of small row groups, or row groups copied that are large already, or bloom filters of all.
BLOOM = ", 'write.parquet.bloom-filter-enabled.column.{}'='true'"
WAYS = {"re-pack": (6, 500, ""), "splice": (4, 125_000, ""), "re-encode": (6, 500, "".join(BLOOM.format(column) for column in ("id", "v", "d", "p")))}


def create(lab, table, properties=V3, partitioned=""):
    lab.spark.sql(f"CREATE TABLE lake.db.{table} ({COLUMNS}) USING iceberg {partitioned} TBLPROPERTIES ({properties})")
    return f"db.{table}"


def insert(lab, table, commits, rows, first=0):
    for start in range(first, first + commits * rows, rows):
        lab.spark.sql(f"INSERT INTO lake.{table} {ROWS.format(start, start + rows)}")


def lineage(lab, table, snapshot=None):
    """Every row with its id and the sequence number of its last update."""
    at = f" VERSION AS OF {snapshot}" if snapshot else ""
    return sorted(tuple(r) for r in lab.spark.sql(f"SELECT id, v, _row_id, _last_updated_sequence_number FROM lake.{table}{at}").collect())



def _metadata(lab, table):
    import json
    import re

    return json.loads(open(re.sub("^file:/*", "/", engines.in_sqlite(lab.home, table))).read())


def compact(lab, table, landed=1, path=None, confirm=("duckdb",), unchanged=lineage):
    """Compacts, and checks rows and lineage before and after, now and in the past."""
    before, digests = unchanged(lab, table), lab.digests(table, ())
    head = lab.spark.snapshots(table)[-1]["snapshot_id"]
    next_row_id = _metadata(lab, table)["next-row-id"]
    results = lab.afterwrite.compact(table)
    done = [r for r in results if r.get("snapshot_id")]
    assert len(done) == landed, results
    assert path is None or {r["path"] for r in done} == {path}, results
    assert unchanged(lab, table) == before
    assert unchanged(lab, table, head) == before, "the past changed"
    assert lab.digests(table, confirm) == {name: digests["spark"] for name in ("spark", *confirm)}
    ids_hold(lab, table, next_row_id)
    return results


def ids_hold(lab, table, next_row_id):
    """Snapshots give out ids from the table's next on, and never two the same."""
    now = _metadata(lab, table)
    ranges = sorted((s["first-row-id"], s["first-row-id"] + s["added-rows"]) for s in now["snapshots"] if "first-row-id" in s)
    assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:])), ranges
    assert now["next-row-id"] == ranges[-1][1] >= next_row_id
    ids = [r[2] for r in lineage(lab, table)]
    assert len(set(ids)) == len(ids) and (not ids or max(ids) < now["next-row-id"])


def vectors(lab, table):
    return [f for f in lab.spark.files(table, "delete_files") if f["file_format"] == "PUFFIN"]


@pytest.mark.parametrize("path", WAYS)
def test_lineage_is_kept_on_every_way(lab, path):
    commits, rows, extra = WAYS[path]
    table = create(lab, f"way_{path.replace('-', '_')}", V3 + extra)
    insert(lab, table, commits, rows)
    compact(lab, table, path=path)
    # our own outputs and new files together, some of whose rows were updated and have an older id
    insert(lab, table, commits, rows, first=commits * rows)
    lab.spark.sql(f"UPDATE lake.{table} SET v = 'updated' WHERE id % 1009 = 3")
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 1013 = 5")
    assert vectors(lab, table)
    compact(lab, table)
    assert vectors(lab, table) == [], "vectors go with the data they covered"
    assert len(lab.spark.files(table)) < commits


def test_lineage_is_kept_beside_columns_that_are_encoded_anew(lab):
    table = create(lab, "anew", V3 + BLOOM.format("id"))
    insert(lab, table, 6, 500)
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 13 = 4")
    [done] = compact(lab, table, path="re-pack")
    assert "; 1 columns are encoded anew" in done["path_reason"], done
    assert vectors(lab, table) == []


@pytest.mark.parametrize("path", ["re-pack", "re-encode"])
def test_vectors_of_a_shared_file_are_applied_and_their_neighbours_live(lab, path):
    table = create(lab, f"vectors_{path.replace('-', '_')}", V3 + WAYS[path][2], "PARTITIONED BY (p)")
    insert(lab, table, 6, 400)
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 7 = 0")
    if path == "re-encode":  # files of updated rows have other columns required, and their pages cannot be joined
        lab.spark.sql(f"UPDATE lake.{table} SET v = 'updated' WHERE id % 11 = 1")
        lab.spark.sql(
            f"MERGE INTO lake.{table} t USING (SELECT id * 5 AS id FROM range(0, 300)) s ON t.id = s.id "
            "WHEN MATCHED AND t.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'merged'"
        )
    before = lineage(lab, table)
    shared = {f["file_path"] for f in vectors(lab, table)}
    assert len(shared) < len(vectors(lab, table)), "some vectors share a file"
    done = lab.afterwrite.compact(table, "--partition", "p=0")
    assert [r["path"] for r in done] == [path], done
    assert lineage(lab, table) == before
    assert vectors(lab, table) and {f["partition"]["p"] for f in vectors(lab, table)} == {1}, "the other partition's vectors live"
    compact(lab, table, path=path)
    # Spark goes on: its deletes find our outputs, and all agrees
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 13 = 2")
    if path == "re-encode":
        lab.spark.sql(f"UPDATE lake.{table} SET v = 'again' WHERE id % 17 = 3")
    insert(lab, table, 6, 400, first=2400)
    compact(lab, table, landed=2, path=path)
    assert vectors(lab, table) == []


def test_a_table_that_is_upgraded_in_the_middle_of_its_life(lab):
    table = create(lab, "upgraded", "'format-version'='2'")
    insert(lab, table, 4, 300)
    lab.spark.sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ({MERGE_ON_READ})")
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 19 = 0")
    lab.afterwrite.compact(table)  # data and file sequence numbers of its output differ
    insert(lab, table, 4, 300, first=1200)
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 23 = 0")
    lab.spark.sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ('format-version'='3', {MERGE_ON_READ})")
    # the first commit of format 3 gives ids to all that was there
    insert(lab, table, 4, 300, first=2400)
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 29 = 0")
    assert vectors(lab, table)
    compact(lab, table)
    assert lab.spark.files(table, "delete_files") == []


def test_a_table_that_was_raised_from_format_1_is_compacted(lab):
    table = create(lab, "upgraded1", "'format-version'='1'")
    insert(lab, table, 4, 300)
    lab.spark.sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ('format-version'='3', {MERGE_ON_READ})")
    # gives all rows their ids
    insert(lab, table, 1, 300, first=1200)
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 7 = 0")
    compact(lab, table)
    assert vectors(lab, table) == []
    insert(lab, table, 4, 300, first=2000)
    compact(lab, table)


@pytest.mark.parametrize("path", WAYS)
def test_the_first_commit_after_an_upgrade_is_a_compaction(lab, path):
    commits, rows, extra = WAYS[path]
    table = create(lab, f"first_{path.replace('-', '_')}", f"'format-version'='2', {MERGE_ON_READ} {extra}", "PARTITIONED BY (p)")
    for p in range(2):  # one partition's manifests are rewritten, the other's are kept
        for start in range(0, commits * rows, rows):
            lab.spark.sql(f"INSERT INTO lake.{table} SELECT id, v, d, {p} FROM ({ROWS.format(start, start + rows)})")
    if path != "splice":
        lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 7 = 0")
    lab.spark.sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ('format-version'='3')")
    before = sorted(tuple(r) for r in lab.spark.sql(f"SELECT p, id, v, _row_id FROM lake.{table}").collect())
    assert {r[3] for r in before} == {None}
    done = lab.afterwrite.compact(table, "--partition", "p=0")
    assert [r["path"] for r in done] == [path], done
    after = sorted(tuple(r) for r in lab.spark.sql(f"SELECT p, id, v, _row_id FROM lake.{table}").collect())
    assert [r[:3] for r in after] == [r[:3] for r in before]
    ids_hold_over(lab, table, [r[3] for r in after])
    again = lab.afterwrite.compact(table, "--partition", "p=1")
    assert again and all(r.get("snapshot_id") for r in again), again
    kept = sorted(tuple(r) for r in lab.spark.sql(f"SELECT p, id, v, _row_id FROM lake.{table}").collect())
    assert kept == after, "ids that were given stay"


def ids_hold_over(lab, table, ids):
    assert None not in ids and len(set(ids)) == len(ids) and max(ids) < _metadata(lab, table)["next-row-id"]


def test_rows_of_copy_on_write_updates_keep_their_ids(lab):
    table = create(lab, "copied", "'format-version'='3'")
    insert(lab, table, 5, 300)
    lab.spark.sql(f"UPDATE lake.{table} SET v = 'updated' WHERE id % 5 = 0")  # files with ids stored, and some NULL sequence numbers
    insert(lab, table, 5, 300, first=1500)
    compact(lab, table)
    lab.spark.sql(f"UPDATE lake.{table} SET v = 'twice' WHERE id % 7 = 0")
    insert(lab, table, 5, 300, first=3000)
    compact(lab, table)


def test_pyiceberg_reads_what_it_can(lab):
    table = create(lab, "read", "'format-version'='3'")
    insert(lab, table, 5, 300)
    compact(lab, table, confirm=("pyiceberg", "duckdb"))


def test_lineage_over_a_rest_catalog(lab, spark_jvm):
    server = engines.RestCatalog(lab.home)
    try:
        spark = spark_jvm.open_rest(lab.home, server.url)
        spark.sql(f"CREATE TABLE lake.db.over_rest ({COLUMNS}) USING iceberg TBLPROPERTIES ({V3})")
        for start in range(0, 2400, 400):
            spark.sql(f"INSERT INTO lake.db.over_rest {ROWS.format(start, start + 400)}")
        spark.sql("DELETE FROM lake.db.over_rest WHERE id % 7 = 0")
        before = lineage(lab, "db.over_rest")
        client = engines.Afterwrite(lab.home.config("", (server.url,), "v3-rest.toml", "v3-rest"))
        done = client.compact("db.over_rest")
        assert done and all(r.get("snapshot_id") for r in done), done
        assert lineage(lab, "db.over_rest") == before
        spark.sql("DELETE FROM lake.db.over_rest WHERE id % 11 = 0")
        assert lineage(lab, "db.over_rest") == [r for r in before if r[0] % 11]
    finally:
        server.stop()


def test_columns_with_an_initial_default_are_filled_in(lab):
    table = create(lab, "defaults")
    insert(lab, table, 5, 300)
    jvm = lab.spark.session._jvm
    catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lab.spark.session._jsparkSession, f"lake.{table}")
    update = catalog.updateSchema()
    types, literal = jvm.org.apache.iceberg.types.Types, jvm.org.apache.iceberg.expressions.Expressions.lit
    update = update.addColumn("n", types.IntegerType.get(), "doc", literal(42))
    update.addColumn("t", types.StringType.get(), "doc", literal("old")).commit()
    lab.spark.sql(f"INSERT INTO lake.{table} SELECT 9000 + id, 'new', 1.0D, 0, CAST(id AS INT), NULL FROM range(0, 50)")
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 7 = 0")
    compact(lab, table, path="re-encode", confirm=())
    assert lab.spark.sql(f"SELECT count(*) FROM lake.{table} WHERE n = 42 AND t = 'old'").collect()[0][0] > 1000
    assert lab.spark.sql(f"SELECT count(*) FROM lake.{table} WHERE t IS NULL").collect()[0][0] > 0


def test_vectors_that_spark_commits_meanwhile_are_carried_over(lab):
    table = create(lab, "carried3", partitioned="PARTITIONED BY (p)")
    insert(lab, table, 6, 100)
    lab.spark.sql(f"DELETE FROM lake.{table} WHERE id % 10 = 0")
    for statement, gone in [
        (f"DELETE FROM lake.{table} WHERE id IN (21, 63, 105, 211, 299)", 5),
        # of partition 1, one of them come since: deleted and written anew
        (f"UPDATE lake.{table} SET v = 'updated' WHERE id % 30 = 7", 21),
    ]:
        overtaken_by(lab, "carried3", lambda: lab.spark.sql(statement))
        try:
            results = lab.afterwrite.compact(table)
        finally:
            free(lab)
        done = [r for r in results if r["result"] == "committed"]
        assert sum(r["deletes_carried"] for r in done) == gone and sum(r["wasted_bytes"] for r in results) == 0, results
        # what Spark committed, by its own reading of its own snapshot
        theirs = [s["snapshot_id"] for s in lab.spark.snapshots(table) if s["operation"] in ("delete", "overwrite")][-1]
        assert lineage(lab, table) == lineage(lab, table, theirs), results
        assert set(lab.digests(table, ("duckdb",)).values()) == {lab.spark.digest(table, theirs)}
        carried = vectors(lab, table)
        assert sum(f["record_count"] for f in carried) == gone and len({f["referenced_data_file"] for f in carried}) == len(carried)
        # and Spark writes over our vectors as over its own
        lab.spark.sql(f"DELETE FROM lake.{table} WHERE id = {gone}")
        insert(lab, table, 3, 10, first=1000 * gone)
    # a compaction that nobody overtakes applies them for good
    compact(lab, table, landed=2)
    assert vectors(lab, table) == []


class Moments:
    """A table with moments in nanoseconds, which Spark and DuckDB do not know and PyIceberg does not write: Iceberg's own Java library writes and reads it."""

    def __init__(self, lab, table):
        self.gateway, self.jvm = lab.spark.session._sc._gateway, lab.spark.session._jvm
        self.iceberg = self.jvm.org.apache.iceberg
        nano = self.iceberg.types.Types.TimestampNanoType
        create(lab, table)
        self.table = self.iceberg.spark.Spark3Util.loadIcebergTable(lab.spark.session._jsparkSession, f"lake.db.{table}")
        update = self.table.updateSchema().deleteColumn("v").deleteColumn("d").deleteColumn("p")
        update.addColumn("at", nano.withoutZone()).addColumn("zoned", nano.withZone()).commit()

    def record(self, schema, **values):
        time, record = self.jvm.java.time, self.iceberg.data.GenericRecord.create(schema)
        for name, value in values.items():
            if name in ("at", "zoned") and value is not None:
                value = time.LocalDateTime.ofEpochSecond(value // 10**9, value % 10**9, time.ZoneOffset.UTC)
                value = value if name == "at" else value.atOffset(time.ZoneOffset.UTC)
            record.setField(name, value)
        return record

    def file(self):
        self.table.refresh()
        return self.iceberg.io.OutputFileFactory.builderFor(self.table, 1, 1).build().newOutputFile()

    def append(self, rows):
        """One data file; `rows` are an id and the two moments, in nanoseconds since 1970."""
        file, schema = self.file(), self.table.schema()
        factory = getattr(self.iceberg.data, "GenericFileWriterFactory$Builder")(self.table).build()
        writer = factory.newDataWriter(file, self.table.spec(), None)
        for id, at, zoned in rows:
            writer.write(self.record(schema, id=id, at=at, zoned=zoned))
        writer.close()
        self.table.newAppend().appendFile(writer.toDataFile()).commit()

    def delete(self, **moment):
        """An equality delete of one moment."""
        file, (name,) = self.file(), moment
        keys = self.gateway.new_array(self.gateway.jvm.int, 1)
        keys[0] = self.table.schema().findField(name).fieldId()
        schema = self.table.schema().select([name])
        builder = getattr(self.iceberg.data, "GenericFileWriterFactory$Builder")(self.table)
        writer = builder.equalityFieldIds(keys).equalityDeleteRowSchema(schema).build().newEqualityDeleteWriter(file, self.table.spec(), None)
        writer.write(self.record(schema, **moment))
        writer.close()
        self.table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()

    def rows(self, where=None):
        """Every row as text, by the library's own reader; of a filter, by the bounds of files too."""
        self.table.refresh()
        scan = self.iceberg.data.IcebergGenerics.read(self.table)
        rows = each((scan.where(where) if where else scan).build())
        return sorted(tuple(str(row.getField(name)) for name in ("id", "at", "zoned")) for row in rows)

    def files(self):
        self.table.refresh()
        return [task.file().location() for task in each(self.table.newScan().planFiles())]


def each(iterable):
    """What Java iterates over."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


NANOS = 1_700_000_000_123_456_789
# a number that is sent to Java as a long
ID = 10**12


@pytest.mark.parametrize("path", ["re-pack", "re-encode"])
def test_moments_in_nanoseconds_are_compacted_to_the_nanosecond(lab, path):
    table = f"moments_{path.replace('-', '_')}"
    moments = Moments(lab, table)
    if path == "re-encode":
        for column in ("id", "at", "zoned"):
            moments.table.updateProperties().set(f"write.parquet.bloom-filter-enabled.column.{column}", "true").commit()
    for file in range(5):
        rows = [(ID + n, None if n % 7 == 3 else NANOS + n, None if n % 5 == 1 else -NANOS - n) for n in range(file * 200, file * 200 + 200)]
        moments.append(rows)
    # its neighbours are a nanosecond away
    moments.delete(at=NANOS + 400)
    moments.delete(zoned=-NANOS - 700)
    before = moments.rows()
    assert len(before) == 998 and (f"{ID + 401}", "2023-11-14T22:13:20.123457190", "None") in before, before[:3]
    [done] = lab.afterwrite.compact(f"db.{table}")
    assert done["path"] == path and done.get("snapshot_id"), done
    assert moments.rows() == before and len(moments.files()) == 1
    # by bounds of files, which are nanoseconds too
    where = moments.iceberg.expressions.Expressions
    at = moments.record(moments.table.schema(), at=NANOS + 999).getField("at").toString()
    assert [row[0] for row in moments.rows(where.equal("at", at))] == [f"{ID + 999}"]
    assert moments.rows(where.greaterThan("at", at)) == []
    # and goes on: the library's deletes and rows beside our outputs
    moments.delete(at=NANOS + 401)
    moments.append([(ID + 5000, NANOS + 401, -1)])
    assert len(moments.rows()) == 998
    before = moments.rows()
    [done] = lab.afterwrite.compact(f"db.{table}")
    assert done.get("snapshot_id") and moments.rows() == before and len(moments.files()) == 1, done

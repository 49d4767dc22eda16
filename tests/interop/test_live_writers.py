"""Every engine goes on writing to a table of its own while all of these are compacted, over a SQL and a REST catalog: no row is lost,
doubled or revived, now and at each of our commits, and rows keep their lineage in a table that is raised to format 3 meanwhile."""

import threading
import time

import pyarrow as pa
import pytest

import engines
from test_v3 import ids_hold, lineage

ROWS = 20
# Compactions that must land while a table's writer is at work, seconds after which it gives up waiting for them, and seconds
# between its rounds meanwhile.
LANDED, PATIENCE, INTERVAL = 2, 300, 0.5
MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
# What engines say when another commit was faster.
LOST = ("cannot commit", "conflict", "missing data files", "deleted data files were found", "has been updated by another process", "requirement failed", "has changed")


class Writer(threading.Thread):
    """Writes rounds of rows to a table, and knows which it must hold."""

    def __init__(self, table, round, after=lambda: None):
        super().__init__()
        self.table, self.round, self.after = table, round, after
        self.rows, self.landed, self.rounds, self.error = {}, 0, 0, None

    def run(self):
        try:
            until = time.monotonic() + PATIENCE
            while self.rounds < 4 or (self.landed < LANDED and time.monotonic() < until):
                self.round(self, self.rounds)
                self.rounds += 1
                time.sleep(INTERVAL)
            self.after()
        except BaseException as error:
            self.error = error

    def add(self, n, text="v{}"):
        fresh = {id: text.format(id) for id in range(n * ROWS, (n + 1) * ROWS)}
        self.rows.update(fresh)
        return fresh

    def drop(self, gone):
        self.rows = {id: v for id, v in self.rows.items() if not gone(id)}


def lands(write):
    """A statement, again when another commit was faster, as its user would."""
    for _ in range(30):
        try:
            return write()
        except Exception as error:
            said = str(error).lower()
            if not any(word in said for word in LOST):
                raise
    raise AssertionError("a writer never got through")


def values(rows):
    return ", ".join(f"({id}, '{v}')" for id, v in rows.items())


def of_spark(spark, raised_in=None):
    def round(writer, n):
        if n == raised_in:
            lands(lambda: spark.sql(f"ALTER TABLE lake.{writer.table} SET TBLPROPERTIES ('format-version'='3')"))
        lands(lambda: spark.sql(f"INSERT INTO lake.{writer.table} VALUES {values(writer.add(n))}"))
        lands(lambda: spark.sql(f"DELETE FROM lake.{writer.table} WHERE id % {ROWS} = {n % 7}"))
        writer.drop(lambda id: id % ROWS == n % 7)
        lands(lambda: spark.sql(f"UPDATE lake.{writer.table} SET v = 'round {n}' WHERE id % {ROWS} = 19"))
        writer.rows.update({id: f"round {n}" for id in writer.rows if id % ROWS == 19})

    return round


def of_pyiceberg(home):
    catalog = engines.PyIceberg(home).catalog

    def round(writer, n):
        fresh = writer.add(n)
        rows = pa.table([list(fresh), list(fresh.values())], schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]))
        lands(lambda: catalog.load_table(writer.table).append(rows))
        lands(lambda: catalog.load_table(writer.table).delete(f"id = {n * ROWS + 3}"))
        writer.drop(lambda id: id == n * ROWS + 3)

    return round


def of_duckdb(duckdb, server):
    def round(writer, n):
        lands(lambda: duckdb.run(server.attach(), f"INSERT INTO ice.{writer.table} VALUES {values(writer.add(n))}"))
        lands(lambda: duckdb.run(server.attach(), f"DELETE FROM ice.{writer.table} WHERE id % {ROWS} = {n % 7}"))
        writer.drop(lambda id: id % ROWS == n % 7)

    return round


def of_flink(job):
    def round(writer, n):
        # half of the keys are there already: an equality delete and a new row each
        fresh = {id: f"round {n}" for id in range(n * ROWS // 2, n * ROWS // 2 + ROWS)}
        writer.rows.update(fresh)
        job.upsert(list(fresh.items()))
        job.delete([(n * ROWS // 2, None)])
        writer.drop(lambda id: id == n * ROWS // 2)

    return round


@pytest.fixture(scope="module")
def server(lab):
    server = engines.RestCatalog(lab.home)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ended(lab, spark_jvm, flink, server):
    """Every table and what its writer made of it, once all writers have ended."""
    for table, more in [("spark2", MERGE_ON_READ), ("spark3", MERGE_ON_READ), ("pyiceberg", ""), ("duckdb", ""), ("flink", "'write.upsert.enabled'='true'")]:
        properties = f"'format-version'='2', {more}".strip(", ")
        lab.spark.sql(f"CREATE TABLE lake.db.{table} (id BIGINT NOT NULL, v STRING) USING iceberg TBLPROPERTIES ({properties})")
    job = flink.open(lab.home, "db.flink", keys=("id",))
    over_rest = engines.Afterwrite(lab.home.config(rest=(server.url,), file="rest.toml"))
    by = {
        "db.spark2": (lab.afterwrite, of_spark(lab.spark)),
        "db.spark3": (over_rest, of_spark(spark_jvm.open_rest(lab.home, server.url), raised_in=1)),
        "db.pyiceberg": (lab.afterwrite, of_pyiceberg(lab.home)),
        "db.duckdb": (over_rest, of_duckdb(lab.duckdb, server)),
        "db.flink": (lab.afterwrite, of_flink(job)),
    }
    writers = [Writer(table, round, job.close if table == "db.flink" else lambda: None) for table, (_, round) in by.items()]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        for writer in filter(Writer.is_alive, writers):
            found = by[writer.table][0].compact(writer.table, ok=range(10))
            wrong = [r for r in found if r["result"] in ("disproved", "failed", "refused", "unknown")]
            assert not wrong, wrong
            writer.landed += sum(bool(r.get("snapshot_id")) for r in found) if writer.is_alive() else 0
    for writer in writers:
        print(f"{writer.table}: {writer.rounds} rounds, {writer.landed} compactions landed meanwhile")
    for writer in writers:
        if writer.error:
            raise writer.error
        assert writer.landed >= LANDED, f"{writer.table} was compacted {writer.landed} times beside its writer"
        by[writer.table][0].compact(writer.table)
    return {writer.table: writer.rows for writer in writers}


@pytest.mark.parametrize("table", ["db.spark2", "db.spark3", "db.pyiceberg", "db.duckdb", "db.flink"])
def test_a_table_is_compacted_while_its_engine_goes_on_writing(lab, ended, table):
    assert dict(tuple(r) for r in lab.spark.sql(f"SELECT id, v FROM lake.{table}").collect()) == ended[table]
    seen = lab.digests(table, ("duckdb",))
    assert seen["spark"][0] == len(ended[table]) and seen["duckdb"] == seen["spark"]
    ours = [(s["snapshot_id"], s["parent_id"]) for s in lab.spark.snapshots(table) if s["operation"] == "replace"]
    sums = lab.spark.sums(table, sorted({id for pair in ours for id in pair}))
    assert len(ours) >= LANDED and all(sums[made] == sums[before] for made, before in ours), sums


def test_rows_keep_their_lineage_meanwhile(lab, ended):
    table = "db.spark3"
    ids_hold(lab, table, 0)
    kept = 0
    for snapshot in lab.spark.snapshots(table):
        if snapshot["operation"] == "replace":
            before, after = lineage(lab, table, snapshot["parent_id"]), lineage(lab, table, snapshot["snapshot_id"])
            assert [row[:2] for row in after] == [row[:2] for row in before]
            # the first commit after the upgrade gives ids to those that have none
            assert all(now == then for then, now in zip(before, after) if then[2] is not None), (before, after)
            kept += sum(then[2] is not None for then in before)
    assert kept

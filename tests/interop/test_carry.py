"""Spark deletes rows, merge-on-read, while afterwrite compacts their files: the deletes are carried over to the new files."""

import sqlite3
import threading

import pytest

import engines

TABLE = "CREATE TABLE lake.db.{} (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version'='2', "
MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
READERS = ("pyiceberg", "duckdb")


def create(lab, table, granularity, commits):
    lab.spark.sql(TABLE.format(table) + f"'write.delete.granularity'='{granularity}', {MERGE_ON_READ})")
    for i in range(commits):
        lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT id, concat('v', id), id % 2 FROM range({i * 50}, {(i + 1) * 50}, 1, 1)")


def overtaken_by(lab, table, write):
    """Lets the first swap of the table's pointer from now on lose to what `write` commits: its commit is taken back, and is
    in the catalog again the moment that another one would be."""
    before = engines.in_sqlite(lab.home, f"db.{table}")
    write()
    after = engines.in_sqlite(lab.home, f"db.{table}")
    assert before != after
    move = "UPDATE iceberg_tables SET metadata_location = '{1}', previous_metadata_location = '{0}' WHERE metadata_location = '{0}'"
    with sqlite3.connect(lab.home.database, timeout=30) as catalog:
        catalog.execute(f"UPDATE iceberg_tables SET metadata_location = '{before}' WHERE metadata_location = '{after}'")
        catalog.execute(
            f"CREATE TRIGGER overtaken BEFORE UPDATE ON iceberg_tables WHEN OLD.metadata_location = '{before}' "
            f"AND NEW.metadata_location <> '{after}' BEGIN {move.format(before, after)}; SELECT RAISE(IGNORE); END"
        )


def free(lab):
    with sqlite3.connect(lab.home.database, timeout=30) as catalog:
        catalog.execute("DROP TRIGGER IF EXISTS overtaken")


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_rows_that_spark_deletes_and_updates_meanwhile_are_carried_over(lab, granularity):
    table = f"carried_{granularity}"
    create(lab, table, granularity, 6)
    lab.spark.sql(f"DELETE FROM lake.db.{table} WHERE id % 10 = 0")
    lab.spark.sql(f"ALTER TABLE lake.db.{table} SET TBLPROPERTIES ('write.merge.mode'='merge-on-read')")
    for statement, gone in [
        (f"DELETE FROM lake.db.{table} WHERE id IN (21, 63, 105, 211, 299)", 5),
        # those of partition 1 that are left, deleted and written anew
        (f"UPDATE lake.db.{table} SET v = 'updated' WHERE id % 30 = 7", 11),
    ]:
        overtaken_by(lab, table, lambda: lab.spark.sql(statement))
        try:
            results = lab.afterwrite.compact(f"db.{table}")
        finally:
            free(lab)
        done = [r for r in results if r["result"] == "committed"]
        assert sum(r["deletes_carried"] for r in done) == gone and sum(r["wasted_bytes"] for r in results) == 0, results
        # what Spark committed, by its own reading of its own snapshot
        theirs = [s["snapshot_id"] for s in lab.spark.snapshots(f"db.{table}") if s["operation"] in ("delete", "overwrite")][-1]
        expected = lab.spark.digest(f"db.{table}", theirs)
        assert set(lab.digests(f"db.{table}", READERS).values()) == {expected}, results
        carried = [f for f in lab.spark.files(f"db.{table}", "delete_files")]
        assert sum(f["record_count"] for f in carried) == gone, "no delete of before is left, and none of ours is missing"
        assert all(f["referenced_data_file"] for f in carried), carried
        for i in range(3):
            lab.spark.sql(f"INSERT INTO lake.db.{table} SELECT id, 'more', id % 2 FROM range({1000 + i * 10}, {1010 + i * 10}, 1, 1)")
    # a compaction that nobody overtakes applies them for good
    lab.prove(f"db.{table}", READERS)
    assert lab.spark.files(f"db.{table}", "delete_files") == []


def test_spark_goes_on_deleting_while_compactions_run(lab):
    table = "carried_stream"
    create(lab, table, "file", 4)
    gone, failed = set(), []

    def stream():
        try:
            for n in range(12):
                lab.spark.sql(f"DELETE FROM lake.db.{table} WHERE id IN ({n * 13}, {n * 13 + 5})")
                gone.update({n * 13, n * 13 + 5})
                lab.spark.sql(f"INSERT INTO lake.db.{table} VALUES ({1000 + n}, 'new', {n % 2})")
        except Exception as error:  # a writer that loses to us must be seen
            failed.append(error)

    writer = threading.Thread(target=stream)
    writer.start()
    results = []
    while writer.is_alive():
        # 0 landed, 3 lost to a writer
        results += lab.afterwrite.compact(f"db.{table}", ok=range(0, 10))
    writer.join()
    # the writer itself may lose to a compaction, as it may to any other; what it committed must be there
    lost = [e for e in failed if "Cannot commit" not in str(e) and "conflict" not in str(e).lower() and "missing" not in str(e).lower()]
    assert not lost, failed
    assert any(r["result"] == "committed" for r in results), results
    assert not any(r["result"] in ("disproved", "failed", "refused") for r in results), results
    seen = {r[0] for r in lab.spark.sql(f"SELECT id FROM lake.db.{table}").collect()}
    assert seen & gone == set() and set(range(200)) - gone <= seen
    assert len(set(lab.digests(f"db.{table}", READERS).values())) == 1

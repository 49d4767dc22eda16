"""Flink upserts: equality deletes of every checkpoint, compacted beside the running job."""

import time

import pytest

import engines
import prune
from sidecar import Sidecar

ALL = ("trino", "duckdb", "pyiceberg")
MERGE_KEYS = ("id", "region")


def create(lab, table, properties="", columns="id BIGINT NOT NULL, region STRING NOT NULL, val BIGINT, note STRING", spec="PARTITIONED BY (region)"):
    lab.spark.sql(f"CREATE TABLE lake.db.{table} ({columns}) USING iceberg {spec} TBLPROPERTIES ('format-version'='2', 'write.upsert.enabled'='true' {properties})")


def batch(step, keys=60):
    """Every key has a row in every batch of its parity: most rows replace one of an earlier checkpoint."""
    return [(id, f"r{id % 3}", step * 1000 + id, None if id % 7 == 0 else f"note {step}") for id in range(keys) if id % 2 == step % 2 or id % 5 == 0]


def rows_after(steps, keys=60):
    latest = {row[:2]: row for step in range(steps) for row in batch(step, keys)}
    return sorted(latest.values())


def spark_rows(lab, table):
    return sorted(tuple(r) for r in lab.spark.sql(f"SELECT id, region, val, note FROM lake.db.{table}").collect())


@pytest.mark.parametrize("sink", ["v1", "v2"])
def test_upserts_are_compacted_between_checkpoints_of_a_running_job(lab, flink, trino, sink):
    table = f"upserts_{sink}"
    create(lab, table)
    job = flink.open(lab.home, f"db.{table}", keys=MERGE_KEYS, sink=sink)
    deletes = 0
    for step in range(6):
        summary = job.upsert(batch(step))
        deletes += int(summary.get("added-equality-delete-files", 0))
        if step in (2, 5):
            assert spark_rows(lab, table) == rows_after(step + 1)
            lab.prove(f"db.{table}", confirm=ALL, before_confirm=("trino",), landed=3)
            assert spark_rows(lab, table) == rows_after(step + 1)
    assert deletes == 18, "every checkpoint deletes by key in three partitions"
    job.delete([(0, "r0", None, None), (5, "r2", None, None)])
    job.close()
    expected = [row for row in rows_after(6) if row[0] not in (0, 5)]
    assert spark_rows(lab, table) == expected
    lab.prove(f"db.{table}", confirm=ALL, before_confirm=("trino",))
    assert spark_rows(lab, table) == expected
    assert lab.spark.files(f"db.{table}", "delete_files") == [], "deletes that cover nothing go with the data they covered"
    prune.check(lab, f"db.{table}", trino)


@pytest.fixture(scope="module")
def sidecar(lab):
    running = Sidecar(lab.home, '[[table]]\nmatch = "lake.db.checkpoints"\nact = true\ncooldown = "0s"\n')
    yield running
    running.stop()


def test_ten_upsert_checkpoints_bring_at_most_two_rewrites(lab, flink, trino, sidecar):
    create(lab, "checkpoints", spec="", properties=", 'write.parquet.compression-codec'='gzip'")
    job = flink.open(lab.home, "db.checkpoints", keys=("id",))
    for step in range(10):
        job.upsert(batch(step))
        sidecar.report("db.checkpoints")
        time.sleep(0.5)
    engines.wait_until(lambda: replaces(lab))
    settled(lambda: replaces(lab))
    job.close()
    print(f"ten checkpoints brought {len(replaces(lab))} rewrites")
    assert 1 <= len(replaces(lab)) <= 2
    assert spark_rows(lab, "checkpoints") == rows_after(10)
    assert trino.digest("db.checkpoints") == lab.spark.digest("db.checkpoints")
    for replace in replaces(lab):
        assert lab.spark.digest("db.checkpoints", replace["snapshot_id"]) == lab.spark.digest("db.checkpoints", replace["parent_id"])


def test_h57_a_flink_stream_neither_fails_on_nor_rereads_a_replace(lab, flink):
    lab.spark.sql("CREATE TABLE lake.db.followed (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")

    def append(start, rows=50):
        lab.spark.sql(f"INSERT INTO lake.db.followed SELECT id, concat('v', id) FROM range({start}, {start + rows}, 1, 1)")

    def read(reader, rows):
        engines.wait_until(lambda: len(reader.seen()) >= rows)
        assert sorted(reader.seen()) == list(range(rows))

    for i in range(8):
        append(i * 50)
    first = lab.spark.snapshots("db.followed")[0]["snapshot_id"]
    reader = flink.follow(lab.home, "db.followed", first)
    read(reader, 400)
    lab.prove("db.followed", landed=1)
    append(400)
    read(reader, 450)
    # what a replace brought would have come before these
    append(450)
    read(reader, 500)
    reader.close()
    late = flink.follow(lab.home, "db.followed", first)
    read(late, 500)
    append(500)
    read(late, 550)
    late.close()


def replaces(lab):
    return [s for s in lab.spark.snapshots("db.checkpoints") if s["operation"] == "replace"]


def settled(look, seconds=4):
    """Waits until nothing has changed for a while."""
    seen, since = look(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.3)
        if look() != seen:
            seen, since = look(), time.monotonic()

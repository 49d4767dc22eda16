"""Trino and Flink through the catalog proxy: only their catalog's address is the sidecar's. Their commits are heard, healed and compacted."""

import os
import pathlib
import subprocess
import threading

import pytest

import engines
import flink as flink_engine
import heard
import java
import trino as trino_engine
from test_proxy import APPLIED, Stage
from test_writers import AWKWARD


@pytest.fixture(scope="module")
def stage(lab):
    stage = Stage(lab.home)
    yield stage
    stage.stop()


def over(trino_server, name, url):
    """Trino over a REST catalog at this address."""
    settings = {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": url, "fs.local.enabled": "true", "local.location": "/"}
    trino_server.child.tell("\t".join(["catalog", name, *(f"{k}={v}" for k, v in settings.items())]))
    return trino_engine.TrinoHome(trino_server.url, name)


@pytest.fixture(scope="module")
def trino(stage, trino_server):
    return over(trino_server, "proxied", stage.url)


def accepted(stage):
    return stage.metric("afterwrite_events_total", door="proxy", result="accepted")


def known(stage, table):
    """Whether the sidecar has judged every live partition at the table's head: by their rows, and the snapshot."""
    loaded = stage.sql.catalog.load_table(f"db.{table}")
    live = {tuple(row.values()) for row in loaded.inspect.partitions()["partition"].to_pylist()}
    judged = stage.partitions("db", table)
    return len(judged) == len(live) and set(judged.values()) == {str(loaded.current_snapshot().snapshot_id)}


def test_the_partitions_of_every_kind_of_write_are_known(stage, trino):
    trino.sql("CREATE TABLE heard (id BIGINT, region VARCHAR) WITH (format_version = 2, partitioning = ARRAY['region'])")
    for statement, partitions in {
        "INSERT INTO heard SELECT n, if(n % 2 = 0, 'eu', 'us') FROM UNNEST(sequence(1, 10)) t(n)": ["eu", "us"],
        "DELETE FROM heard WHERE id = 1": ["eu", "us"],
        "UPDATE heard SET id = 100 WHERE id = 2": ["eu", "us"],
        "MERGE INTO heard h USING (VALUES (3, 'eu'), (200, 'asia')) s(id, region) ON h.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.region)": ["asia", "eu", "us"],
        "DELETE FROM heard WHERE region = 'us'": ["asia", "eu"],
    }.items():
        trino.sql(statement)
        engines.wait_until(lambda: set(stage.partitions("db", "heard")) == {f'region="{p}"' for p in partitions} and known(stage, "heard"))
    for statement in ("CREATE TABLE made WITH (format_version = 2) AS SELECT 1 AS id", "DROP TABLE made"):
        before = accepted(stage)
        trino.sql(statement)
        engines.wait_until(lambda: accepted(stage) > before)
    assert sorted(trino.sql("SELECT id, region FROM heard")[1]) == [[4, "eu"], [6, "eu"], [8, "eu"], [10, "eu"], [100, "eu"], [200, "asia"]]


def test_h93_trino_hears_success(stage, trino):
    trino.sql("CREATE TABLE healed (id BIGINT) WITH (format_version = 2)")
    for times, fault in enumerate(APPLIED, 1):
        with stage.fault(fault):
            trino.sql("INSERT INTO healed SELECT n FROM UNNEST(sequence(1, 10)) t(n)")
        stage.whole("db.healed", 10 * times)
    with stage.fault("drop"):
        trino.sql("DELETE FROM healed WHERE id = 3")
    # PyArrow does not read the encoding of Trino's delete files
    named, missing = stage.files("db.healed")
    assert named and not missing
    assert trino.sql("SELECT count(*) FROM healed")[1] == [[9 * len(APPLIED)]]
    for fault in ("after:500", "drop", "replay"):
        table = f"healed_{fault.replace(':', '_')}"
        with stage.fault(fault):
            trino.sql(f"CREATE TABLE {table} WITH (format_version = 2) AS SELECT n AS id FROM UNNEST(sequence(1, 8)) t(n)")
        stage.whole(f"db.{table}", 8)


def test_h101_trino_names_tables_with_spaces_and_signs(stage, trino, trino_server):
    """The same bytes reach the catalog with and without the proxy. Trino's Iceberg writes a space as `+`, as in a form; the catalog's, which is
    newer, reads that as a plus: so the table that Trino calls `t x` is `t+x` to all others, and the sidecar looks at it under that name."""
    direct = over(trino_server, "direct", stage.faults.url)
    for name, catalogs in {"t x": "t+x", "t+y": "t+y", "50%": "50%", "ü": "ü"}.items():
        asked = []
        for engine in (direct, trino):
            before = len(stage.faults.seen)
            engine.sql(f'CREATE TABLE "{name}" (id BIGINT) WITH (format_version = 2)')
            engine.sql(f'INSERT INTO "{name}" VALUES 1')
            assert engine.sql(f'SELECT id FROM "{name}"')[1] == [[1]]
            if engine is trino:
                head = str(stage.sql.catalog.load_table(("db", catalogs)).current_snapshot().snapshot_id)
                engines.wait_until(lambda: set(stage.partitions("db", f"`{catalogs}`").values()) == {head})
            engine.sql(f'DROP TABLE "{name}"')
            asked.append({(method, path) for method, path, _ in stage.faults.seen[before:] if "/tables" in path})
        through_none, through_proxy = asked
        assert len(through_none) > 3 and through_proxy == through_none


def test_h96_awkward_partitions_of_trino_are_known(stage, trino):
    trino.sql("CREATE TABLE awkward (id BIGINT, s VARCHAR) WITH (format_version = 2, partitioning = ARRAY['s'])")
    values = [*AWKWARD, None]
    trino.sql("INSERT INTO awkward VALUES " + ", ".join(f"({i}, {'NULL' if v is None else repr(v)})" for i, v in enumerate(values)))
    head = str(stage.sql.catalog.load_table("db.awkward").current_snapshot().snapshot_id)
    partitions = engines.wait_until(lambda: stage.partitions("db", "awkward"))
    assert (len(partitions), set(partitions.values())) == (len(values), {head})


def test_commits_of_trino_are_compacted_and_it_reads_the_same(lab, stage, trino):
    trino.sql("CREATE TABLE compacted_of_trino (id BIGINT, region VARCHAR) WITH (format_version = 2, partitioning = ARRAY['region'])")
    for step in range(12):
        trino.sql(f"INSERT INTO compacted_of_trino SELECT n, if(n % 2 = 0, 'eu', 'us') FROM UNNEST(sequence({step * 10}, {step * 10 + 9})) t(n)")
    heard.until_compacted(lab.spark, "db.compacted_of_trino")
    seen = trino.digest("compacted_of_trino")
    assert seen[0] == 120 and trino.sql("SELECT count(DISTINCT id), min(id), max(id) FROM compacted_of_trino")[1] == [[120, 0, 119]]
    assert seen == lab.spark.digest("db.compacted_of_trino")
    replace = heard.replaces(lab.spark, "db.compacted_of_trino")[0]
    assert trino.digest("compacted_of_trino", replace["snapshot_id"]) == trino.digest("compacted_of_trino", replace["parent_id"])


FLINK = """
CREATE CATALOG proxied WITH ('type' = 'iceberg', 'catalog-type' = 'rest', 'uri' = '${PROXY}', 'cache-enabled' = 'false');
SET 'execution.checkpointing.interval' = '1s';
CREATE TABLE proxied.db.of_flink (id BIGINT, region STRING) PARTITIONED BY (region) WITH ('format-version' = '2');
CREATE TABLE proxied.db.compacted_of_flink (id BIGINT, region STRING) PARTITIONED BY (region) WITH ('format-version' = '2');
CREATE TABLE proxied.db.read_by_flink (id BIGINT, region STRING) WITH ('format-version' = '2');
"""


def run_flink(stage, scratch, name, statements):
    (scratch / name).write_text(FLINK.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ") + "".join(f"{s};\n" for s in statements))
    # a source needs what sinks do without
    files = next(pathlib.Path(java.CACHE, "jars/flink").glob("flink-connector-files-*.jar"))
    jars = f"{java.CACHE}/hooks/flink/*:{java.CACHE}/jars/flink-sql/*:{files}"
    command = ["java", "-Xmx640m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *flink_engine.OPENS, "-cp", jars, "afterwrite.example.RunSql", str(scratch / name)]
    done = subprocess.run(command, env={**os.environ, "PROXY": stage.url}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_commits_of_flink_are_heard_healed_and_compacted(lab, stage, scratch):
    """Each statement is a job, and a commit. One commit after another meets the next fault."""
    values = lambda n: f"VALUES ({n}, 'eu'), ({n + 100}, 'us')"
    healed, faults = [f"INSERT INTO proxied.db.of_flink {values(n)}" for n in range(5)], ["after:504", "drop", "replay", "late:5"]
    grown = [f"INSERT INTO proxied.db.compacted_of_flink {values(n)}" for n in range(10)]
    ended = threading.Event()

    def arm():
        while faults and not ended.wait(0.05):
            if stage.faults.fault is None:
                stage.faults.fault = faults.pop(0)

    arming = threading.Thread(target=arm)
    arming.start()
    try:
        run_flink(stage, scratch, "written.sql", healed)
    finally:
        ended.set()
        arming.join()
    assert (faults, stage.faults.fault) == ([], None), "a fault hit no commit"
    stage.whole("db.of_flink", 10)
    rows = lambda table: sorted(lab.spark.sql(f"SELECT id, region FROM lake.db.{table}").collect())
    assert rows("of_flink") == sorted((n + m, r) for n in range(5) for m, r in ((0, "eu"), (100, "us")))
    engines.wait_until(lambda: set(stage.partitions("db", "of_flink")) == {'region="eu"', 'region="us"'} and known(stage, "of_flink"))
    run_flink(stage, scratch, "grown.sql", grown)
    heard.until_compacted(lab.spark, "db.compacted_of_flink")
    assert len(rows("compacted_of_flink")) == 20
    # Flink reads what the compaction left
    run_flink(stage, scratch, "read.sql", ["INSERT INTO proxied.db.read_by_flink SELECT id, region FROM proxied.db.compacted_of_flink"])
    assert rows("read_by_flink") == rows("compacted_of_flink")

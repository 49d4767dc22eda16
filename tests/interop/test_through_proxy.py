"""Trino and Flink through the catalog proxy: only their catalog's address is the sidecar's."""

import os
import subprocess

import pytest

import engines
import flink as flink_engine
import heard
import java
import trino as trino_engine
from test_proxy import Stage


@pytest.fixture(scope="module")
def stage(lab):
    stage = Stage(lab.home)
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def trino(stage, trino_server):
    settings = {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": stage.url, "fs.local.enabled": "true", "local.location": "/"}
    trino_server.child.tell("\t".join(["catalog", "proxied", *(f"{k}={v}" for k, v in settings.items())]))
    return trino_engine.TrinoHome(trino_server.url, "proxied")


def accepted(stage):
    return stage.metric("afterwrite_events_total", door="proxy", result="accepted")


def test_every_kind_of_write_is_heard(stage, trino):
    for statement in (
        "CREATE TABLE heard (id BIGINT, region VARCHAR) WITH (format_version = 2, partitioning = ARRAY['region'])",
        "INSERT INTO heard SELECT n, if(n % 2 = 0, 'eu', 'us') FROM UNNEST(sequence(1, 10)) t(n)",
        "DELETE FROM heard WHERE id = 1",
        "UPDATE heard SET id = 100 WHERE id = 2",
        "MERGE INTO heard h USING (VALUES (3, 'eu'), (200, 'us')) s(id, region) ON h.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.region)",
        "CREATE TABLE made WITH (format_version = 2) AS SELECT 1 AS id",
        "DROP TABLE made",
    ):
        before = accepted(stage)
        trino.sql(statement)
        engines.wait_until(lambda: accepted(stage) > before)
    assert sorted(trino.sql("SELECT id, region FROM heard")[1]) == sorted([100 if n == 2 else n, "eu" if n % 2 == 0 else "us"] for n in (2, *range(4, 11))) + [[200, "us"]]


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
CREATE TABLE proxied.db.of_flink (id BIGINT, region STRING) PARTITIONED BY (region) WITH ('format-version' = '2');
SET 'execution.checkpointing.interval' = '1s';
"""


def test_commits_of_flink_are_heard(lab, stage, scratch):
    statements = FLINK + "".join(f"INSERT INTO proxied.db.of_flink VALUES ({n}, 'eu'), ({n + 10}, 'us');\n" for n in range(2))
    (scratch / "proxied.sql").write_text(statements)
    before = accepted(stage)
    jars = f"{java.CACHE}/hooks/flink/*:{java.CACHE}/jars/flink-sql/*"
    command = ["java", "-Xmx640m", "-XX:+UseSerialGC", *flink_engine.OPENS, "-cp", jars, "afterwrite.example.RunSql", str(scratch / "proxied.sql")]
    done = subprocess.run(command, env={**os.environ, "PROXY": stage.url}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    engines.wait_until(lambda: accepted(stage) >= before + 3)
    assert sorted(lab.spark.sql("SELECT id, region FROM lake.db.of_flink").collect()) == [(0, "eu"), (1, "eu"), (10, "us"), (11, "us")]

"""H105: statements of users that run while their partitions ask to be compacted: none fails for it."""

import os
import re
import subprocess
import threading

import pyarrow as pa
import pytest

import engines

MERGES = 10
SECONDS = 2
SETTINGS = """
[catalog.lake.proxy]
listen = "127.0.0.1:0"
upstream = "{}"

[server]
listen = "127.0.0.1:0"
http = "127.0.0.1:0"

[poll]
min = "300s"
max = "300s"

[defaults]
cooldown = "0s"
tier_files = 2
queue_min_reduction = 1

[[table]]
match = "lake.db.minded"
act = true

[[table]]
match = "lake.db.unminded"
act = true
keep_out = "0s"
"""


class Stage:
    """The REST catalog, with the proxy of an acting sidecar before it, and Spark behind that."""

    def __init__(self, home, spark_jvm):
        self.rest = engines.RestCatalog(home)
        config = home.config(SETTINGS.format(self.rest.url))
        self.process = subprocess.Popen([os.environ["AFTERWRITE_BIN"], "--config", str(config), "serve"], stderr=subprocess.PIPE, text=True)
        listening = {}
        while {"proxy of catalog lake", "http", "grpc"} - listening.keys():
            line = self.process.stderr.readline()
            assert line, "the sidecar ended before it listened"
            for door, address in re.findall(r"^(proxy of catalog lake|http|grpc) listens on (?:http://)?(127\.0\.0\.1:\d+)", line):
                listening[door] = f"http://{address}"
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.url, self.server = listening["proxy of catalog lake"], listening["grpc"]
        self.afterwrite = engines.Afterwrite(config)
        self.spark = spark_jvm.session.newSession()
        for name, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": self.url, ".cache-enabled": "false"}.items():
            self.spark.conf.set(f"spark.sql.catalog.minded{name}", value)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, "the sidecar did not drain"
        self.rest.stop()


@pytest.fixture(scope="module")
def stage(lab, spark_jvm):
    stage = Stage(lab.home, spark_jvm)
    yield stage
    stage.stop()


def appending(stage, table, stop):
    """Another client adds small files, which ask for a compaction all the time."""
    from pyiceberg.catalog.rest import RestCatalog

    catalog = RestCatalog("lake", uri=stage.url)
    added = 0
    while not stop.wait(0.7):
        rows = pa.table({"id": pa.array([1_000 + added], pa.int64()), "v": ["new"], "p": pa.array([added % 2], pa.int64())})
        try:
            catalog.load_table(f"db.{table}").append(rows)
            added += 1
        except Exception:  # lost to another commit: the next one adds it
            pass
    return added


def merges(stage, table):
    """Ten statements that each take some seconds, on both partitions, while small files come: what those say that failed."""
    stage.spark.sql(
        f"CREATE TABLE minded.db.{table} (id BIGINT, v STRING, p BIGINT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES "
        # what is appended meanwhile is no conflict to a MERGE of this isolation: the only one is ours
        "('format-version'='2', 'write.merge.mode'='merge-on-read', 'write.merge.isolation-level'='snapshot', 'commit.retry.num-retries'='10')"
    )
    for start in range(0, 100, 50):
        stage.spark.sql(f"INSERT INTO minded.db.{table} SELECT id, 'old', id % 2 FROM range({start}, {start + 50}, 1, 1)")
    stop, failed, added = threading.Event(), [], []
    writer = threading.Thread(target=lambda: added.append(appending(stage, table, stop)))
    writer.start()
    try:
        for n in range(MERGES):
            slow = f"reflect('java.lang.Thread', 'sleep', {SECONDS * 1000}L)"
            try:
                stage.spark.sql(
                    f"MERGE INTO minded.db.{table} t USING (SELECT id, {slow} AS slept FROM range({n * 2}, {n * 2 + 2}, 1, 1)) s "
                    f"ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = coalesce(s.slept, 'merged')"
                )
            except Exception as error:
                failed.append(causes(error))
    finally:
        stop.set()
        writer.join()
    return failed, added[0]


def causes(error):
    """What Spark says, with all that it says was the cause."""
    said, cause = [str(error)], getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None and hasattr(cause, "getCause"):
        said.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(said)


def replaces(lab, table):
    return [s for s in lab.spark.snapshots(table) if s["operation"] == "replace"]


def test_ten_merges_of_some_seconds_all_land_under_an_active_trigger(lab, stage):
    failed, added = merges(stage, "minded")
    told = stage.afterwrite.run("why", "lake.db.minded", "--server", stage.server).stdout
    assert failed == [], told
    merged = lab.spark.sql("SELECT count(*) FROM lake.db.minded WHERE id < 20 AND v <> 'old'").collect()[0][0]
    rows = lab.spark.sql("SELECT count(*), count(DISTINCT id) FROM lake.db.minded").collect()[0]
    assert merged == 2 * MERGES and tuple(rows) == (100 + added, 100 + added)
    # and what waited for them is done once they are over
    engines.wait_until(lambda: replaces(lab, "db.minded"), seconds=180)


def test_without_keeping_out_some_of_them_fail(lab, stage):
    failed, added = merges(stage, "unminded")
    print(f"{len(failed)} of {MERGES} failed: {failed[:1]}; {len(replaces(lab, 'db.unminded'))} rewrites landed")
    assert replaces(lab, "db.unminded"), "nothing was rewritten meanwhile"
    assert failed and all("missing data files" in why.lower() or "conflict" in why.lower() for why in failed), failed
    rows = lab.spark.sql("SELECT count(*), count(DISTINCT id) FROM lake.db.unminded").collect()[0]
    assert tuple(rows) == (100 + added, 100 + added)

"""Hooks in the engines: the jar in Spark and in Flink, the module in PyIceberg. No poll comes to their help."""

import os
import pathlib
import subprocess
import sys
import time

import pyarrow as pa
import pytest

import broker as brokers
import engines
import flink as flink_engine
import heard
import java
from sidecar import Sidecar

DEPLOY = pathlib.Path(__file__).parent.parent.parent / "deploy"
MODULE = DEPLOY / "hooks" / "python"
ACT = '[[table]]\nmatch = "lake.db.acted*"\nact = true\ncooldown = "0s"\n'
REGIONS = ["eu", "us"]
PROPERTIES = "TBLPROPERTIES ('format-version'='2', 'write.summary.partition-limit'='100')"


@pytest.fixture(scope="module")
def home(scratch):
    return engines.Home(scratch / "hooks")


@pytest.fixture(scope="module")
def spark(home, spark_jvm):
    return spark_jvm.open(home)


@pytest.fixture(scope="module")
def sidecar(home, spark):
    engines.PyIceberg(home).catalog.create_namespace_if_not_exists("db")
    running = Sidecar(home, ACT)
    # before the catalog's first use: Spark makes it once
    for key, value in reporter(running).items():
        spark.session.conf.set(f"spark.sql.catalog.lake.{key}", value)
    yield running
    running.stop()


def reporter(sidecar):
    """The catalog properties that arm the jar."""
    return {"metrics-reporter-impl": "afterwrite.hook.CommitReporter", "afterwrite.endpoint": f"http://{sidecar.http}"}


def head(spark, table):
    return spark.snapshots(table)[-1]["snapshot_id"]


def insert(spark, table, start, regions=REGIONS):
    values = ", ".join(f"({start * 10 + n}, '{region}')" for n in range(5) for region in regions)
    spark.sql(f"INSERT INTO lake.{table} VALUES {values}")


def test_a_commit_of_spark_is_told_by_the_jar(spark, sidecar):
    spark.sql(f"CREATE TABLE lake.db.told (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region) {PROPERTIES}")
    before = heard.door(sidecar, "/v1/commits")["received"]
    insert(spark, "db.told", 0)
    heard.until_known(sidecar, "db.told", REGIONS, head(spark, "db.told"))
    insert(spark, "db.told", 1, ["us", "asia"])
    heard.until_known(sidecar, "db.told", [*REGIONS, "asia"], head(spark, "db.told"))
    spark.sql("DELETE FROM lake.db.told WHERE id = 0 AND region = 'eu'")
    heard.until_known(sidecar, "db.told", [*REGIONS, "asia"], head(spark, "db.told"))
    door = heard.door(sidecar, "/v1/commits")
    assert (door["received"] - before, door["parked"], door["dropped"]) == (3, 0, 0)


def test_h103_a_table_made_from_a_query_is_known_although_the_report_comes_before_its_commit(spark, sidecar):
    spark.sql(f"CREATE TABLE lake.db.queried USING iceberg PARTITIONED BY (region) {PROPERTIES} AS SELECT id, if(id % 2 = 0, 'eu', 'us') region FROM range(10)")
    # a query that takes long is looked for ever more seldom
    heard.until_known(sidecar, "db.queried", REGIONS, head(spark, "db.queried"), seconds=70)


def staged_delete(spark, table, region):
    """A transaction of Iceberg's own API whose delete is staged, and thereby reported, and not committed yet."""
    jvm = spark.session._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark.session._jsparkSession, f"lake.{table}")
    transaction = loaded.newTransaction()
    transaction.newDelete().deleteFromRowFilter(jvm.org.apache.iceberg.expressions.Expressions.equal("region", region)).commit()
    return transaction


def test_h103_a_commit_two_seconds_after_its_report_is_known_without_a_poll(spark, sidecar):
    spark.sql(f"CREATE TABLE lake.db.reported (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region) {PROPERTIES}")
    insert(spark, "db.reported", 0)
    before = head(spark, "db.reported")
    heard.until_known(sidecar, "db.reported", REGIONS, before)
    told = heard.door(sidecar, "/v1/commits")
    transaction = staged_delete(spark, "db.reported", "eu")
    # the report was heard and looked after, and there is nothing yet
    engines.wait_until(lambda: heard.door(sidecar, "/v1/commits")["accepted"] == told["accepted"] + 1)
    time.sleep(2)
    assert head(spark, "db.reported") == before
    assert heard.partitions(sidecar, "db.reported") == heard.at(REGIONS, before)
    transaction.commitTransaction()
    assert head(spark, "db.reported") != before
    heard.until_known(sidecar, "db.reported", ["us"], head(spark, "db.reported"), seconds=15)
    after = heard.door(sidecar, "/v1/commits")
    assert after["received"] == told["received"] + 1, "nothing was told after the commit"
    assert (after["parked"], after["dropped"]) == (told["parked"], told["dropped"])


def test_h103_a_report_of_a_commit_that_never_happens_is_let_go_in_silence(spark, sidecar):
    spark.sql(f"CREATE TABLE lake.db.abandoned (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region) {PROPERTIES}")
    insert(spark, "db.abandoned", 0)
    before = head(spark, "db.abandoned")
    heard.until_known(sidecar, "db.abandoned", REGIONS, before)
    told = heard.door(sidecar, "/v1/commits")
    staged_delete(spark, "db.abandoned", "eu")
    engines.wait_until(lambda: heard.door(sidecar, "/v1/commits")["accepted"] == told["accepted"] + 1)
    time.sleep(3)
    assert heard.partitions(sidecar, "db.abandoned") == heard.at(REGIONS, before)
    after = heard.door(sidecar, "/v1/commits")
    assert (after["parked"], after["dropped"], after["problem"]) == (told["parked"], told["dropped"], None)


def test_commits_of_spark_bring_a_compaction_and_the_rows_stay(spark, sidecar):
    spark.sql(f"CREATE TABLE lake.db.acted_by_spark (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region) {PROPERTIES}")
    for step in range(12):
        insert(spark, "db.acted_by_spark", step)
    heard.until_compacted(spark, "db.acted_by_spark")
    assert spark.digest("db.acted_by_spark")[0] == 120


@pytest.fixture(scope="module")
def hooked_flink(scratch):
    (scratch / "hooked").mkdir()
    engine = flink_engine.Flink(scratch / "hooked")
    yield engine
    engine.stop()


def open_hooked(flink, home, sidecar, table, keys):
    catalog = {
        "uri": f"jdbc:sqlite:{home.database}?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE",
        "warehouse": f"file://{home.warehouse}", "jdbc.schema-version": "V1", "clients": "1", "cache-enabled": "false", **reporter(sidecar),
    }
    flink.child.ask(do="open", table=table, keys=keys, sink="v2", catalog=catalog)
    return flink_engine.Job(flink.child, table)


def test_checkpoints_of_flink_are_told_by_the_jar_and_compacted(spark, sidecar, home, hooked_flink):
    columns = "id BIGINT NOT NULL, region STRING NOT NULL, val BIGINT"
    for table in ("flink_told", "acted_by_flink"):
        spark.sql(
            f"CREATE TABLE lake.db.{table} ({columns}) USING iceberg PARTITIONED BY (region) "
            "TBLPROPERTIES ('format-version'='2', 'write.upsert.enabled'='true', 'write.summary.partition-limit'='100')"
        )
    job = open_hooked(hooked_flink, home, sidecar, "db.flink_told", ["id", "region"])
    job.upsert([(n, region, n) for n in range(4) for region in REGIONS])
    heard.until_caught_up(sidecar, spark, "db.flink_told", REGIONS)
    job.close()
    job = open_hooked(hooked_flink, home, sidecar, "db.acted_by_flink", ["id", "region"])
    for step in range(12):
        job.upsert([(n, region, step) for n in range(4 + step) for region in REGIONS])
    heard.until_compacted(spark, "db.acted_by_flink")
    job.close()
    rows = sorted(tuple(row) for row in spark.sql("SELECT id, region, val FROM lake.db.acted_by_flink").collect())
    assert rows == sorted((n, region, 11) for n in range(15) for region in REGIONS)


def test_a_catalog_of_pyiceberg_tells_by_the_module(spark, sidecar, home, monkeypatch):
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import CommitFailedException

    monkeypatch.syspath_prepend(str(MODULE))
    settings = {"py-catalog-impl": "afterwrite_hook.catalog", "afterwrite.type": "sql", "afterwrite.endpoint": f"http://{sidecar.http}"}
    catalog = load_catalog("lake", uri=f"sqlite:///{home.database}?timeout=30", warehouse=f"file://{home.warehouse}", **settings)
    for name in ("py_told", "acted_by_py"):
        spark.sql(f"CREATE TABLE lake.db.{name} (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region) {PROPERTIES}")

    def append(name, step):
        rows = [{"id": step, "region": region} for region in REGIONS]
        while True:
            try:
                table = catalog.load_table(f"db.{name}")
                table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
                return table.current_snapshot().snapshot_id
            except CommitFailedException:  # a compaction came between, as any writer's commit may
                continue

    snapshot = append("py_told", 1)
    heard.until_known(sidecar, "db.py_told", REGIONS, snapshot)
    for step in range(12):
        append("acted_by_py", step)
    heard.until_compacted(spark, "db.acted_by_py")
    assert spark.digest("db.acted_by_py") == engines.PyIceberg(home).digest("db.acted_by_py")
    assert spark.digest("db.acted_by_py")[0] == 24
    hook = catalog.afterwrite_hook
    assert hook.flush(10) and hook.dropped == 0


def test_the_modules_own_tests():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=MODULE, env={**os.environ, "PYTHONPATH": str(MODULE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    print(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def broker(scratch):
    broker = brokers.Broker(scratch / "hooks-broker")
    broker.topic("commits")
    yield broker
    broker.stop()


def test_the_flink_job_of_the_deployment_folder_tells_over_kafka(spark_jvm, scratch, broker):
    """`deploy/flink/orders.sql` as it is printed, with the jar writing to the topic."""
    home = engines.Home(scratch / "deploy-flink")
    jdbc = f"jdbc:sqlite:{home.database}?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE"
    spark = spark_jvm.open(home)
    spark.sql("CREATE NAMESPACE lake.sales")
    kafka = f'[kafka.events]\nbrokers = "{broker.plain}"\ntopics = [{{ topic = "commits", format = "json" }}]\n'
    sidecar = Sidecar(home, kafka + '[[table]]\nmatch = "lake.sales.orders"\nact = true\ncooldown = "0s"\n')
    try:
        jars = f"{java.CACHE}/hooks/java/*:{java.CACHE}/hooks/flink/*:{java.CACHE}/jars/flink-sql/*"
        given = {
            "CATALOG_URI": jdbc, "WAREHOUSE": f"file://{home.warehouse}", "BROKERS": broker.plain,
            "ROWS": "3000", "ROWS_PER_SECOND": "200", "CHECKPOINT_INTERVAL": "1s",
        }
        command = ["java", "-Xmx640m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *flink_engine.OPENS, "-cp", jars, "afterwrite.example.RunSql", str(DEPLOY / "flink" / "orders.sql")]
        done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        made = [s for s in spark.snapshots("sales.orders") if s["operation"] == "append"]
        assert len(made) >= 8, "each checkpoint is a commit"
        engines.wait_until(lambda: heard.door(sidecar, "commits")["received"] == len(made))
        door = heard.door(sidecar, "commits")
        assert (door["parked"], door["dropped"]) == (0, 0)
        engines.wait_until(lambda: set(heard.partitions(sidecar, "sales.orders")) == {f'region="{r}"' for r in ("asia", "eu", "us")})
        heard.until_compacted(spark, "sales.orders")
        assert spark.sql("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM lake.sales.orders").collect()[0][:] == (3000, 3000, 1, 3000)
    finally:
        sidecar.stop()

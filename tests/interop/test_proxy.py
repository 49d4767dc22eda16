"""Real clients through the catalog proxy: nothing changes but their catalog's address, every commit is heard, and no
fault after an applied commit makes a client delete what the table names (H93, H96, H101, H102)."""

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import engines
from faults import Faults
from test_writers import AWKWARD

# DuckDB asks the catalog twice where it reads a fault as one, so each fault is armed for one commit
NOT_FOUND = 7
# of each kind; what all of them do to every kind of commit is held against a scripted catalog in tests/hazards
KINDS = ["after:503", "drop", "replay", "late:5"]
APPLIED = ["after:500", "after:502", "after:503", "after:504", "after:429", "drop", "replay", "late:5"]


class Stage:
    """The REST catalog, what goes wrong before it, and the sidecar's proxy before that."""

    def __init__(self, home):
        self.duckdb = engines.DuckDB(home)
        self.sql = engines.PyIceberg(home)
        self.rest = engines.RestCatalog(home)
        self.faults = Faults(self.rest.url)
        config = home.config(
            f"""
[catalog.lake.proxy]
listen = "127.0.0.1:0"
upstream = "{self.faults.url}"
heal_deadline = "20s"

[server]
listen = "127.0.0.1:0"
http = "127.0.0.1:0"

[poll]
min = "300s"
max = "300s"

[[table]]
match = "lake.db.compacted*"
act = true
cooldown = "0s"
"""
        )
        self.process = subprocess.Popen([os.environ["AFTERWRITE_BIN"], "--config", str(config), "serve"], stderr=subprocess.PIPE, text=True)
        self.listening = {}
        while {"proxy of catalog lake", "http", "grpc"} - self.listening.keys():
            line = self.process.stderr.readline()
            assert line, "the sidecar ended before it listened"
            for door, address in re.findall(r"^(proxy of catalog lake|http|grpc) listens on (?:http://)?(127\.0\.0\.1:\d+)", line):
                self.listening[door] = f"http://{address}"
        self.url = self.listening["proxy of catalog lake"]
        self.afterwrite = engines.Afterwrite(config)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, "the sidecar did not drain"
        self.faults.stop()
        self.rest.stop()

    def admin(self, query):
        urllib.request.urlopen(f"{self.rest.url}/admin?{query}", timeout=10).read()

    def metric(self, name, **labels):
        text = urllib.request.urlopen(f"{self.listening['http']}/metrics", timeout=10).read().decode()
        total = 0.0
        for key, words, value in re.findall(r"^(\w+)(?:\{([^}]*)\})? ([0-9.e+]+)$", text, re.M):
            if key == name and all(f'{k}="{v}"' in words for k, v in labels.items()):
                total += float(value)
        return total

    def partitions(self, *table):
        """The partitions that the sidecar knows, with the snapshot at which it judged them."""
        name = ".".join(("lake", *table))
        done = self.afterwrite.run("why", name, "--server", self.listening["grpc"], "--json", ok=(0, NOT_FOUND))
        decisions = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        return {d["partition"]: d["snapshot_id"] for d in decisions}

    @contextlib.contextmanager
    def fault(self, what):
        self.faults.fault = what
        yield
        assert self.faults.fault is None, "the fault hit no commit"

    def duck(self, *statements, url=None):
        attach = f"ATTACH '' AS ice (TYPE iceberg, ENDPOINT '{url or self.url}', AUTHORIZATION_TYPE 'none')"
        return self.duckdb.run(attach, *statements)

    def pyiceberg(self):
        from pyiceberg.catalog.rest import RestCatalog

        return RestCatalog("lake", uri=self.url)

    def files(self, table):
        """Every file that the table names, and those of them that are not there."""
        named = self.sql.catalog.load_table(table).inspect.files()["file_path"].to_pylist()
        return named, [p for p in named if not os.path.exists(re.sub("^file:/*", "/", p))]

    def whole(self, table, rows):
        """The table has this many rows and all of its files."""
        named, missing = self.files(table)
        assert named and not missing, f"{len(missing)} of {len(named)} files of {table} are gone"
        assert self.sql.digest(table)[0] == rows


@pytest.fixture(scope="module")
def stage(lab):
    stage = Stage(lab.home)
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def spark(stage, spark_jvm):
    session = spark_jvm.session.newSession()
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": stage.url, ".cache-enabled": "false"}
    for name, value in settings.items():
        session.conf.set(f"spark.sql.catalog.through{name}", value)
    return session


def test_duckdb_loses_its_files_without_the_proxy(stage):
    stage.duck("CREATE TABLE ice.db.lost (id BIGINT)", url=stage.faults.url)
    stage.faults.fault = "drop"
    with pytest.raises(AssertionError):
        stage.duck("INSERT INTO ice.db.lost SELECT range FROM range(10)", url=stage.faults.url)
    stage.faults.fault = None
    assert stage.files("db.lost")[1], "DuckDB has learnt to keep them: this file's reason is gone"


@pytest.mark.parametrize("fault", APPLIED)
def test_h93_duckdb_keeps_its_files_and_hears_success(stage, fault):
    table = f"db.duck_{fault.replace(':', '_')}"
    stage.duck(f"CREATE TABLE ice.{table} (id BIGINT, v VARCHAR)")
    stage.duck(f"INSERT INTO ice.{table} SELECT range, 'a' FROM range(10)")
    with stage.fault(fault):
        stage.duck(f"INSERT INTO ice.{table} SELECT range, 'b' FROM range(7)")
    stage.whole(table, 17)


def test_h93_duckdb_commits_two_tables_at_once(stage):
    stage.duck("CREATE TABLE ice.db.two_a (id BIGINT)", "CREATE TABLE ice.db.two_b (id BIGINT)")
    for times, fault in enumerate(KINDS, 1):
        with stage.fault(fault):
            stage.duck(
                "BEGIN",
                "INSERT INTO ice.db.two_a SELECT range FROM range(5)",
                "INSERT INTO ice.db.two_b SELECT range FROM range(6)",
                "COMMIT",
            )
        stage.whole("db.two_a", 5 * times)
        stage.whole("db.two_b", 6 * times)


@pytest.mark.parametrize("fault", KINDS)
def test_h93_duckdb_creates_a_table_from_a_query(stage, fault):
    table = f"db.made_{fault.replace(':', '_')}"
    with stage.fault(fault):
        stage.duck(f"CREATE TABLE ice.{table} AS SELECT range AS id FROM range(8)")
    stage.whole(table, 8)


def test_h93_pyiceberg_hears_success(stage):
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    table = stage.pyiceberg().create_table("db.py", rows.schema)
    for times, fault in enumerate(APPLIED, 1):
        with stage.fault(fault):
            table.append(rows)
        stage.whole("db.py", 10 * times)
    # two snapshots in one request: what was there goes, and new rows come
    with stage.fault("drop"):
        table.overwrite(rows)
    stage.whole("db.py", 10)
    for fault in ("after:500", "replay"):
        with stage.fault(fault), stage.pyiceberg().create_table_transaction(f"db.py_made_{fault[:5]}", rows.schema) as made:
            made.append(rows)
        stage.whole(f"db.py_made_{fault[:5]}", 10)


def test_h93_spark_hears_success(stage, spark):
    spark.sql("CREATE TABLE through.db.by_spark (id BIGINT, dt STRING) USING iceberg PARTITIONED BY (dt)")
    for times, fault in enumerate(APPLIED, 1):
        with stage.fault(fault):
            spark.sql("INSERT INTO through.db.by_spark SELECT id, 'x' FROM range(10)")
        stage.whole("db.by_spark", 10 * times)
    with stage.fault("drop"):
        spark.sql("DELETE FROM through.db.by_spark WHERE id = 3")
    stage.whole("db.by_spark", 9 * len(APPLIED))


def test_h93_spark_creates_and_replaces_a_table_from_a_query(stage, spark):
    for fault in ("after:504", "drop", "replay"):
        table = f"db.spark_made_{fault.replace(':', '_')}"
        with stage.fault(fault):
            spark.sql(f"CREATE TABLE through.{table} USING iceberg AS SELECT id FROM range(8)")
        stage.whole(table, 8)
        with stage.fault(fault):
            spark.sql(f"REPLACE TABLE through.{table} USING iceberg AS SELECT id FROM range(9)")
        stage.whole(table, 9)


@pytest.mark.parametrize("fault", KINDS)
def test_h93_a_staged_snapshot_of_spark(stage, spark, fault):
    """Its second copy is refused as what is there already, not as a conflict."""
    name = f"staged_{fault.replace(':', '_')}"
    spark.sql(f"CREATE TABLE through.db.{name} (id BIGINT) USING iceberg TBLPROPERTIES ('write.wap.enabled'='true')")
    spark.sql(f"INSERT INTO through.db.{name} VALUES (1)")
    spark.conf.set("spark.wap.id", "w1")
    try:
        with stage.fault(fault):
            spark.sql(f"INSERT INTO through.db.{name} VALUES (2), (3)")
    finally:
        spark.conf.unset("spark.wap.id")
    staged = spark.sql(f"SELECT snapshot_id FROM through.db.{name}.snapshots WHERE summary['wap.id'] = 'w1'").collect()
    assert len(staged) == 1
    spark.sql(f"CALL through.system.cherrypick_snapshot('db.{name}', {staged[0][0]})")
    stage.whole(f"db.{name}", 3)


def test_the_loser_of_a_race_hears_so_at_once(stage):
    """Its conflict is one that healing holds back until the table explains it; PyIceberg then tries again by itself."""
    rows = pa.table({"id": pa.array(range(3), pa.int64())})
    stage.pyiceberg().create_table("db.raced", rows.schema)
    winner, loser = (stage.pyiceberg().load_table("db.raced") for _ in range(2))
    winner.append(rows)
    refused = stage.metric("afterwrite_proxy_healed_total")
    began = time.monotonic()
    loser.append(rows)
    assert time.monotonic() - began < 10, "a conflict that is not explained is held for 20 s"
    assert stage.metric("afterwrite_proxy_healed_total") == refused + 1
    stage.whole("db.raced", 6)


def test_h103_a_report_through_the_proxy_two_seconds_before_its_commit(stage, spark):
    """Spark reports a transaction's operations as they are staged; the sidecar looks, finds nothing, and looks again."""
    spark.sql("CREATE TABLE through.db.staged_first (id BIGINT, p STRING) USING iceberg PARTITIONED BY (p)")
    spark.sql("INSERT INTO through.db.staged_first VALUES (1, 'a'), (2, 'b')")
    head = lambda: str(stage.sql.catalog.load_table("db.staged_first").current_snapshot().snapshot_id)
    before = head()
    engines.wait_until(lambda: stage.partitions("db", "staged_first") == {'p="a"': before, 'p="b"': before})
    reports = lambda: stage.metric("afterwrite_proxy_answers_total", route="report")
    reported = reports()
    jvm = spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "through.db.staged_first")
    transaction = table.newTransaction()
    transaction.newDelete().deleteFromRowFilter(jvm.org.apache.iceberg.expressions.Expressions.equal("p", "a")).commit()
    engines.wait_until(lambda: reports() > reported)
    time.sleep(2)
    assert head() == before
    assert stage.partitions("db", "staged_first") == {'p="a"': before, 'p="b"': before}
    transaction.commitTransaction()
    assert head() != before
    # what was decided about the partition that the commit did not touch may stand
    engines.wait_until(lambda: stage.partitions("db", "staged_first").keys() == {'p="b"'}, 15)


def commit_by_hand(stage, table, *more, key=None):
    """A commit that adds a snapshot and may assert something more: the answer, and how long it took."""
    loaded = stage.pyiceberg().load_table(table)
    head = loaded.current_snapshot()
    snapshot = {
        "snapshot-id": 4711, "parent-snapshot-id": head.snapshot_id, "sequence-number": loaded.metadata.last_sequence_number + 1,
        "timestamp-ms": int(time.time() * 1000), "manifest-list": head.manifest_list, "summary": {"operation": "append"}, "schema-id": 0,
    }
    body = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(loaded.metadata.table_uuid)},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head.snapshot_id},
            *more,
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 4711},
        ],
    }
    namespace, name = table.split(".")
    request = urllib.request.Request(f"{stage.url}/v1/namespaces/{namespace}/tables/{name}", json.dumps(body).encode(), {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})})
    began = time.monotonic()
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, json.loads(answer.read()), time.monotonic() - began


def test_h93_a_refusal_whose_reason_the_table_shows_is_told_at_once(stage, spark):
    """Not because the branch has moved: healing would look for 20 s."""
    spark.sql("CREATE TABLE through.db.evolved (id BIGINT) USING iceberg")
    spark.sql("INSERT INTO through.db.evolved VALUES (1)")
    spark.sql("ALTER TABLE through.db.evolved ADD COLUMN v STRING")
    for more in ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1}, {"type": "assert-current-schema-id", "current-schema-id": 0}):
        status, answer, took = commit_by_hand(stage, "db.evolved", more)
        assert (status, answer["error"]["type"]) == (409, "CommitFailedException"), answer
        assert took < 5, f"{more['type']}: {took:.1f} s"
    stage.whole("db.evolved", 1)


def test_a_conflict_without_a_reason_is_told_at_once_by_a_catalog_that_knows_requests_again(spark_jvm, scratch):
    stage = Stage(engines.Home(scratch / "keyed"))
    try:
        stage.admin("idempotency=PT30M")
        session = spark_jvm.session.newSession()
        for name, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": stage.url, ".cache-enabled": "false"}.items():
            session.conf.set(f"spark.sql.catalog.keyed{name}", value)
        session.sql("CREATE NAMESPACE keyed.db")
        session.sql("CREATE TABLE keyed.db.t (id BIGINT) USING iceberg")
        session.sql("INSERT INTO keyed.db.t VALUES (1)")
        stage.admin("conflict_n=1")
        status, answer, took = commit_by_hand(stage, "db.t", key="019a5d2e-7c1b-7f3a-8b1c-0123456789ab")
        assert (status, answer["error"]["message"]) == (409, "Injected conflict") and took < 5
        # Spark sends keys of its own, and tries again when it hears of a conflict
        stage.admin("conflict_n=2")
        began = time.monotonic()
        session.sql("INSERT INTO keyed.db.t VALUES (2)")
        assert time.monotonic() - began < 15, "twice 20 s without keys"
        # a second copy of what was applied is answered as the first, here by the catalog itself
        for fault in ("replay", "after:503", "drop"):
            with stage.fault(fault):
                session.sql("INSERT INTO keyed.db.t VALUES (3)")
        assert any("Idempotency-Key" in headers for _, _, headers in stage.faults.seen)
        stage.whole("db.t", 5)
    finally:
        stage.stop()


def test_h101_names_with_spaces_and_signs(stage, spark):
    for name in ("t x", "t+y", "50%", "ü.v"):
        spark.sql(f"CREATE TABLE through.db.`{name}` (id BIGINT) USING iceberg")
        known = lambda: set(stage.partitions("db", f"`{name}`").values())
        head = lambda: str(stage.sql.catalog.load_table(("db", name)).current_snapshot().snapshot_id)
        writes = [
            lambda: spark.sql(f"INSERT INTO through.db.`{name}` VALUES (1)"),
            lambda: stage.pyiceberg().load_table(("db", name)).append(pa.table({"id": pa.array([2], pa.int64())})),
            lambda: stage.duck(f'INSERT INTO ice.db."{name}" VALUES (3)'),
        ]
        for write in writes:
            write()
            engines.wait_until(lambda: known() == {head()})
        assert spark.sql(f"SELECT count(*) FROM through.db.`{name}`").collect()[0][0] == 3


@pytest.mark.parametrize("writer", ["spark", "pyiceberg", "duckdb"])
def test_h96_awkward_partitions_are_known_whatever_the_summary_says(stage, spark, writer):
    name = f"awkward_{writer}"
    # more partitions than the summary may list, and values that its text cannot tell apart
    spark.sql(f"CREATE TABLE through.db.{name} (id BIGINT, s STRING) USING iceberg PARTITIONED BY (s) TBLPROPERTIES ('write.summary.partition-limit'='100')")
    values = [*AWKWARD, None]
    listed = ", ".join(f"({i}, {'NULL' if v is None else repr(v)})" for i, v in enumerate(values))
    if writer == "spark":
        spark.sql(f"INSERT INTO through.db.{name} VALUES {listed}")
    elif writer == "duckdb":
        stage.duck(f"INSERT INTO ice.db.{name} VALUES {listed}")
    else:
        rows = {"id": pa.array(range(len(values)), pa.int64()), "s": pa.array(values, pa.string())}
        stage.pyiceberg().load_table(f"db.{name}").append(pa.table(rows))
    head = str(stage.sql.catalog.load_table(f"db.{name}").current_snapshot().snapshot_id)
    partitions = engines.wait_until(lambda: stage.partitions("db", name))
    assert (len(partitions), set(partitions.values())) == (len(values), {head})


def test_h102_a_catalog_that_names_itself_does_not_lead_around_the_proxy(stage, spark):
    stage.duck("CREATE TABLE ice.db.led (id BIGINT)")
    stage.admin(f"config_uri={stage.faults.url}")
    loads = lambda: stage.metric("afterwrite_proxy_answers_total", route="load")
    try:
        before = loads()
        stage.pyiceberg().load_table("db.led")
        assert loads() == before + 1
        # a catalog of Spark's that has asked for no configuration yet
        for name, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": stage.url, ".cache-enabled": "false"}.items():
            spark.conf.set(f"spark.sql.catalog.led{name}", value)
        spark.sql("INSERT INTO led.db.led VALUES (1)")
        assert loads() > before + 1
        before = loads()
        stage.duck("INSERT INTO ice.db.led VALUES (2)")
        assert loads() > before
    finally:
        stage.admin("config_uri=")
    head = str(stage.sql.catalog.load_table("db.led").current_snapshot().snapshot_id)
    engines.wait_until(lambda: set(stage.partitions("db", "led").values()) == {head})


def insert_again(stage, statement):
    """DuckDB does not retry a commit that another one came before: whoever uses it does."""
    for attempt in range(10):
        try:
            return stage.duck(statement)
        except AssertionError as error:
            if attempt == 9 or "Conflict_409" not in str(error):
                raise


def test_commits_heard_at_the_proxy_are_compacted_and_every_engine_reads_the_same(lab, stage, spark):
    stage.duck("CREATE TABLE ice.db.compacted (id BIGINT, v VARCHAR)")
    for i in range(10):
        insert_again(stage, f"INSERT INTO ice.db.compacted SELECT range, 'v{i}' FROM range({i * 10}, {i * 10 + 10})")
    snapshots = lambda: lab.spark.snapshots("db.compacted")
    engines.wait_until(lambda: any(s["operation"] == "replace" for s in snapshots()))
    replace = [s for s in snapshots() if s["operation"] == "replace"][0]
    assert lab.spark.digest("db.compacted", replace["snapshot_id"]) == lab.spark.digest("db.compacted", replace["parent_id"])
    seen = lab.spark.digest("db.compacted")
    assert seen[0] == 100
    assert lab.pyiceberg.digest("db.compacted") == lab.duckdb.digest("db.compacted") == seen
    assert spark.sql("SELECT count(*), sum(id) FROM through.db.compacted").collect()[0][:] == (100, 4950)


@pytest.mark.parametrize("writer", ["spark", "pyiceberg"])
def test_a_partition_that_a_commit_touched_is_compacted_and_no_other(lab, stage, spark, writer):
    name = f"db.compacted_{writer}"
    spark.sql(f"CREATE TABLE through.{name} (id BIGINT, p STRING) USING iceberg PARTITIONED BY (p)")

    def write(part, n):
        if writer == "spark":
            return spark.sql(f"INSERT INTO through.{name} SELECT id, '{part}' FROM range({n * 10}, {n * 10 + 10})")
        rows = {"id": pa.array(range(n * 10, n * 10 + 10), pa.int64()), "p": pa.array([part] * 10)}
        return stage.pyiceberg().load_table(name).append(pa.table(rows))

    write("calm", 0)
    for n in range(1, 10):
        write("busy", n)
    replaces = lambda: [s for s in lab.spark.snapshots(name) if s["operation"] == "replace"]
    replace = engines.wait_until(replaces)[0]
    assert replace["summary"]["changed-partition-count"] == "1"
    assert lab.spark.digest(name, replace["snapshot_id"]) == lab.spark.digest(name, replace["parent_id"])
    assert len(stage.partitions(*name.split("."))) == 2
    seen = lab.spark.digest(name)
    assert seen[0] == 100
    assert lab.pyiceberg.digest(name) == lab.duckdb.digest(name) == seen
    assert spark.sql(f"SELECT count(*), sum(id) FROM through.{name}").collect()[0][:] == (100, 4950)
    assert stage.pyiceberg().load_table(name).scan().to_arrow().num_rows == 100
    assert stage.duck(f"SELECT * FROM ice.{name}")[0] == 100


def test_h93_a_drain_lets_a_commit_end(scratch):
    stage = Stage(engines.Home(scratch / "drained"))
    try:
        stage.duck("CREATE SCHEMA ice.db", "CREATE TABLE ice.db.drained (id BIGINT)")
        stage.faults.fault = "late:4"
        with ThreadPoolExecutor(1) as pool:
            inserting = pool.submit(stage.duck, "INSERT INTO ice.db.drained SELECT range FROM range(9)")
            engines.wait_until(lambda: stage.faults.fault is None)
            stage.process.terminate()
            inserting.result(timeout=60)
        stage.whole("db.drained", 9)
    finally:
        stage.stop()

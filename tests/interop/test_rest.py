"""One REST catalog, built on Iceberg's own handlers, for every engine and the sidecar; with its faults switched on."""

import os
import pathlib
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import engines


@pytest.fixture(scope="module")
def server(lab):
    server = engines.RestCatalog(lab.home)
    yield server
    server.stop()


class Rest:
    """Every engine over the REST catalog. Spark over the database is the one that looks on."""

    def __init__(self, lab, spark_jvm, server):
        from pyiceberg.catalog.rest import RestCatalog

        self.lab, self.server, self.files = lab, server, 0
        self.spark = spark_jvm.open_rest(lab.home, server.url)
        self.pyiceberg = RestCatalog("lake", uri=server.url)
        self.afterwrite = self.client()

    def client(self, *lines, extra="", server=None, journal="journal"):
        """The sidecar over the REST catalog, with more lines for the catalog's settings."""
        self.files += 1
        rest = ((server or self.server).url, *lines)
        return engines.Afterwrite(self.lab.home.config(extra, rest, f"rest{self.files}.toml", journal))

    def duckdb(self, statement):
        return self.lab.duckdb.run(self.server.attach(), statement)

    def table(self, name, commits=8):
        self.spark.sql(f"CREATE TABLE lake.db.{name} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
        for i in range(commits):
            self.append(name, i * 10)
        return f"db.{name}"

    def append(self, name, start):
        self.spark.sql(f"INSERT INTO lake.db.{name} SELECT id, concat('v', id) FROM range({start}, {start + 10}, 1, 1)")

    def replaces(self, table):
        return [s for s in self.lab.spark.snapshots(table) if s["operation"] == "replace"]

    def missing(self, table):
        """Data files that the table names and the disk has not."""
        paths = [f["file_path"] for f in self.lab.spark.files(table)]
        return [p for p in paths if not pathlib.Path(re.sub("^file:/*", "/", p)).exists()]


@pytest.fixture(scope="module")
def rest(lab, spark_jvm, server):
    return Rest(lab, spark_jvm, server)


@pytest.fixture(scope="module", autouse=True)
def refused(lab, rest):
    """A compaction whose commit was refused without a reason, of a table whose properties alone change then: it looks at the table
    for half a minute, while the other tests run."""
    table = rest.table("refused", commits=6)
    server = engines.RestCatalog(lab.home)  # of its own: the others' faults are not for it
    client = rest.client(server=server, journal="refused")
    server.admin(conflict_n=1)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(client.compact, table)
        engines.wait_until(lambda: server.admin()["stats"].get("fault.conflict_n") == 1)
        rest.spark.sql(f"ALTER TABLE lake.{table} SET TBLPROPERTIES ('changed'='alone')")
        yield client, table, ended
    server.stop()


@pytest.fixture(autouse=True)
def no_faults(server):
    server.admin(reset=True)
    yield
    server.admin(reset=True)


def test_every_engine_writes_and_reads_over_it_and_the_sidecar_compacts(rest):
    table = rest.table("all_engines", commits=4)
    rest.pyiceberg.load_table(table).append(pa.table({"id": pa.array([100, 101], pa.int64()), "v": ["p", None]}))
    rest.duckdb("INSERT INTO ice.db.all_engines VALUES (200, 'd'), (201, NULL)")
    before = rest.spark.digest(table)
    assert before[0] == 44
    rest.afterwrite.json("inspect", f"lake.{table}")
    rest.afterwrite.json("plan", f"lake.{table}")
    results = rest.afterwrite.compact(table)
    assert [r["files_in"] for r in results if r.get("snapshot_id")] == [6]
    rest.pyiceberg.load_table(table).append(pa.table({"id": pa.array([102], pa.int64()), "v": ["later"]}))
    rest.pyiceberg.load_table(table).delete("id = 102")
    assert rest.spark.digest(table) == rest.lab.spark.digest(table) == before
    assert rest.duckdb("SELECT * FROM ice.db.all_engines") == before
    assert rest.lab.pyiceberg.digest(table) == before
    assert len(rest.replaces(table)) == 1 and rest.missing(table) == []


# after the commit was applied
APPLIED = {
    "500": dict(after_status=500, after_n=1),
    "502": dict(after_status=502, after_n=1),
    "503": dict(after_status=503, after_n=1),
    "504": dict(after_status=504, after_n=1),
    "429": dict(after_status=429, after_n=1),
    "409": dict(after_status=409, after_n=1),
    "drop": dict(drop_n=1),
}


@pytest.mark.parametrize("fault", APPLIED)
def test_an_applied_commit_is_recognised_whatever_its_answer(rest, fault):
    table = rest.table(f"applied_{fault}")
    before = rest.spark.digest(table)
    rest.server.admin(**APPLIED[fault])
    results = rest.afterwrite.compact(table)
    assert [bool(r.get("snapshot_id")) for r in results] == [True], results
    assert len(rest.replaces(table)) == 1, "a commit was doubled or lost"
    assert rest.spark.digest(table) == before and rest.missing(table) == []
    assert len(rest.lab.spark.files(table)) == 1


def test_an_answer_that_comes_too_late_loses_and_doubles_nothing(rest):
    table = rest.table("late")
    before = rest.spark.digest(table)
    client = rest.client("rest.client.socket-timeout-ms = 2000")
    rest.server.admin(delay_ms=5000, delay_commit_n=1)
    results = client.compact(table)
    assert [bool(r.get("snapshot_id")) for r in results] == [True], results
    assert len(rest.replaces(table)) == 1
    assert rest.spark.digest(table) == before and rest.missing(table) == []


def test_throttled_reads_wait_as_asked(rest):
    table = rest.table("throttled", commits=4)
    before = rest.spark.digest(table)
    rest.server.admin(throttle_n=2, retry_after=1)
    results = rest.afterwrite.compact(table)
    assert [bool(r.get("snapshot_id")) for r in results] == [True], results
    assert rest.server.admin()["stats"]["fault.throttle_n"] == 2
    assert rest.spark.digest(table) == before and rest.missing(table) == []


def test_packed_answers_an_expiring_token_a_prefix_and_keys(rest):
    table = rest.table("dressed", commits=4)
    before = rest.lab.spark.digest(table)
    rest.server.admin(gzip=1, oauth=1, oauth_ttl=1, prefix="a|b c", idempotency="PT30M", ns_separator="%2E")
    client = rest.client('credential = "id:s3cr3t"')
    results = client.compact(table)
    assert [bool(r.get("snapshot_id")) for r in results] == [True], results
    wrong = rest.client('credential = "id:wrong"').run("compact", f"lake.{table}", ok=(64,))
    assert "bad secret" in wrong.stderr and "id:wrong" not in wrong.stderr + wrong.stdout
    rest.server.admin(reset=True)
    assert len(rest.replaces(table)) == 1
    assert rest.lab.spark.digest(table) == before and rest.missing(table) == []


def test_a_running_sidecar_finds_commits_by_polling_the_rest_catalog(rest):
    settings = """
[server]
listen = "127.0.0.1:0"
http = "127.0.0.1:0"

[poll]
min = "1s"
max = "2s"

[[table]]
match = "lake.db.polled"
act = true
cooldown = "0s"
"""
    config = rest.client(extra=settings).config
    table = rest.table("polled", commits=1)
    process = subprocess.Popen([os.environ["AFTERWRITE_BIN"], "--config", config, "serve"], stderr=subprocess.DEVNULL)
    try:
        for i in range(1, 12):
            rest.append("polled", i * 10)
        engines.wait_until(lambda: rest.replaces(table), seconds=60)
    finally:
        process.terminate()
        assert process.wait(60) == 0, "the sidecar did not drain"
    assert rest.spark.digest(table) == rest.lab.pyiceberg.digest(table)
    assert rest.spark.digest(table)[0] == 120 and rest.missing(table) == []
    assert rest.server.admin()["stats"]["GET namespaces/tables/4"] > 10


# how the answer to an undo is lost: after it was applied, or before
UNDO = {**APPLIED, "before": dict(before_status=503, before_n=1), "refused without a reason": dict(conflict_n=1)}


def test_an_undo_is_told_whatever_its_answer(rest):
    table = rest.table("undone", commits=5)
    before, head = rest.spark.digest(table), rest.lab.spark.snapshots(table)[-1]["snapshot_id"]
    main = lambda: rest.pyiceberg.load_table(table).current_snapshot().snapshot_id
    for fault, switches in UNDO.items():
        [landed] = [r for r in rest.afterwrite.compact(table) if r.get("snapshot_id")]
        assert str(main()) == landed["snapshot_id"] != str(head), fault
        rest.server.admin(**switches)
        rest.afterwrite.run("undo", landed["job"])
        assert sum(rest.server.admin()["stats"].get(f"fault.{n}", 0) for n in switches) == 1, f"{fault} hit nothing"
        rest.server.admin(reset=True)
        assert main() == head, fault
        assert rest.spark.digest(table) == before and rest.missing(table) == [], fault
    # each rolled back once, and no commit of it made twice
    history = [row[0] for row in rest.spark.sql(f"SELECT snapshot_id FROM lake.{table}.history ORDER BY made_current_at").collect()]
    replaced = [s["snapshot_id"] for s in rest.replaces(table)]
    assert len(replaced) == len(UNDO) and history[-2 * len(UNDO) :] == [id for made in replaced for id in (made, head)]


def test_a_refused_commit_without_a_reason_is_shut_out_and_made_again(rest, refused):
    """Behind a catalog that compares heads nothing but the table's next commit would tell."""
    client, table, ended = refused
    results = ended.result(timeout=300)
    assert [bool(r.get("snapshot_id")) for r in results] == [True], results
    assert len(rest.replaces(table)) == 1 and rest.missing(table) == []
    assert len(list((rest.lab.home.warehouse / "db" / "refused").rglob("*.parquet"))) == 7, "the same output, under another attempt"
    assert rest.spark.digest(table)[0] == 60
    [replace] = rest.replaces(table)
    assert rest.lab.spark.digest(table, replace["snapshot_id"]) == rest.lab.spark.digest(table, replace["parent_id"])
    assert [job["state"] for job in client.json("jobs")] == ["committed"]

"""The demo's warehouse, read by the engines."""

import datetime as dt
import glob
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import pytest

import engines

TABLES = ["orders", "lineitem"]


def play(folder, *words):
    done = subprocess.run([os.environ["AFTERWRITE_BIN"], "demo", "--dir", str(folder), *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(scratch):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    report = json.loads(play(scratch / "demo", "--json"))
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return engines.Home(scratch / "demo", name="demo"), report, (cpu, wall)


@pytest.fixture(scope="module")
def readers(demo, spark_jvm):
    home = demo[0]
    return {"spark": spark_jvm.open(home), "pyiceberg": engines.PyIceberg(home), "duckdb": engines.DuckDB(home)}


@pytest.mark.parametrize("table", TABLES)
def test_every_engine_reads_the_same_rows_with_and_without(demo, readers, table):
    sides = {t["name"]: t for t in demo[1]["tables"]}[table]
    digests = {(name, side): reader.digest(f"{side}_afterwrite.{table}") for name, reader in readers.items() for side in ("with", "without")}
    assert len(set(digests.values())) == 1, digests
    count = next(iter(digests.values()))[0]
    assert (sides["with"]["rows"], sides["without"]["rows"]) == (count, count)
    assert sides["with"]["row_hash"] == sides["without"]["row_hash"]
    assert sides["with"]["files"] < sides["without"]["files"]


def test_it_takes_less_than_a_minute(demo):
    """Of one core, and what it waits beside that: other tests have the machine too."""
    cpu, wall = demo[2]
    print(f"the demo took {cpu:.0f} s of one core, {wall:.0f} s in all")
    assert cpu < 60 and wall < 240


@pytest.mark.parametrize("table", TABLES)
def test_every_compaction_left_the_rows_as_they_were(demo, readers, table):
    snapshots = readers["spark"].snapshots(f"with_afterwrite.{table}")
    replaces = [s for s in snapshots if s["operation"] == "replace"]
    first = snapshots[0]["snapshot_id"]
    assert replaces, "the demo compacted nothing"
    seen = sorted({first} | {s for replace in replaces for s in (replace["parent_id"], replace["snapshot_id"])})
    for name in ("pyiceberg", "duckdb"):
        sums = readers[name].sums(f"with_afterwrite.{table}", seen)
        changed = [r["snapshot_id"] for r in replaces if sums[r["parent_id"]] != sums[r["snapshot_id"]]]
        assert changed == [], f"{name} sees other rows after these compactions"
        assert all(sums[r["snapshot_id"]] != sums[first] for r in replaces), "the sums tell no rows apart"
    spark_sees_no_change(readers["spark"], f"with_afterwrite.{table}", first, replaces)


def spark_sees_no_change(spark, table, first, replaces):
    """The partitions that each compaction touched, since whole tables take Spark long; and the whole, in the first and last."""
    touched = partitions(spark, table)
    ends = {replaces[0]["snapshot_id"], replaces[-1]["snapshot_id"]}
    start = {where: spark.sums(table, [first], where)[first] for where in {*touched.values(), "true"}}
    for replace in replaces:
        before, after = replace["parent_id"], replace["snapshot_id"]
        for where in {touched[after]} | ({"true"} if after in ends else set()):
            sums = spark.sums(table, [before, after], where)
            assert sums[before] == sums[after], f"Spark sees other rows after {after} where {where}"
            assert sums[after] != start[where], "the sums tell no rows apart"


def partitions(spark, table):
    """Each snapshot's predicate on the months whose files it added or took away."""
    entries = spark.sql(f"SELECT snapshot_id, data_file FROM {spark.catalog}.{table}.all_entries WHERE status <> 0")
    by_month = "partition" in entries.schema["data_file"].dataType.names
    found = {}
    for row in entries.selectExpr("snapshot_id", "data_file.partition AS at" if by_month else "NULL AS at").distinct().collect():
        found.setdefault(row["snapshot_id"], set()).add(in_month(row["at"]) if by_month else "true")
    return {snapshot: " OR ".join(sorted(parts)) for snapshot, parts in found.items()}


def in_month(partition):
    [(field, month)] = partition.asDict().items()
    start = lambda m: dt.date(1970 + m // 12, m % 12 + 1, 1)  # noqa: E731
    return "({0} >= DATE'{1}' AND {0} < DATE'{2}')".format(field.removesuffix("_month"), start(month), start(month + 1))


@pytest.mark.parametrize("table", TABLES)
def test_the_demo_files_are_what_the_table_says(demo, readers, table):
    sides = {t["name"]: t for t in demo[1]["tables"]}[table]
    for side in ("with", "without"):
        files = readers["spark"].files(f"{side}_afterwrite.{table}")
        assert len(files) == sides[side]["files"]
        assert sum(f["file_size_in_bytes"] for f in files) == sides[side]["bytes"]


@pytest.fixture(scope="module")
def printed(scratch):
    """A short demo's last words: by the engine's name, the lines that open the warehouse."""
    text = play(scratch / "printed", "--scale", "0.001", "--commits", "3")
    parts = re.split(r"^(\w+):\n", text[text.index("Open it with") :], flags=re.M)[1:]
    recipes = {name: re.sub("^  ", "", lines, flags=re.M).strip() for name, lines in zip(parts[::2], parts[1::2])}
    assert set(recipes) == {"DuckDB", "PyIceberg", "Spark"}
    rows = engines.PyIceberg(engines.Home(scratch / "printed", name="demo")).catalog.load_table("with_afterwrite.lineitem").scan().count()
    assert rows > 0
    return recipes, rows


def test_what_it_prints_opens_the_warehouse_in_duckdb(printed, tmp_path):
    import duckdb

    recipes, rows = printed
    con = duckdb.connect(config={"extension_directory": str(tmp_path)})
    # INSTALL takes what lies there; the files come with the packages of the tests
    [(version, platform)] = con.execute("SELECT library_version, platform FROM pragma_version(), pragma_platform()").fetchall()
    os.makedirs(tmp_path / version / platform)
    for name in ("avro", "iceberg"):
        [file] = glob.glob(f"{os.path.dirname(os.path.dirname(duckdb.__file__))}/duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        shutil.copy(file, tmp_path / version / platform)
    assert con.execute(recipes["DuckDB"]).fetchall() == [(rows,)]


def test_what_it_prints_opens_the_warehouse_in_pyiceberg(printed):
    recipes, rows = printed
    done = subprocess.run([sys.executable, "-c", recipes["PyIceberg"]], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{rows}\n"), done.stderr


def test_what_it_prints_opens_the_warehouse_in_spark(printed, tmp_path):
    recipes, rows = printed
    tools = pathlib.Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(["sh", "-c", recipes["Spark"]], capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout.split()) == (0, [str(rows)]), done.stderr[-4000:]

"""The demo's warehouse, read by the engines."""

import subprocess
import os
import json

import pytest

import engines

TABLES = ["orders", "lineitem"]


@pytest.fixture(scope="module")
def demo(scratch):
    folder = scratch / "demo"
    done = subprocess.run([os.environ["AFTERWRITE_BIN"], "demo", "--json", "--dir", str(folder)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return engines.Home(folder, name="demo"), json.loads(done.stdout)


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


@pytest.mark.parametrize("table", TABLES)
def test_every_compaction_left_the_rows_as_they_were(demo, readers, table):
    spark = readers["spark"]
    snapshots = spark.snapshots(f"with_afterwrite.{table}")
    replaces = [s for s in snapshots if s["operation"] == "replace"]
    first = snapshots[0]["snapshot_id"]
    assert replaces, "the demo compacted nothing"
    seen = sorted({first} | {s for replace in replaces for s in (replace["parent_id"], replace["snapshot_id"])})
    for name, reader in readers.items():
        sums = reader.sums(f"with_afterwrite.{table}", seen)
        changed = [r["snapshot_id"] for r in replaces if sums[r["parent_id"]] != sums[r["snapshot_id"]]]
        assert changed == [], f"{name} sees other rows after these compactions"
        assert all(sums[r["snapshot_id"]] != sums[first] for r in replaces), "the sums tell no rows apart"


@pytest.mark.parametrize("table", TABLES)
def test_the_demo_files_are_what_the_table_says(demo, readers, table):
    sides = {t["name"]: t for t in demo[1]["tables"]}[table]
    for side in ("with", "without"):
        files = readers["spark"].files(f"{side}_afterwrite.{table}")
        assert len(files) == sides[side]["files"]
        assert sum(f["file_size_in_bytes"] for f in files) == sides[side]["bytes"]

"""The demo's warehouse, read by the engines."""

import datetime as dt
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

import engines

TABLES = ["orders", "lineitem"]


def play(folder, *words):
    done = subprocess.run(demo_command(folder, *words), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def demo_command(folder, *words):
    return [os.environ["AFTERWRITE_BIN"], "demo", "--dir", str(folder), *words]


def wants_to_run(process):
    """Whether any of its threads runs, waits for a core, or for a disk."""
    states = []
    for thread in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        try:
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:  # it has just ended
            pass
    return not {"R", "D"}.isdisjoint(states)


def play_timed(folder, *words):
    """The demo's output; the seconds that it computed, that it wanted nothing of the machine, and that it took."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = last = time.monotonic()
        process, idle = subprocess.Popen(demo_command(folder, *words), stdout=out, stderr=err), 0.0
        while True:
            idles = not wants_to_run(process)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            now = time.monotonic()
            idle, last = idle + (now - last if idles else 0), now
            if pid:
                break
            assert now - began < 300, "the demo does not end"
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        assert process.returncode == 0, err.read()
        return out.read(), used.ru_utime + used.ru_stime, idle, last - began


@pytest.fixture(scope="module")
def demo(scratch):
    report, *times = play_timed(scratch / "demo", "--json")
    return engines.Home(scratch / "demo", name="demo"), json.loads(report), times


@pytest.fixture(scope="module")
def readers(demo, spark_jvm):
    home = demo[0]
    return {"spark": spark_jvm.open(home), "pyiceberg": engines.PyIceberg(home), "duckdb": engines.DuckDB(home)}


@pytest.mark.parametrize("table", TABLES)
def test_every_engine_reads_the_same_rows_with_and_without(demo, readers, table):
    sides = {t["name"]: t for t in demo[1]["tables"]}[table]
    digests = {(name, side): reader.fingerprint(f"{side}_afterwrite.{table}") for name, reader in readers.items() for side in ("with", "without")}
    assert len(set(digests.values())) == 1, digests
    count = next(iter(digests.values()))[0]
    assert (sides["with"]["rows"], sides["without"]["rows"]) == (count, count)
    assert sides["with"]["row_hash"] == sides["without"]["row_hash"]
    assert sides["with"]["files"] < sides["without"]["files"]


def test_it_takes_less_than_a_minute(demo):
    """On a machine of its own, and even as a debug build. Other tests have this machine too, so what it waited for them is left
    out: it takes no longer than what all its threads compute, one after the other, and the time in which none of them has
    anything to do."""
    computed, idle, wall = demo[2]
    print(f"the demo computed {computed:.1f} s, had nothing to do for {idle:.1f} s, and took {wall:.1f} s")
    assert min(computed + idle, wall) < 60


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
    spark_sees_no_change(readers, f"with_afterwrite.{table}", first, replaces)


def spark_sees_no_change(readers, table, first, replaces):
    """Of each compaction, the partitions in which any live file differs, since whole tables take Spark long: in all others every
    file, with the deletes that reach it, is the same before and after it."""
    spark = readers["spark"]
    live = live_files(readers["pyiceberg"], table, sorted({s for r in replaces for s in (r["parent_id"], r["snapshot_id"])}))
    start = {}
    for replace in replaces:
        before, after = replace["parent_id"], replace["snapshot_id"]
        differ = live[before] ^ live[after]
        assert differ, f"{after} replaced nothing"
        where = " OR ".join(sorted({in_month(partition) for *_, partition in differ}))
        if where not in start:
            start[where] = spark.sums(table, [first], where)[first]
        sums = spark.sums(table, [before, after], where)
        assert sums[before] == sums[after], f"Spark sees other rows after {after} where {where}"
        assert sums[after] != start[where], "the sums tell no rows apart"


def live_files(pyiceberg, table, snapshots):
    """At each snapshot, every live data and delete file with all that says to which rows it stands, its partition last."""
    loaded, of_manifest, found = pyiceberg.catalog.load_table(table), {}, {}
    for snapshot in snapshots:
        entries = []
        for manifest in loaded.snapshot_by_id(snapshot).manifests(loaded.io):
            if manifest.manifest_path not in of_manifest:
                live = manifest.fetch_manifest_entry(loaded.io, discard_deleted=True)
                of_manifest[manifest.manifest_path] = [described(entry, manifest.partition_spec_id, loaded.specs()) for entry in live]
            entries += of_manifest[manifest.manifest_path]
        found[snapshot] = set(entries)
        assert len(found[snapshot]) == len(entries), f"a file is listed twice at {snapshot}"
    return found


def described(entry, spec_id, specs):
    file, fields = entry.data_file, specs[spec_id].fields
    partition = tuple((field.name, file.partition[at]) for at, field in enumerate(fields))
    sizes = (file.record_count, file.file_size_in_bytes)
    return (entry.sequence_number, entry.file_sequence_number, file.content, file.file_path, spec_id, *sizes, partition)


def in_month(partition):
    if not partition:
        return "true"
    [(field, month)] = partition
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

"""Random files of pyarrow, parquet-java and parquet-rs, compacted: every reader sees the same list of rows, in order.

Each case follows from its number alone. More cases: AFTERWRITE_FUZZ_CASES=500; other ones: AFTERWRITE_FUZZ_SEED=1000.
"""

import collections
import os
import pathlib
import random
import uuid

import duckdb
import pyarrow as pa
import pytest

import batches
import files
import fuzz
import java

FIRST = int(os.environ.get("AFTERWRITE_FUZZ_SEED", "0"))
CASES = int(os.environ.get("AFTERWRITE_FUZZ_CASES", "24"))
WRITERS = ["pyarrow", "parquet-java", "parquet-rs"]
seen = collections.Counter()


@pytest.fixture(scope="module")
def parquet_java(scratch):
    child = java.Child(["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{java.CACHE}/classes/parquet:{java.spark_jars()}", "afterwrite.interop.RandomFiles"], scratch / "random-files.log")
    yield child
    child.stop()


@pytest.fixture(scope="module")
def parquet_rs(scratch):
    child = java.Child([pathlib.Path(os.environ["AFTERWRITE_BIN"]).with_name("afterwrite-files")], scratch / "files.log")
    yield child
    child.stop()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
def test_random_files_keep_their_rows_in_order(lab, parquet_java, parquet_rs, seed):
    rng = random.Random(seed)
    name = f"fuzz_{seed}"
    table = create(lab, rng, name)
    deletes = seed % 3 == 0
    told, inputs, paths = write(lab, rng, table, name, {"parquet-java": parquet_java, "parquet-rs": parquet_rs}, seed, plain=deletes)
    print(f"seed {seed}: {table.schema()}", *told, sep="\n")
    if deletes:
        delete(lab, name)
    cut = bool(lab.spark.files(f"db.{name}", "delete_files"))
    expected = {file: numbered(inputs[file], cut) for file in inputs}
    results = lab.afterwrite.compact(f"db.{name}")
    print(results)
    assert [r["files_out"] for r in results] == [1], results
    [output] = [f["file_path"] for f in lab.pyiceberg.catalog.load_table(f"db.{name}").inspect.data_files().to_pylist()]
    path = output.removeprefix("file://")
    assert files.lost(paths, [path]) == {}, results
    rows = in_order(expected, files.read(path)["rid"].to_pylist())
    same("pyarrow", rows, files.read(path))
    for columns, read in duck(path, rows[0].column_names):
        same("DuckDB", [part.select(columns) for part in rows], read)
    for way, columns, read in batches.ways(lab, f"db.{name}", path):
        same(way, [part.select(columns) for part in rows], read)
        seen[way, results[0]["path"], "cut" if cut else "whole"] += 1
    seen.update((one.split(" ")[0], results[0]["path"]) for one in told)


def test_most_of_the_cases_were_repacked_whoever_wrote_them_and_read_in_batches():
    print(seen)
    if CASES < 24:
        return
    for writer in WRITERS:
        assert seen[writer, "re-pack"] >= CASES / 4, seen
    for way in batches.UNKNOWN:
        assert sum(seen[way, "re-pack", rows] for rows in ("cut", "whole")) >= CASES / 3, seen
        assert seen[way, "re-pack", "cut"] >= CASES / 12, seen


def create(lab, rng, name):
    properties = {"write.parquet.compression-codec": rng.choice(["zstd", "snappy", "gzip"]), "write.delete.mode": "merge-on-read"}
    schema = fuzz.random_schema(rng)
    if rng.random() < 0.08:
        properties["write.parquet.bloom-filter-enabled.column.rid"] = "true"
    return lab.pyiceberg.catalog.create_table(f"db.{name}", schema, properties=properties)


def write(lab, rng, table, name, children, seed, plain):
    """Some files by one writer or by all, in one append: how they are laid out, what they hold by the number of the file, and where they are.

    `plain`: encoded so that rows can be cut from pages without encoding the column anew, as parquet-java seldom does.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema = schema_to_pyarrow(table.schema())
    iceberg, target = files.java_table(lab, name)
    spelled = " ".join(iceberg.parquet.ParquetSchemaUtil.convert(target.schema(), "table").toString().split())
    writers = rng.choice([["pyarrow"], ["parquet-rs"], ["pyarrow", "parquet-rs"]] if plain else [*([writer] for writer in WRITERS), WRITERS])
    told, inputs, paths = [], {}, []
    for file in range(2 + rng.randrange(4)):
        path = f"{lab.home.warehouse}/db/{name}/data/{file}-{uuid.uuid4()}.parquet"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        rows = rng.choice([1, 700, 2500, 4000, 6000])
        writer = rng.choice(writers)
        if writer == "pyarrow":
            told.append(fuzz.write(path, schema, seed, file, rows, plain))
        elif writer == "parquet-rs":
            told.append(fuzz.write_rust(children[writer], path, schema, seed, file, rows, plain))
        else:
            told.append(children[writer].tell(f"{path}\t{seed}\t{file}\t{rows}\t{spelled}")["options"])
        inputs[file] = files.read(path)
        paths.append(path)
    files.append(lab, name, paths)
    return told, inputs, paths


DELETED = 7


def delete(lab, name):
    """Position deletes, where Spark reads the table."""
    for batched in ("true", "false"):
        lab.spark.session.conf.set("spark.sql.iceberg.vectorization.enabled", batched)
        try:
            lab.spark.sql(f"DELETE FROM lake.db.{name} WHERE rid % {DELETED} = 3")
            return
        except Exception as e:
            print(f"Spark deletes nothing (in batches: {batched}): {str(e)[:200]}")


def duck(path, columns):
    """What DuckDB reads: it splits the bytes of floats only."""
    split = batches.having(path, lambda chunk: "BYTE_STREAM_SPLIT" in chunk.encodings and chunk.physical_type not in ("FLOAT", "DOUBLE"))
    if left := [name for name in columns if name not in split]:
        yield left, duckdb.sql(f"SET TimeZone = 'UTC'; SELECT {', '.join(left)} FROM read_parquet('{path}')").to_arrow_table()


def numbered(table, deleted):
    if not deleted:
        return table
    return table.filter(pa.array([n % DELETED != 3 for n in table["rid"].to_pylist()]))


def in_order(expected, seen):
    """The files one after another, in the order in which the output has them."""
    order = list(dict.fromkeys(n // 1_000_000 for n in seen))
    assert sorted(order) == sorted(file for file, rows in expected.items() if rows.num_rows)
    return [expected[file] for file in order]


def same(reader, expected, read):
    """Equal columns in equal order; as text, where NaN equals itself and the zeros differ."""
    assert read.num_rows == sum(t.num_rows for t in expected), reader
    for name in expected[0].column_names:
        wanted = [v for t in expected for v in t[name].to_pylist()]
        found = read[name].to_pylist()
        if repr(wanted) != repr(found):
            place = next(i for i, (w, f) in enumerate(zip(wanted, found)) if repr(w) != repr(f))
            raise AssertionError(f"{reader}: row {place} of {name} is {found[place]!r}, was {wanted[place]!r}")

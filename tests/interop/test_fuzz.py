"""Random files of pyarrow and parquet-java, compacted: every reader sees the same list of rows, in order.

Each case follows from its number alone. More cases: AFTERWRITE_FUZZ_CASES=500; other ones: AFTERWRITE_FUZZ_SEED=1000.
"""

import os
import random
import uuid

import duckdb
import pyarrow as pa
import pytest

import files
import fuzz
import java

FIRST = int(os.environ.get("AFTERWRITE_FUZZ_SEED", "0"))
CASES = int(os.environ.get("AFTERWRITE_FUZZ_CASES", "24"))
paths_taken = {}


@pytest.fixture(scope="module")
def parquet_java(scratch):
    child = java.Child(["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{java.CACHE}/classes/parquet:{java.spark_jars()}", "afterwrite.interop.RandomFiles"], scratch / "random-files.log")
    yield child
    child.stop()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
def test_random_files_keep_their_rows_in_order(lab, parquet_java, tmp_path, seed):
    rng = random.Random(seed)
    name = f"fuzz_{seed}"
    table = create(lab, rng, name)
    told, inputs = write(lab, rng, table, name, parquet_java, seed)
    print(f"seed {seed}: {table.schema()}", *told, sep="\n")
    if rng.random() < 0.3:
        delete(lab, name)
    expected = {file: numbered(inputs[file], deleted=bool(lab.spark.files(f"db.{name}", "delete_files"))) for file in inputs}
    before, base = lab.spark.files(f"db.{name}"), lab.spark.snapshots(f"db.{name}")[-1]["snapshot_id"]
    results = lab.afterwrite.compact(f"db.{name}")
    print(results)
    assert [r["files_out"] for r in results] == [1], results
    paths_taken[seed] = results[0]["path"]
    [output] = [f["file_path"] for f in lab.pyiceberg.catalog.load_table(f"db.{name}").inspect.data_files().to_pylist()]
    path = output.removeprefix("file://")
    seen = files.read(path)
    rows = in_order(expected, seen["rid"].to_pylist())
    same("pyarrow", rows, seen)
    same("DuckDB", rows, read_if_inputs_can(duck, [path], [f["file_path"].removeprefix("file://") for f in before]))
    if not same("Spark", rows, read_if_inputs_can(spark_reads(lab, name), "", f" VERSION AS OF {base}")):
        set_vectorized(lab, name, "false")
        same("Spark", rows, read_if_inputs_can(spark_reads(lab, name), "", f" VERSION AS OF {base}"))


def test_most_of_the_cases_were_repacked():
    if CASES >= 24:
        assert list(paths_taken.values()).count("re-pack") >= len(paths_taken) / 3, paths_taken


def create(lab, rng, name):
    properties = {"write.parquet.compression-codec": rng.choice(["zstd", "snappy", "gzip"]), "write.delete.mode": "merge-on-read"}
    schema = fuzz.random_schema(rng)
    if rng.random() < 0.15:
        properties["write.parquet.bloom-filter-enabled.column.rid"] = "true"
    return lab.pyiceberg.catalog.create_table(f"db.{name}", schema, properties=properties)


def write(lab, rng, table, name, parquet_java, seed):
    """Some files by one writer or by both, in one append; what they hold, by the number of the file."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema = schema_to_pyarrow(table.schema())
    iceberg, target = java_table(lab, name)
    spelled = " ".join(iceberg.parquet.ParquetSchemaUtil.convert(target.schema(), "table").toString().split())
    writers = rng.choice([["pyarrow"], ["parquet-java"], ["pyarrow", "parquet-java"]])
    append, told, inputs = target.newFastAppend(), [], {}
    for file in range(2 + rng.randrange(4)):
        path = f"{lab.home.warehouse}/db/{name}/data/{file}-{uuid.uuid4()}.parquet"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        rows = rng.choice([1, 700, 2500, 4000, 6000])
        if rng.choice(writers) == "pyarrow":
            told.append(fuzz.write(path, schema, seed, file, rows))
        else:
            told.append(parquet_java.tell(f"{path}\t{seed}\t{file}\t{rows}\t{spelled}")["options"])
        inputs[file] = files.read(path)
        append.appendFile(data_file(iceberg, target, path))
    append.commit()
    return told, inputs


def java_table(lab, name):
    jvm = lab.spark.session._jvm
    return jvm.org.apache.iceberg, jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lab.spark.session._jsparkSession, f"lake.db.{name}")


def data_file(iceberg, table, path):
    source = table.io().newInputFile(f"file://{path}")
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(source, iceberg.MetricsConfig.forTable(table))
    builder = iceberg.DataFiles.builder(table.spec()).withPath(f"file://{path}").withFormat("parquet")
    return builder.withFileSizeInBytes(os.path.getsize(path)).withMetrics(metrics).build()


DELETED = 7


def delete(lab, name):
    """Position deletes, where Spark reads the table."""
    for vectorized in ("true", "false"):
        set_vectorized(lab, name, vectorized)
        try:
            lab.spark.sql(f"DELETE FROM lake.db.{name} WHERE rid % {DELETED} = 3")
            return
        except Exception as e:
            print(f"Spark deletes nothing (vectorized: {vectorized}): {str(e)[:200]}")


def set_vectorized(lab, name, vectorized):
    lab.spark.sql(f"ALTER TABLE lake.db.{name} SET TBLPROPERTIES ('read.parquet.vectorization.enabled'='{vectorized}')")


def read_if_inputs_can(read, outputs, inputs):
    """What a reader sees; `None` where it refused the inputs already: brotli, and some encodings."""
    try:
        return read(outputs)
    except Exception as refused:
        with pytest.raises(Exception):
            read(inputs)
        print(f"refused before and after: {str(refused)[:200]}")
        return None


def duck(paths):
    return duckdb.sql(f"SET TimeZone = 'UTC'; SELECT * FROM read_parquet({paths})").to_arrow_table()


def spark_reads(lab, name):
    return lambda at: lab.spark.sql(f"SELECT * FROM lake.db.{name}{at}").toArrow()


def numbered(table, deleted):
    if not deleted:
        return table
    return table.filter(pa.array([n % DELETED != 3 for n in table["rid"].to_pylist()]))


def in_order(expected, seen):
    """The files one after another, in the order in which the output has them."""
    order = list(dict.fromkeys(n // 1_000_000 for n in seen))
    assert sorted(order) == sorted(file for file, rows in expected.items() if rows.num_rows)
    return [expected[file] for file in order]


def same(reader, expected, seen):
    """Equal columns in equal order; as text, where NaN equals itself and the zeros differ. False when there is nothing to compare."""
    if seen is None:
        return False
    assert seen.num_rows == sum(t.num_rows for t in expected), reader
    for name in expected[0].column_names:
        wanted = [v for t in expected for v in t[name].to_pylist()]
        found = seen[name].to_pylist()
        if repr(wanted) != repr(found):
            place = next(i for i, (w, f) in enumerate(zip(wanted, found)) if repr(w) != repr(f))
            raise AssertionError(f"{reader}: row {place} of {name} is {found[place]!r}, was {wanted[place]!r}")
    return True

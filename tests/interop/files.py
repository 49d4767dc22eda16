"""Parquet files as parquet-java and pyarrow see them, value by value against what the files say of their values."""

import os
import subprocess

import pyarrow.parquet as pq

import java


def parquet_java(*words, stdin=""):
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{java.CACHE}/classes/parquet:{java.spark_jars()}", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def faults(paths):
    """What parquet-java finds wrong with the files: pages, checksums, statistics, page index, histograms, bloom filters."""
    return checked(paths)[0]


def checked(paths):
    """The same, and how many bloom filters were among what was checked."""
    *found, last = parquet_java("afterwrite.interop.CheckFiles", stdin="\n".join(map(str, paths)))
    looked_at, chunks, blooms = map(int, last.split("\t"))
    assert looked_at == len(paths), last
    return found, blooms


def told(paths, tells):
    """What every row group of all files tells of each column, apart from the values: only what all of them tell counts."""
    every = {}
    for footer in map(pq.read_metadata, paths):
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                every.setdefault(chunk.path_in_schema, []).append(tells(chunk))
    return {path: set.intersection(*each) for path, each in every.items()}


def is_null(chunk):
    return chunk.statistics is not None and chunk.statistics.null_count == chunk.num_values


def tells(chunk):
    """Nulls alone have no bounds."""
    statistics = chunk.statistics
    found = {
        "column index": chunk.has_column_index, "offset index": chunk.has_offset_index, "statistics": statistics is not None,
        "null count": statistics is not None and statistics.has_null_count, "bounds": is_null(chunk) or statistics is not None and is_bounded(chunk),
    }
    return {name for name, there in found.items() if there}


def need_tell(chunk):
    """Below a list or map parquet-rs makes no index of nulls alone."""
    return tells(chunk) | ({"column index"} if is_null(chunk) and "." in chunk.path_in_schema else set())


def is_bounded(chunk):
    """parquet-java writes NaN for a bound, which bounds nothing."""
    bounds = chunk.statistics
    floats = chunk.physical_type in ("FLOAT", "DOUBLE")
    return bounds.has_min_max and not (floats and (bounds.min != bounds.min or bounds.max != bounds.max))


def lost(inputs, outputs):
    """What all inputs tell of a column and not all outputs: by the column."""
    after = told(outputs, need_tell)
    losses = {path: before - after[path] for path, before in told(inputs, tells).items() if path in after}
    return {path: loss for path, loss in losses.items() if loss}


def ours(folder):
    """Every data file under the folder that afterwrite wrote."""
    return [path for path in sorted(folder.rglob("*.parquet")) if (pq.read_metadata(path).created_by or "").startswith("afterwrite ")]


def read(path):
    return pq.ParquetFile(path, page_checksum_verification=True).read()


def java_table(lab, name):
    """Iceberg's Java packages, and the table as they load it."""
    jvm = lab.spark.session._jvm
    return jvm.org.apache.iceberg, jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lab.spark.session._jsparkSession, f"lake.db.{name}")


def append(lab, name, paths):
    """One commit that adds files which carry field ids, with the metrics that Java takes from their footers."""
    iceberg, table = java_table(lab, name)
    commit = table.newFastAppend()
    for path in paths:
        source = table.io().newInputFile(f"file://{path}")
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(source, iceberg.MetricsConfig.forTable(table))
        builder = iceberg.DataFiles.builder(table.spec()).withPath(f"file://{path}").withFormat("parquet")
        commit.appendFile(builder.withFileSizeInBytes(os.path.getsize(path)).withMetrics(metrics).build())
    commit.commit()

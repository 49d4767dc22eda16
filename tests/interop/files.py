"""Parquet files as parquet-java and pyarrow see them, value by value against what the files say of their values."""

import subprocess

import pyarrow.parquet as pq

import java


def parquet_java(*words, stdin=""):
    command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{java.CACHE}/classes/parquet:{java.spark_jars()}", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def faults(paths):
    """What parquet-java finds wrong with the files: pages, checksums, statistics, page index, histograms, bloom filters."""
    *found, last = parquet_java("afterwrite.interop.CheckFiles", stdin="\n".join(map(str, paths)))
    assert last == f"checked {len(paths)}", last
    return found


def ours(folder):
    """Every data file under the folder that afterwrite wrote."""
    return [path for path in sorted(folder.rglob("*.parquet")) if (pq.ParquetFile(path).metadata.created_by or "").startswith("afterwrite ")]


def read(path):
    return pq.ParquetFile(path, page_checksum_verification=True).read()

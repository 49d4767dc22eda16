"""A small writer as a streaming job is one: PyIceberg commits of given sizes, watched from the catalog's own row."""

import contextlib
import random
import sqlite3
import time

import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from .lake import CATALOG

# what a row of random numbers and short text takes in a file, about
ROW_BYTES = 12
ACT = """
[poll]
min = "300s"
max = "300s"

[[table]]
match = "lake.trial.*"
act = true
cooldown = "0s"
"""


class Stream:
    """A table of its own, partitioned by `run`."""

    def __init__(self, lake, name, **properties):
        self.lake, self.table = lake, f"trial.{name}"
        schema = Schema(
            NestedField(1, "run", LongType(), required=False),
            NestedField(2, "id", LongType(), required=False),
            NestedField(3, "v", StringType(), required=False),
        )
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "run"))
        said = {"format-version": "2", "write.parquet.compression-codec": "zstd", **properties}
        self.loaded = lake.catalog.create_table(self.table, schema, partition_spec=spec, properties=said)
        self.chance = random.Random(7)

    def rows(self, run, count):
        ids, words = [self.chance.getrandbits(62) for _ in range(count)], [f"event {self.chance.randrange(2000)}" for _ in range(count)]
        columns = [pa.array([run] * count, pa.int64()), pa.array(ids, pa.int64()), pa.array(words)]
        return pa.table(columns, names=["run", "id", "v"])

    def commit(self, run, files, size):
        """One commit of that many files of about that size each."""
        self.loaded = self.lake.catalog.load_table(self.table)
        made = [
            file
            for _ in range(files)
            for file in _dataframe_to_data_files(self.loaded.metadata, self.rows(run, max(size // ROW_BYTES, 1)), self.loaded.io)
        ]
        with self.loaded.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in made:
                append.append_data_file(file)
        return sum(file.file_size_in_bytes for file in made)

    def pointer(self):
        """The table's metadata location as the catalog has it now."""
        name = self.table.split(".")
        with contextlib.closing(sqlite3.connect(f"file:{self.lake.database}?mode=ro", uri=True, timeout=30)) as connection:
            return connection.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?", (CATALOG, *name)
            ).fetchone()[0]

    def moved(self, since, seconds):
        """Seconds until the pointer is another; `None` when it stays."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self.pointer() != since:
                return time.monotonic() - began
            time.sleep(0.001)
        return None

    def drop(self):
        import shutil

        from .lake import plain

        self.lake.catalog.drop_table(self.table)
        shutil.rmtree(plain(self.loaded.location()), ignore_errors=True)

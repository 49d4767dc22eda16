"""Equality deletes, as a streaming writer leaves them: Spark and PyIceberg write none."""

import collections
import os
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent

from .adding import add_equality_deletes, described
from .lake import plain


def by_equality(lake, table, column, every):
    """Deletes one key in `every`, with one delete file for each partition."""
    loaded = lake.catalog.load_table(table)
    field = loaded.schema().find_field(column)
    keys, partitions = collections.defaultdict(list), {}
    for task in loaded.scan().plan_files():
        at = tuple(task.file.partition[i] for i in range(len(task.file.partition)))
        partitions[at] = task.file.partition
        found = pc.unique(pq.read_table(plain(task.file.file_path), columns=[column])[column])
        # order keys come in runs of 8 of 32: their quotient spreads the deleted ones over all
        keys[at].append(found.filter(pc.equal(_modulo(pc.divide(found, 4), every), 0)))
    schema = pa.schema([pa.field(column, pa.int64(), metadata={"PARQUET:field_id": str(field.field_id)})])
    made = []
    for at, found in keys.items():
        path = f"{plain(loaded.location())}/data/deletes-{uuid.uuid4()}.parquet"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pq.write_table(pa.table([pa.concat_arrays(found)], schema=schema), path, compression="zstd")
        made.append(described(loaded, path, partitions[at], DataFileContent.EQUALITY_DELETES, [field.field_id]))
    add_equality_deletes(loaded, made)


def _modulo(values, by):
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))

"""Memory that one row group takes which is larger than the limit."""

import os

import pyarrow as pa
import pyarrow.parquet as pq

from . import adding, copies, inputs, ours
from .lake import CATALOG, plain

MIB = 1 << 20
COLUMNS, BATCH = 16, 1 << 16


def measure(world, figures):
    """A file of one row group of a gigabyte, and a few of a few rows, at half of that limit: peak of the process over the limit."""
    size, limit = (64 * MIB, 96 * MIB) if world.quick else (1024 * MIB, 512 * MIB)
    seed = world.lake.seed(f"row_group_{size // MIB}", lambda table: _make(world, table, size))
    extra = f'[defaults]\nmemory_limit = "{limit // MIB}MiB"\n[budget]\nconcurrent_jobs = 1\n'
    took, rows = copies.compacted(world, seed, extra)
    said = {"row_group": size, "tier": ours.tier(rows), "wall_s": took.wall_s, "quick": world.quick}
    figures.figure("row_group_memory_ratio", took.peak_bytes / limit, "x", ours=took.peak_bytes, limit=limit, **said)


def _make(world, table, size):
    kinds = ", ".join(f"c{n} BIGINT" for n in range(COLUMNS))
    world.spark.sql(f"CREATE TABLE {CATALOG}.{table} ({kinds}) USING iceberg TBLPROPERTIES ({inputs.properties()})")
    loaded = world.lake.catalog.load_table(table)
    fields = [pa.field(field.name, pa.int64(), metadata={"PARQUET:field_id": str(field.field_id)}) for field in loaded.schema().fields]
    folder = f"{plain(loaded.location())}/data"
    os.makedirs(folder, exist_ok=True)
    paths = [f"{folder}/{name}.parquet" for name in ("a-small", "b-large", "c-small")]
    for path, batches in zip(paths, (1, max(size // (COLUMNS * 8 * BATCH), 1), 1)):
        rows = BATCH if batches > 1 else 1000
        with pq.ParquetWriter(path, pa.schema(fields), compression="zstd", use_dictionary=False) as writer:
            for _ in range(batches):
                # as good as random: it does not compress
                columns = [pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(os.urandom(8 * rows))]) for _ in fields]
                writer.write_batch(pa.record_batch(columns, schema=pa.schema(fields)), row_group_size=batches * BATCH)
    adding.add_files(loaded, paths)
    return {"scale": f"{size // MIB} MiB"}

"""How often a streaming job's table is rewritten: Flink upserts, whose every checkpoint deletes by key."""

import os
import time

from . import ours, writers
from .lake import CATALOG, plain, remove, listing
from .stream import ACT

CHECKPOINTS, KEYS = 10, 60


def measure(world, figures):
    """Ten checkpoints, each reported, into a table without partitions; rewrites until nothing has come for a while."""
    table = f"trial.upserts_{os.getpid()}"
    said = "'format-version'='2', 'write.upsert.enabled'='true'"
    world.spark.sql(f"CREATE TABLE {CATALOG}.{table} (id BIGINT NOT NULL, v STRING) USING iceberg TBLPROPERTIES ({said})")
    serving = ours.Serving(world.lake, world.folder("serve"), ACT)
    expected = {}
    try:
        with writers.engine(world, "flink", "Flink") as (child, home):
            job = child.open(home, table, keys=("id",))
            for step in range(CHECKPOINTS):
                rows = [(id, f"checkpoint {step}") for id in range(KEYS) if id % 2 == step % 2 or id % 5 == 0]
                expected |= dict(rows)
                job.upsert(rows)
                serving.ask("report", f"{CATALOG}.{table}")
                time.sleep(0.5)
            job.close()
        rewrites = _settled(world, table)
    finally:
        serving.stop()
    found = dict(map(tuple, world.spark.sql(f"SELECT id, v FROM {CATALOG}.{table}").collect()))
    if found != expected:
        raise RuntimeError(f"{len(found)} rows are there, not the {len(expected)} that were written last")
    location = plain(world.lake.catalog.load_table(table).location())
    world.lake.catalog.drop_table(table)
    remove(location, listing(location))
    if not rewrites:
        raise RuntimeError("nothing was rewritten")
    figures.figure("flink_rewrites", rewrites, "rewrites", checkpoints=CHECKPOINTS, quick=world.quick)


def _settled(world, table, seconds=4):
    """Rewrites, once there was no new one for a while."""
    seen, since = 0, time.monotonic()
    while time.monotonic() - since < seconds or (not seen and time.monotonic() - since < 30):
        time.sleep(0.3)
        snapshots = world.lake.catalog.load_table(table).snapshots()
        found = sum(snapshot.summary.operation.value == "replace" for snapshot in snapshots)
        if found != seen:
            seen, since = found, time.monotonic()
    return seen

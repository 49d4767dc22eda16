"""The two simplest tiers against the tools that do just that: `cp`, and DataFusion."""

import dataclasses
import os

from . import duck, fusion, inputs, measure, ours
from .inputs import SF1, SF10, Size
from .lake import CATALOG
from .measure import median


# figures beside the one that a benchmark is called by
FIGURES = {"splice_vs_copy": ["splice_vs_synced_copy"], "reencode_vs_datafusion": ["reencode_alone_ratio", "reencode_cpu_ratio"]}


def splice(world, figures):
    """Healthy row groups are copied whole, proven and committed; `cp` only copies the same files."""
    size = Size(0.1, 4, buckets=0) if world.quick else dataclasses.replace(SF10, buckets=0)
    seed = inputs.lineitem(world, size, name="healthy")
    files, mine, theirs, synced = seed.data_files(), [], [], []
    for _ in range(world.repeat):
        took, rows = compacted(world, seed)
        mine.append(took)
        out = world.folder("cp")
        measure.warm(files)
        theirs.append(measure.run(["cp", "--", *files, str(out)]))
        after = measure.run(["sync", "--", *(str(file) for file in out.iterdir())])
        synced.append(dataclasses.replace(after, wall_s=after.wall_s + theirs[-1].wall_s))
        for file in os.listdir(out):
            os.unlink(out / file)
    _say(figures, "splice_vs_copy", "cp", mine, theirs, world, seed, rows)
    # what we write is on the disk before the commit says so
    _say(figures, "splice_vs_synced_copy", "cp and sync", mine, synced, world, seed, rows)


def reencode(world, figures):
    """Files of before a promotion allow no shortcut: values are decoded and encoded anew, as DataFusion's COPY does it."""
    size = inputs.QUICK if world.quick else SF1

    def then(table):
        world.spark.sql(f"ALTER TABLE {CATALOG}.{table} ALTER COLUMN l_linenumber TYPE BIGINT")

    columns = inputs.LINEITEM.replace("l_linenumber BIGINT", "l_linenumber INT")
    seed = inputs.lineitem(world, dataclasses.replace(size, buckets=0), name="promoted", then=then, columns=columns)
    files, mine, alone, theirs = seed.data_files(), [], [], []
    for _ in range(world.repeat):
        took, rows = compacted(world, seed)
        mine.append(took)
        alone.append(sum(row.get("rewrite_s") or 0.0 for row in rows))
        out = world.folder("fusion") / "out.parquet"
        measure.warm(files)
        theirs.append(fusion.copy(files, out))
        written = os.path.getsize(out)
        os.unlink(out)
    bytes_out = sum(row["bytes_out"] for row in rows)
    _say(figures, "reencode_vs_datafusion", "datafusion", mine, theirs, world, seed, rows, bytes_ratio=bytes_out / written)
    # what their statement does: no start, proof or commit of ours
    spent = {"ours": median(alone), "theirs": median(t.wall_s for t in theirs), "of": "s"}
    figures.figure("reencode_alone_ratio", spent["theirs"] / max(spent["ours"], 1e-3), "x", "datafusion", **spent, quick=world.quick)
    cpu = median(t.cpu_s for t in theirs) / median(t.cpu_s for t in mine)
    figures.figure("reencode_cpu_ratio", cpu, "x", "datafusion", quick=world.quick)


def compacted(world, seed, extra=""):
    """A compaction that left the rows as they were; `extra` settings."""
    measure.warm(seed.files())
    trial = seed.trial("afterwrite")
    took, rows = ours.compact(world.lake, world.folder("ours"), trial.table, extra)
    trial.ended()
    if len(set(duck.digests([trial.data_files(), seed.data_files()]))) != 1:
        raise RuntimeError("the rows differ")
    trial.close()
    return took, rows


def _say(figures, name, peer, mine, theirs, world, seed, rows, **more):
    spent = {"ours": median(t.wall_s for t in mine), "theirs": median(t.wall_s for t in theirs), "of": "s"}
    ratio = spent["theirs"] / spent["ours"]
    parts = {part: sum(row.get(part) or 0.0 for row in rows) for part in ("rewrite_s", "proof_s", "commit_s")}
    figures.figure(name, ratio, "x", peer, **spent, tier=ours.tier(rows), scale=seed.facts["scale"], **parts, **more, quick=world.quick)

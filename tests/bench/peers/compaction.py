"""L1 and its variants: afterwrite, Spark and DuckDB compact the same files."""

import os

from . import duck, measure, ours, spark
from .measure import median

FIGURES = (
    "spark_wall_ratio",
    "spark_cold_wall_ratio",
    "spark_cpu_ratio",
    "spark_memory_ratio",
    "output_bytes_ratio",
    "output_files_ratio",
    "scan_ratio",
    "duckdb_wall_ratio",
    "proof_share",
)

SCANS = {
    "full": "SELECT count(*), sum(l_orderkey + l_partkey + l_suppkey + l_linenumber), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), sum(l_quantity), "
    "max(l_returnflag), max(l_linestatus), max(l_shipdate), max(l_commitdate), max(l_receiptdate), max(l_shipinstruct), max(l_shipmode), max(l_comment) FROM {}",
    "selective": "SELECT count(*), sum(l_extendedprice) FROM {} WHERE l_shipdate BETWEEN DATE '1995-03-01' AND DATE '1995-03-07'",
}


def benchmark(case):
    return lambda world, figures: _measure(case, world, figures)


def _measure(case, world, figures):
    seed = case.make(world)
    world.fresh_spark()
    files = seed.files()
    taken = {"afterwrite": [], "spark": []}
    rows, kept = [], {}
    _warm_up(world)
    for turn in range(world.repeat):
        # by turns, so that what disturbs the machine disturbs both
        for peer in ("spark", "afterwrite"):
            measure.warm(files)
            trial = seed.trial(peer)
            if peer == "spark":
                took = world.spark.rewrite(trial)
            else:
                took, rows = ours.compact(world.lake, world.folder("ours"), trial.table)
            taken[peer].append(took)
            trial.ended()
            if turn + 1 < world.repeat:
                trial.close()
            else:
                kept[peer] = trial
    _same_rows(kept)
    said = {"scale": seed.facts.get("scale"), "tier": ours.tier(rows), "quick": world.quick}
    _against_spark(figures, taken, kept, said)
    _against_duckdb(world, figures, seed, taken["afterwrite"], said)
    _own(figures, rows, said)
    if case.scans:
        if not world.quick:
            _cold(world, figures, seed, taken["afterwrite"], said)
        _scan(world, figures, kept, said)
    for trial in kept.values():
        trial.close()


def _warm_up(world):
    """The session has rewritten a table like this one before it is measured; with several turns the median is of a warm one anyway."""
    if world.spark.is_warm or world.quick:
        return
    from . import inputs

    trial = inputs.lineitem(world, inputs.QUICK).trial("warm")
    world.spark.rewrite(trial)
    trial.ended().close()
    world.spark.is_warm = True


def _same_rows(kept):
    """A figure for a wrong result is worth nothing. Deletes that one peer left to apply would show as rows too many."""
    digests = dict(zip(kept, duck.digests([trial.data_files() for trial in kept.values()])))
    if len(set(digests.values())) != 1:
        raise RuntimeError(f"the results differ: {digests}")


def _against_spark(figures, taken, kept, said):
    walls = {peer: median(t.wall_s for t in runs) for peer, runs in taken.items()}
    # the lowest: a session's heap only grows, and the later turns find it grown
    peaks = {peer: min(t.peak_bytes for t in runs) for peer, runs in taken.items()}
    cpus = {peer: median(t.cpu_s for t in runs) for peer, runs in taken.items()}
    sizes = {peer: trial.data_bytes() for peer, trial in kept.items()}
    counts = {peer: len(trial.data_files()) for peer, trial in kept.items()}
    for name, found, unit, upside in (
        ("spark_wall_ratio", walls, "s", True),
        ("spark_cpu_ratio", cpus, "s", True),
        ("spark_memory_ratio", peaks, "bytes", False),
        ("output_bytes_ratio", sizes, "bytes", False),
        ("output_files_ratio", counts, "files", False),
    ):
        mine, theirs = found["afterwrite"], found["spark"]
        ratio = theirs / mine if upside else mine / theirs
        figures.figure(name, ratio, "x", "spark", ours=mine, theirs=theirs, of=unit, **said)


def _against_duckdb(world, figures, seed, runs, said):
    """A plain COPY of the same data files into one; it applies no deletes and commits nothing."""
    files, taken = seed.data_files(), []
    for _ in range(world.repeat):
        measure.warm(files)
        out = world.folder("duck") / "out.parquet"
        taken.append(duck.copy(files, out))
        os.unlink(out)
    mine, theirs = median(t.wall_s for t in runs), median(t.wall_s for t in taken)
    figures.figure("duckdb_wall_ratio", theirs / mine, "x", "duckdb", ours=mine, theirs=theirs, of="s", **said)


def _cold(world, figures, seed, runs, said):
    """With the start of Spark's session, as a scheduled job pays it; ours starts anew each time anyway."""
    trial = seed.trial("cold")
    took = spark.cold(world.lake, world.scratch, trial.table)
    trial.ended().close()
    mine = median(t.wall_s for t in runs)
    figures.figure("spark_cold_wall_ratio", took.wall_s / mine, "x", "spark", ours=mine, theirs=took.wall_s, of="s", **said)


def _own(figures, rows, said):
    """The parts of the last run, summed over partitions."""
    parts = {part: sum(row.get(part) or 0.0 for row in rows) for part in ("rewrite_s", "proof_s", "commit_s", "seconds")}
    figures.figure("proof_share", parts["proof_s"] / max(parts["seconds"], 1e-9), "share", **{k: v for k, v in parts.items()}, **said)


def _scan(world, figures, kept, said):
    """CPU seconds of scans of our result against scans of Spark's, by turns."""
    times = 1 if world.quick else 5
    for name, query in SCANS.items():
        found = {peer: median(cpu for cpu, _ in duck.scan(trial.data_files(), query, times)) for peer, trial in kept.items()}
        _scanned(figures, name, "duckdb", found, said)
        for trial in kept.values():
            world.spark.scan(trial, query)
        by_turns = [{peer: world.spark.scan(trial, query).cpu_s for peer, trial in kept.items()} for _ in range(times)]
        _scanned(figures, name, "spark", {peer: median(turn[peer] for turn in by_turns) for peer in kept}, said)


def _scanned(figures, query, reader, found, said):
    mine, theirs = found["afterwrite"], found["spark"]
    figures.figure("scan_ratio", mine / max(theirs, 1e-3), "x", "spark", reader=reader, query=query, ours=mine, theirs=theirs, of="s", **said)

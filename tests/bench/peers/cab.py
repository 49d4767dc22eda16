"""A load like the Cloud Analytics Benchmark's, as AutoComp is evaluated on: many small TPC-H databases, each written to
and read by a stream of a shape of its own, without compaction, by whole tables, and in hybrid scope.

What is ours and what is scaled down is said in the README beside this package.
"""

import dataclasses
import math
import random
import statistics
import threading
import time

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from . import charts, duck, ours

FIGURES = "cab_files_at_end cab_read_s cab_client_conflicts cab_cluster_conflicts cab_gb_hours_per_job cab_estimate_error cab_pictures".split()
PERIODS = 5
TARGET = 8 << 20
# writes in each period, over the mean: the shapes of the benchmark's query streams
SHAPES = {
    "steady": lambda period: 1.0,
    "wave": lambda period: 1.0 + 0.8 * math.sin(2 * math.pi * period / PERIODS),
    "burst": lambda period: 3.0 if period == 1 else 0.5,
    "bursts": lambda period: 2.2 if period % 2 else 0.2,
    "ramp": lambda period: 0.4 + 0.3 * period,
}
STRATEGIES = {"none": None, "table": "table", "hybrid": "hybrid"}
QUERIES = [
    "SELECT sum(l_extendedprice * l_discount) FROM {0} WHERE l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    "SELECT l_returnflag, l_linestatus, sum(l_quantity), avg(l_extendedprice), count(*) FROM {0} GROUP BY ALL ORDER BY ALL",
    "SELECT l_shipmode, count(*) FROM {0} WHERE l_shipdate >= DATE '1997-01-01' GROUP BY ALL ORDER BY ALL",
]


@dataclasses.dataclass
class Run:
    """What one strategy came to, by period."""

    files: list
    reads: list
    client_conflicts: list
    cluster_conflicts: list
    jobs: list
    rows: list


def measure(world, figures):
    """Every strategy on the same rows in the same order; rows are compared after the last one."""
    size = dict(databases=2, seconds=6, writes=4, scale=0.002) if world.quick else dict(databases=10, seconds=60, writes=6, scale=0.01)
    lineitem = duck.table("lineitem", size["scale"])
    runs = {name: _run(world, name, scope, lineitem, **size) for name, scope in STRATEGIES.items()}
    if len({str(run.rows) for run in runs.values()}) != 1:
        raise RuntimeError(f"the strategies end with other rows: { {name: run.rows for name, run in runs.items()} }")
    for name, run in runs.items():
        last = run.reads[-1]
        said = {"strategy": name, "databases": size["databases"], "period_s": size["seconds"], "quick": world.quick}
        figures.figure("cab_files_at_end", run.files[-1], "files", **said)
        figures.figure("cab_read_s", statistics.median(last), "s", quartiles=[round(q, 4) for q in _quartiles(last)], reads=len(last), **said)
        figures.figure("cab_client_conflicts", sum(run.client_conflicts), "conflicts", **said)
        figures.figure("cab_cluster_conflicts", sum(run.cluster_conflicts), "conflicts", **said)
        done = _done(run)
        if done:
            spent = [job["actual"]["gb_hours"] for job in done]
            figures.figure("cab_gb_hours_per_job", statistics.mean(spent), "GB-hours", jobs=len(done), total=sum(spent), **said)
            _errors(figures, done, said)
    folder = world.home / "cab"
    folder.mkdir(exist_ok=True)
    _pictures(folder, runs, size["seconds"])
    (folder / "table.md").write_text(_table(runs) + "\n" + _beside(runs, size))
    figures.figure("cab_pictures", len(list(folder.glob("*.svg"))), "files", folder=str(folder), quick=world.quick)


def _done(run):
    return [job for job in run.jobs if job["state"] == "committed" and job.get("actual")]


def _late(done):
    """Jobs after the first twenty."""
    return sorted(done, key=lambda job: job["created_ms"])[20:]


def _errors(figures, done, said):
    """How far off jobs were, of those after the first twenty, as corrected by those before."""
    late = _late(done)
    for quantity in ("files", "bytes", "gb_hours"):
        off = [
            abs(job["estimate"]["corrected"][quantity] / job["actual"][quantity] - 1)
            for job in late
            if job.get("estimate") and job["actual"][quantity] > 0
        ]
        if off:
            figures.figure("cab_estimate_error", statistics.mean(off), "share", quantity=quantity, jobs=len(off), **said)


def _run(world, name, scope, lineitem, databases, seconds, writes, scale):
    tables = [_create(world.lake, f"{name}_{at}", lineitem, at) for at in range(databases)]
    serving = ours.Serving(world.lake, world.folder(f"cab_{name}"), _settings(scope)) if scope else None
    run = Run([], [], [], [], [], [])
    try:
        for period in range(PERIODS):
            before = serving.conflicts() if serving else 0
            reads, conflicts = _period(world, tables, period, seconds, writes, lineitem)
            run.reads.append(reads)
            run.client_conflicts.append(conflicts)
            run.files.append(sum(_files(world.lake, table) for table in tables))
            run.cluster_conflicts.append(serving.conflicts() - before if serving else 0)
        if serving:
            run.jobs = serving.jobs()
    finally:
        if serving:
            serving.stop()
    run.rows = duck.digests([_live(world.lake, table) for table in tables])
    for table in tables:
        world.lake.catalog.drop_table(table)
    return run


def _settings(scope):
    return f"""
[poll]
min = "1s"
max = "2s"

[budget]
concurrent_jobs = 1

[[table]]
match = "lake.trial.*"
act = true
scope = "{scope}"
cooldown = "5s"
"""


def _create(lake, name, lineitem, at):
    """A database's lineitem, in partitions by year of shipment but for every third database, which has none."""
    table = f"trial.cab_{name}"
    if lake.catalog.table_exists(table):
        lake.catalog.drop_table(table)
    made = lake.catalog.create_table(table, lineitem.schema, properties={"write.target-file-size-bytes": str(TARGET)})
    if at % 3 != 2:
        lake.catalog.drop_table(table)
        field = made.schema().find_field("ship_year").field_id
        spec = PartitionSpec(PartitionField(field, 1000, IdentityTransform(), "ship_year"))
        made = lake.catalog.create_table(
            table, made.schema(), partition_spec=spec, properties={"write.target-file-size-bytes": str(TARGET), "format-version": "2"}
        )
    made.append(lineitem)
    return table


def _period(world, tables, period, seconds, writes, lineitem):
    """Writers and a reader side by side for a period; seconds of each read, and commits that writers lost."""
    shapes = list(SHAPES.values())
    ops = []
    for at, table in enumerate(tables):
        count = round(writes * shapes[at % len(shapes)](period))
        ops += [((turn + 0.5) / count, at, table, turn) for turn in range(count)]
    ops.sort()
    ended, reads, lost = threading.Event(), [], []
    reader = threading.Thread(target=_read, args=(world.lake, tables, ended, reads, random.Random(period)))
    began = time.monotonic()
    reader.start()
    try:
        for when, at, table, turn in ops:
            time.sleep(max(0.0, began + when * seconds - time.monotonic()))
            lost.append(_write(world.lake, table, lineitem, random.Random(1000 * period + 37 * at + turn), is_delete=turn % 4 == 3))
        time.sleep(max(0.0, began + seconds - time.monotonic()))
    finally:
        ended.set()
        reader.join()
    return reads, sum(lost)


def _write(lake, table, lineitem, chance, is_delete):
    """One refresh: some orders' lines come, or those of a range of keys go. How often it was refused before it landed."""
    low = chance.randrange(max(lineitem.num_rows - 400, 1))
    lost = 0
    while True:
        loaded = lake.catalog.load_table(table)
        try:
            if is_delete:
                keys = lineitem["l_orderkey"]
                first = keys[low].as_py()
                loaded.delete(And(GreaterThanOrEqual("l_orderkey", first), LessThan("l_orderkey", first + 20)))
            else:
                loaded.append(lineitem.slice(low, 400))
            return lost
        except (CommitFailedException, ValidationException):
            lost += 1


def _read(lake, tables, ended, reads, chance):
    import duckdb

    con = duckdb.connect()
    con.execute("SET threads = 1")
    while not ended.is_set():
        table, query = chance.choice(tables), chance.choice(QUERIES)
        began = time.monotonic()
        con.execute(query.format(duck.source(_live(lake, table)))).fetchall()
        reads.append(time.monotonic() - began)
        time.sleep(0.05)


def _live(lake, table):
    return [task.file.file_path.removeprefix("file://") for task in lake.catalog.load_table(table).scan().plan_files()]


def _files(lake, table):
    return int(lake.catalog.load_table(table).current_snapshot().summary["total-data-files"])


def _quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def _table(runs):
    head = "| strategy | period | files | read quartiles (s) | client conflicts | cluster conflicts |\n|---|---|---|---|---|---|\n"
    rows = [
        f"| {name} | {period + 1} | {run.files[period]} | {', '.join(f'{q:.3f}' for q in _quartiles(run.reads[period]))} "
        f"| {run.client_conflicts[period]} | {run.cluster_conflicts[period]} |"
        for name, run in runs.items()
        for period in range(PERIODS)
    ]
    return head + "\n".join(rows) + "\n"


# what the paper tells: of its load like this one (section 6) and of production (section 7)
PAPER = {
    "scale": "20 databases, 500 GB, 5 hours, Spark on 16 nodes",
    "growth": "2,640 an hour",
    "slower": "1.53 times, one user of TPC-DS after 3 % were maintained",
    "restored": "as before",
    "files": "+28 %",
    "gb_hours": "−19 % (108 of 129 TBHr)",
}


def _beside(runs, size):
    """The paper's figures beside ours."""
    by_scope = [name for name, scope in STRATEGIES.items() if scope]
    scale = f"{size['databases']} databases, SF {size['scale']} of lineitem each, {PERIODS} periods of {size['seconds']} s, one machine"
    growth = (runs["none"].files[-1] - runs["none"].files[0]) / (PERIODS - 1)
    rows = [
        ("scale", PAPER["scale"], scale),
        ("files that a period adds without compaction", PAPER["growth"], f"{growth:.0f} a period"),
        ("reads without compaction", PAPER["slower"], f"{_slower(runs['none']):.2f} times, last period over first"),
        ("reads with compaction", PAPER["restored"], _each(by_scope, lambda name: f"{_slower(runs[name]):.2f} times")),
        ("estimated files saved, over actual", PAPER["files"], _each(by_scope, lambda name: _bias(runs[name], "files"))),
        ("estimated cost, over actual", PAPER["gb_hours"], _each(by_scope, lambda name: _bias(runs[name], "gb_hours"))),
    ]
    head = "| | paper | here |\n|---|---|---|\n"
    return head + "".join(f"| {what} | {theirs} | {here} |\n" for what, theirs, here in rows)


def _each(names, told):
    return "; ".join(f"{name}: {told(name)}" for name in names)


def _slower(run):
    """The last period's median read over the first's."""
    return statistics.median(run.reads[-1]) / statistics.median(run.reads[0])


def _bias(run, quantity):
    """How much more was estimated than came, over all jobs as first estimated, and over those after the first twenty as corrected."""

    def told(jobs, kind):
        came = sum(job["actual"][quantity] for job in jobs if job.get("estimate"))
        return f"{sum(job['estimate'][kind][quantity] for job in jobs if job.get('estimate')) / came - 1:+.1%}" if came else "no job"

    done = _done(run)
    return f"{told(done, 'plain')}, corrected {told(_late(done), 'corrected')}"


def _pictures(folder, runs, seconds):
    ends = [(period + 1) * seconds for period in range(PERIODS)]
    series = {name: list(zip(ends, run.files)) for name, run in runs.items()}
    (folder / "files.svg").write_text(charts.lines("live data files at the end of each period", "seconds", series))
    boxes = {name: [_five(reads) for reads in run.reads] for name, run in runs.items()}
    (folder / "reads.svg").write_text(charts.boxes("read latency in seconds, by period", boxes))
    spent = {name: [job["actual"]["gb_hours"] * 1e6 for job in run.jobs if job.get("actual")] for name, run in runs.items() if run.jobs}
    (folder / "jobs.svg").write_text(charts.boxes("millionths of a GB-hour a job", {name: [_five(values)] for name, values in spent.items() if values}))
    conflicts = {
        f"{name}, {side}": list(zip(ends, getattr(run, f"{side}_conflicts"))) for name, run in runs.items() for side in ("client", "cluster")
    }
    (folder / "conflicts.svg").write_text(charts.lines("conflicts in each period", "seconds", conflicts))


def _five(values):
    return (min(values), *_quartiles(values), max(values))

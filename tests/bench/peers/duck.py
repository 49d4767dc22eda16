"""DuckDB, in a process of its own for each measurement: a plain COPY, scans, and TPC-H data.

    python -m peers.duck VERB JSON
"""

import glob
import importlib.util
import json
import os
import subprocess
import sys
import time

from . import measure


def copy(files, out):
    """Wall and CPU time of the statement alone, without the start of the process."""
    return measure.Taken(**_child("copy", {"files": files, "out": str(out)}))


def scan(files, query, times):
    """CPU and wall seconds of a query on files, once for each time, after one that is not counted."""
    return [tuple(pair) for pair in _child("scan", {"files": files, "query": query, "times": times})]


def digests(tables):
    """Of each table's files: count, and sum of row hashes, the same for the same rows in whatever order."""
    return [tuple(found) for found in _child("digests", {"tables": tables})]


def lineitem(folder, scale, steps, split):
    """lineitem in the order of a load: `steps` × `split` files."""
    _child("lineitem", {"folder": str(folder), "scale": scale, "steps": steps, "split": split})


def table(name, scale):
    """A TPC-H table as Arrow, with the year of shipment beside lineitem's columns."""
    import duckdb

    con = duckdb.connect()
    _tpch(con)
    con.execute(f"CALL dbgen(sf={scale})")
    more = ", year(l_shipdate)::INTEGER AS ship_year" if name == "lineitem" else ""
    return con.execute(f"SELECT *{more} FROM {name}").to_arrow_table()


def source(files):
    """Parquet files as a FROM clause has them."""
    return _source(files)


def _child(verb, words):
    done = subprocess.run([sys.executable, "-m", "peers.duck", verb], input=json.dumps(words), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"duckdb {verb}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def _source(files):
    return f"read_parquet({json.dumps(files)})".replace('"', "'")


def _copy(con, files, out):
    cpu, wall = time.process_time(), time.monotonic()
    con.execute(f"COPY (FROM {_source(files)}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return {"wall_s": wall, "cpu_s": cpu, "peak_bytes": measure.high_water(os.getpid())}


def _scan(con, files, query, times):
    taken = []
    for _ in range(times + 1):
        cpu, wall = time.process_time(), time.monotonic()
        con.execute(query.format(_source(files))).fetchall()
        taken.append((time.process_time() - cpu, time.monotonic() - wall))
    return taken[1:]


def _digests(con, tables):
    return [[str(v) for v in con.execute(f"SELECT count(*), sum(hash(r)::HUGEINT) FROM {_source(files)} r").fetchone()] for files in tables]


def _tpch(con):
    place = importlib.util.find_spec("duckdb_extension_tpch").submodule_search_locations[0]
    con.execute("LOAD '%s'" % glob.glob(place + "/extensions/*/tpch.duckdb_extension")[0])


def _lineitem(con, folder, scale, steps, split):
    _tpch(con)
    for step in range(steps):
        # a whole instance fits into little memory when it is made piece by piece
        con.execute(f"CALL dbgen(sf={scale}, children={steps}, step={step})" if steps > 1 else f"CALL dbgen(sf={scale})")
        rows = con.execute("SELECT count(*) FROM lineitem").fetchone()[0]
        each = -(-rows // split)
        for part in range(split):
            path = f"{folder}/{step:05}_{part:03}.parquet"
            con.execute(f"COPY (FROM lineitem LIMIT {each} OFFSET {part * each}) TO '{path}' (FORMAT parquet, COMPRESSION snappy)")
        for table in ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"):
            con.execute(f"DROP TABLE {table}")


def main():
    import duckdb

    con = duckdb.connect()
    con.execute("SET enable_progress_bar = false")
    verbs = {"copy": _copy, "scan": _scan, "digests": _digests, "lineitem": _lineitem}
    print(json.dumps(verbs[sys.argv[1]](con, **json.load(sys.stdin))))


if __name__ == "__main__":
    main()

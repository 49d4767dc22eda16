"""DataFusion, in a process of its own: reads files and writes them as one, values decoded and encoded anew."""

import json
import os
import subprocess
import sys
import time

from . import measure


def copy(files, out):
    """Wall and CPU time of the statement alone, without the start of the process."""
    done = subprocess.run([sys.executable, "-m", "peers.fusion"], input=json.dumps({"files": files, "out": str(out)}), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"datafusion: {done.stderr[-2000:]}")
    return measure.Taken(**json.loads(done.stdout))


def main():
    from datafusion import SessionContext

    words = json.load(sys.stdin)
    context = SessionContext()
    folder = words["out"] + ".in"  # a table is a folder: links to the very files
    os.makedirs(folder)
    for number, file in enumerate(words["files"]):
        os.symlink(file, f"{folder}/{number:06}.parquet")
    context.register_parquet("input", folder)
    cpu, wall = time.process_time(), time.monotonic()
    options = "'format.compression' 'zstd(3)', 'format.max_row_group_size' '1000000'"
    context.sql(f"COPY (SELECT * FROM input) TO '{words['out']}' STORED AS PARQUET OPTIONS ({options})").collect()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    print(json.dumps({"wall_s": wall, "cpu_s": cpu, "peak_bytes": measure.high_water(os.getpid())}))


if __name__ == "__main__":
    main()

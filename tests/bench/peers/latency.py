"""From a hook event to the compacted table, with the sidecar running."""

import os
import subprocess
import time

from . import ours
from .lake import CATALOG
from .measure import median
from .stream import ACT, Stream

FILES, BYTES = 5, 60_000


def measure(world, figures):
    """Five files of 60 KB in one commit, then the event: until the catalog points at our snapshot.

    Each turn takes a partition of its own. The start of the command that sends the event counts.
    """
    # five files fill a tier here: by default it takes eight
    stream = Stream(world.lake, f"latency_{os.getpid()}", **{"write.target-file-size-bytes": str(128 << 20)})
    serving = ours.Serving(world.lake, world.folder("serve"), ACT + "tier_files = 5\n")
    try:
        taken, sizes = [], []
        for turn in range(world.repeat * 7 + 1):
            sizes.append(stream.commit(turn, FILES, BYTES) / FILES)
            before = stream.pointer()
            began = time.monotonic()
            report = subprocess.Popen(
                [ours.BINARY, "report", f"{CATALOG}.{stream.table}", "--server", serving.door], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if stream.moved(before, 20) is None:
                raise RuntimeError(f"nothing landed: {serving.ask('why', f'{CATALOG}.{stream.table}')[-1:]}")
            taken.append(time.monotonic() - began)
            report.wait()
    finally:
        serving.stop()
    _is_ours(stream, len(taken))
    stream.drop()
    taken = sorted(taken[1:])  # the first one loads the table
    figures.figure(
        "trigger_to_commit_s", median(taken), "s", lowest=taken[0], highest=taken[-1], turns=len(taken), file_bytes=int(median(sizes)), quick=world.quick
    )


def _is_ours(stream, turns):
    operations = [s.summary.operation.value for s in stream.lake.catalog.load_table(stream.table).snapshots()]
    if operations.count("replace") != turns:
        raise RuntimeError(f"{turns} commits brought {operations.count('replace')} rewrites")

"""How often bytes are rewritten while small commits grow to the target."""

import math
import os
import time

from pyiceberg.manifest import ManifestEntryStatus

from . import ours
from .lake import CATALOG
from .stream import ACT, Stream

MIB = 1 << 20


def measure(world, figures):
    """Commits of one size, each reported and left to settle, until they hold as much as a target file."""
    target = (4 if world.quick else 128) * MIB
    for size in (MIB // 4, MIB):
        stream = Stream(world.lake, f"amplification_{size}_{os.getpid()}", **{"write.target-file-size-bytes": str(target)})
        serving = ours.Serving(world.lake, world.folder("serve"), ACT)
        try:
            written = 0
            commits = target // size
            for _ in range(commits):
                written += stream.commit(0, 1, size)
                _settle(stream, serving)
        finally:
            serving.stop()
        rewritten, most, rewrites, files = _history(stream)
        stream.drop()
        said = {"commit_bytes": written // commits, "commits": commits, "target": target, "rewrites": rewrites, "files_left": files, "quick": world.quick}
        # the law of size tiers
        allowed = 1 + math.log(target / size, 4)
        if most > allowed or rewritten / written > allowed:
            raise RuntimeError(f"commits of {size} bytes to {target}: rewritten {rewritten / written:.2f} times, some {most} times; at most {allowed:.2f}")
        figures.figure("write_amplification", rewritten / written, "x", most_rewrites_of_a_byte=most, **said)


def _settle(stream, serving):
    """Reports the head, and waits until the sidecar has decided on it and left it as it is."""
    table = f"{CATALOG}.{stream.table}"
    serving.ask("report", table)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        head = str(stream.lake.catalog.load_table(stream.table).current_snapshot().snapshot_id)
        decisions = serving.ask("why", table)
        if decisions and all(d["snapshot_id"] == head and d["verdict"] == "not" and d["reason"] != "in-flight" for d in decisions):
            return
        time.sleep(0.01)
    raise RuntimeError(f"the sidecar does not settle: {decisions}")


def _history(stream):
    """Bytes that went into rewrites' outputs, the most rewrites that any of them saw, rewrites, files left."""
    table = stream.lake.catalog.load_table(stream.table)
    depth, rewritten, rewrites = {}, 0, 0
    for snapshot in sorted(table.snapshots(), key=lambda s: s.sequence_number):
        gone, made = [], []
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.snapshot_id == snapshot.snapshot_id:
                    (gone if entry.status == ManifestEntryStatus.DELETED else made).append(entry.data_file)
        level = 1 + max((depth.pop(file.file_path) for file in gone), default=-1)
        for file in made:
            depth[file.file_path] = level
        if gone:
            rewrites += 1
            rewritten += sum(file.file_size_in_bytes for file in made)
    return rewritten, max(depth.values(), default=0), rewrites, len(depth)

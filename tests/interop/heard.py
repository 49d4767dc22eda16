"""What a running sidecar knows, asked by its own command line: for tests of what it was told."""

import json

import engines

NOT_FOUND = 7


def partitions(sidecar, table):
    """The partitions that the sidecar has judged, each with the snapshot that it saw."""
    done = sidecar.ask("why", f"{sidecar.command.catalog}.{table}", "--json", ok=(0, NOT_FOUND))
    decisions = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    return {d["partition"]: d["snapshot_id"] for d in decisions}


def door(sidecar, source):
    """The counters of one source."""
    rows = [json.loads(line) for line in sidecar.ask("doors", "--json").stdout.splitlines()]
    return next((row for row in rows if row["source"] == source), {"received": 0, "accepted": 0, "parked": 0, "dropped": 0})


def at(names, snapshot):
    """Partitions by the values of `region`, all seen at one snapshot."""
    return {f'region="{name}"': str(snapshot) for name in names}


def until_known(sidecar, table, names, snapshot, seconds=30):
    engines.wait_until(lambda: partitions(sidecar, table) == at(names, snapshot), seconds)


def until_caught_up(sidecar, spark, table, names, seconds=30):
    """The same as of the head, or of what a job that runs on has committed since."""
    passed = len(spark.snapshots(table)) - 1

    def caught_up():
        seen = partitions(sidecar, table)
        since = [s["snapshot_id"] for s in spark.snapshots(table)[passed:]]
        return any(seen == at(names, snapshot) for snapshot in since)

    engines.wait_until(caught_up, seconds)


def replaces(spark, table):
    return [s for s in spark.snapshots(table) if s["operation"] == "replace"]


def until_compacted(spark, table, seconds=60):
    """Waits for a compaction, and checks that each one left every row as it was."""
    engines.wait_until(lambda: replaces(spark, table), seconds)
    for replace in replaces(spark, table):
        assert spark.digest(table, replace["snapshot_id"]) == spark.digest(table, replace["parent_id"])

"""afterwrite as its users run it: the release binary on a settings file."""

import json
import os
import re
import subprocess
import time
import urllib.request

from . import measure
from .lake import CATALOG

BINARY = os.environ.get("AFTERWRITE_BIN", "")


def settings(lake, folder, extra=""):
    """A settings file with a journal of its own: no run knows of another."""
    path = folder / "afterwrite.toml"
    path.write_text(
        f"""
[catalog.{CATALOG}]
type = "sql"
uri = "sqlite://{lake.database}"
warehouse = "file://{lake.warehouse}"

[journal]
path = "{folder}/journal.db"
{extra}
"""
    )
    return path


def compact(lake, folder, table, extra=""):
    """Compacts a table in a process of its own: what it took and a row a partition. Start, plan, proof and commit count."""
    taken = measure.run([BINARY, "--config", str(settings(lake, folder, extra)), "compact", f"{CATALOG}.{table}", "--json"], ok=range(8))
    rows = [json.loads(line) for line in taken.out.splitlines() if line.strip()]
    wrong = [row for row in rows if row["result"] not in ("committed", "left")]
    if wrong or not any(row["result"] == "committed" for row in rows):
        raise RuntimeError(f"{len(wrong)} of {len(rows)} partitions of {table} were not compacted, the first: {(wrong or rows or [taken.out])[0]}")
    taken.peak_bytes = max(taken.peak_bytes, *(row["peak_memory"] or 0 for row in rows))
    return taken, rows


def tier(rows):
    """The ways taken, most used first, with the number of partitions when there are several."""
    counts = {}
    for row in rows:
        if row["path"]:
            counts[row["path"]] = counts.get(row["path"], 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{path} {count}" for path, count in sorted(counts.items(), key=lambda c: -c[1]))


class Serving:
    """A running sidecar on free ports of the loopback."""

    def __init__(self, lake, folder, extra):
        doors = '[server]\nlisten = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n'
        self.config = str(settings(lake, folder, doors + extra))
        self.log_path = folder / "serve.log"
        self.log = open(self.log_path, "w+")
        self.process = subprocess.Popen([BINARY, "--config", self.config, "serve"], stderr=self.log, stdout=subprocess.DEVNULL)
        self.door = self._door(folder / "serve.log")

    def _door(self, log):
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            found = re.search(r"grpc (?:listens )?on (?:http://)?(127\.0\.0\.1:\d+)", log.read_text())
            if found:
                return f"http://{found[1]}"
            time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"the sidecar does not listen: {log.read_text()[-2000:]}")

    def ask(self, *words):
        """A command that speaks to it; its JSON lines."""
        command = [BINARY, "--config", self.config, *words, "--server", self.door, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def jobs(self):
        """All jobs of its journal, newest first."""
        done = subprocess.run([BINARY, "--config", self.config, "jobs", "--limit", "1000000", "--json"], capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def conflicts(self):
        """Jobs so far whose table moved under them."""
        found = re.search(r"http (?:listens )?on (?:http://)?(127\.0\.0\.1:\d+)", self.log_path.read_text())
        text = urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=10).read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("afterwrite_conflicts_total"))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

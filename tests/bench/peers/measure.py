"""Wall time, CPU time and peak resident memory of processes, from /proc."""

import dataclasses
import os
import statistics
import subprocess
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Taken:
    """What a run took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    out: str = ""


def median(values):
    return statistics.median(list(values))


def run(command, ok=(0,)):
    """Runs a command to its end; its wall time includes its start."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = PeakOfTree(process.pid)
    out, err = process.communicate()
    wall = time.monotonic() - began
    peak = watch.end()
    if process.returncode not in ok:
        raise RuntimeError(f"{command[:4]} ended with {process.returncode}: {out[-2000:]}{err[-2000:]}")
    return Taken(wall, watch.cpu_s, peak, out)


class PeakOfTree:
    """Peak resident memory of a process and its children: the kernel's own high-water marks, read often enough to miss little."""

    def __init__(self, pid):
        self.pid, self.peaks, self.ticks, self.over = pid, {}, {}, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        while not self.over.wait(0.01):
            self._look()

    def _look(self):
        for pid in tree(self.pid):
            self.peaks[pid] = max(self.peaks.get(pid, 0), high_water(pid))
            self.ticks[pid] = max(self.ticks.get(pid, 0.0), cpu_seconds(pid))

    def end(self):
        self.over.set()
        self.thread.join()
        return sum(self.peaks.values())

    @property
    def cpu_s(self):
        """The last 10 ms of each process may be missing."""
        return sum(self.ticks.values())


class Lasting:
    """What a process that outlives the measurement takes meanwhile."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        with open(f"/proc/{self.pid}/clear_refs", "w") as file:
            file.write("5")  # sets the high-water mark to what is resident now
        self.cpu, self.began = cpu_seconds(self.pid), time.monotonic()
        return self

    def __exit__(self, *_):
        wall = time.monotonic() - self.began
        self.taken = Taken(wall, cpu_seconds(self.pid) - self.cpu, high_water(self.pid))


def tree(pid):
    """A process and all that came from it."""
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                for child in file.read().split():
                    found += tree(int(child))
    except OSError:
        pass
    return found


def high_water(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK
    except (OSError, IndexError):
        return 0.0


def warm(paths):
    """Brings files into the page cache, so that every measurement begins alike."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass

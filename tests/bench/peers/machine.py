"""What the figures were measured on."""

import os
import platform
import re
import subprocess
from importlib.metadata import version


def facts():
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"
    processor = _first("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.machine()
    memory = int(_first("/proc/meminfo", r"MemTotal:\s*(\d+)") or 0)
    return {
        "processor": f"{processor}, {cores}",
        "memory": f"{memory / (1 << 20):.1f} GiB",
        "kernel": platform.release(),
        "load": "%.2f %.2f %.2f at the start" % os.getloadavg(),
        "afterwrite": f"{_said([os.environ['AFTERWRITE_BIN'], '--version']).split()[-1]}, {_said(['git', 'rev-parse', '--short', 'HEAD']) or 'unknown commit'}",
        "peers": ", ".join(f"{name} {version(name)}" for name in ("pyspark", "duckdb", "datafusion", "pyiceberg", "pyarrow")),
        "java": _said(["java", "-version"]).splitlines()[0],
    }


def _first(path, pattern):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read())
    except OSError:
        return None
    return found and found[1]


def _said(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip() if done.returncode == 0 else ""

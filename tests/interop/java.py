"""Java programs of the tests as children that answer one line of JSON to each line of JSON."""

import glob
import json
import os
import pathlib
import subprocess
import sys
import threading

CACHE = pathlib.Path(os.environ["AFTERWRITE_TEST_CACHE"])


def classes(name):
    """What `tests/run` compiled from `tests/interop/<name>`, with the jars that belong to it."""
    return f"{CACHE}/classes/{name}:{CACHE}/jars/{name}/*"


def spark_jars():
    """The jars in PySpark's wheel: parquet-java and Hadoop are among them."""
    import pyspark

    return f"{os.path.dirname(pyspark.__file__)}/jars/*"


def java25():
    """A Java 25, which Trino needs: the system's, or the one that `tests/run` installed."""
    found = [*sorted(glob.glob("/usr/lib/jvm/*25*/bin/java")), *glob.glob(f"{CACHE}/java25/lib/python3*/site-packages/*/jre/bin/java")]
    assert found, "Trino needs a Java 25: run tests/run, which installs one"
    return found[0]


class Child:
    """A line in, a line out; what else it prints is kept to explain a failure."""

    def __init__(self, command, log):
        self.log = log
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(log, "wb"))
        self.ready = self.read()

    def ask(self, **order):
        return self.tell(json.dumps(order))

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return self.read()

    def read(self, seconds=180):
        watchdog = threading.Timer(seconds, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stdout:
                if line.startswith(b"="):
                    answer = json.loads(line[1:])
                    assert "error" not in answer, f"{answer['error']}\n{self.tail()}"
                    return answer
        finally:
            watchdog.cancel()
        raise AssertionError(f"{self.process.args[0]} ended with {self.process.wait()}\n{self.tail()}")

    def tail(self):
        sys.stdout.flush()
        return pathlib.Path(self.log).read_text(errors="replace")[-4000:]

    def stop(self):
        self.process.kill()
        self.process.wait()

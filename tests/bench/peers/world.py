"""What the benchmarks share: settings, the lake, and engines that are started once, when first needed."""

import fcntl
import os
import pathlib
import shutil
import tempfile

from .lake import Lake


class World:
    def __init__(self, quick, repeat):
        self.quick = quick
        self.repeat = repeat
        self.home = pathlib.Path(os.environ["AFTERWRITE_BENCH_HOME"])
        self.lock = open(self.home / "lock", "w")
        # two runs would remove each other's files, and measure each other
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        for left in self.home.glob("scratch.*"):
            shutil.rmtree(left, ignore_errors=True)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="scratch.", dir=self.home))
        self.lake = Lake(self.home / "lake")
        self._spark = None

    @property
    def spark(self):
        if not self._spark:
            from .spark import Spark

            self._spark = Spark(self.lake, self.scratch, self.quick)
        return self._spark

    def fresh_spark(self):
        """A session that holds nothing of earlier benchmarks: a heap once grown stays resident. Small data does not ask for it."""
        if self._spark and not self.quick:
            self._spark.stop()
            self._spark = None
        return self.spark

    def folder(self, name):
        """A new folder, removed at the end."""
        return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}.", dir=self.scratch))

    def close(self):
        if self._spark:
            self._spark.stop()
        self.lake.clean()
        shutil.rmtree(self.scratch, ignore_errors=True)

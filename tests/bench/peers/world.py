"""What the benchmarks share: settings, the lake, and engines that are started once, when first needed."""

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
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="scratch.", dir=self.home))
        self.lake = Lake(self.home / "lake")
        self._spark = None

    @property
    def spark(self):
        if not self._spark:
            from .spark import Spark

            self._spark = Spark(self.lake, self.scratch)
        return self._spark

    def folder(self, name):
        """A new folder, removed at the end."""
        return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}.", dir=self.scratch))

    def close(self):
        if self._spark:
            self._spark.stop()
        self.lake.clean()
        shutil.rmtree(self.scratch, ignore_errors=True)

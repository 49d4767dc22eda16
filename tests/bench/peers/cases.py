"""Inputs of the compaction benchmarks: L1, its smaller form, and the variants."""

import dataclasses
import typing

from . import inputs, writers
from .inputs import QUICK, SF1, SF10, Size


@dataclasses.dataclass(frozen=True)
class Case:
    """`make(world)` generates the input. `scans`: compares scans of the results too, on lineitem's columns."""

    make: typing.Callable
    scans: bool = False


def lineitem(size, quick=QUICK, **how):
    return lambda world: inputs.lineitem(world, quick if world.quick else size, **how)


def either(make, full, quick):
    return lambda world: make(world, *(quick if world.quick else full))


CASES = {
    # 2,000 files of 0.8 MB
    "L1": Case(lineitem(SF10), scans=True),
    # 200 of them
    "L1_SF1": Case(lineitem(SF1), scans=True),
    "position_deletes": Case(either(inputs.position_deletes, [SF1], [QUICK])),
    "equality_deletes": Case(either(inputs.equality_deletes, [SF1], [QUICK])),
    "columns_300": Case(either(inputs.wide, [100, 5_000], [6, 100])),
    "nested": Case(either(inputs.nested, [100, 40_000], [6, 1_000])),
    "long_strings": Case(either(inputs.long_strings, [100, 1_000], [6, 50])),
    # 10,000 files of 60 KB; quick: 80
    "tiny_files": Case(lineitem(Size(3.3, 125, 10), Size(0.01, 10, 1))),
    "snappy": Case(lineitem(SF1, codec="snappy")),
    "gzip": Case(lineitem(SF1, codec="gzip")),
} | {f"by_{writer}": Case(lambda world, writer=writer: writers.seed(world, writer, QUICK if world.quick else SF1)) for writer in writers.WRITERS}

# a smaller form of what runs anyway
ONLY_FULL = ("L1_SF1",)

"""`tests/bench/run [NAME…] [--json] [--quick] [--repeat N] [--list]`."""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback

from . import amplification, cab, cases, compaction, copies, events, latency, machine, memory, upserts
from .figures import Figures
from .world import World


CORES = 2


def benchmarks():
    """Every benchmark by name, in the order in which they run: a function of the world and the figures."""
    found = {name: compaction.benchmark(case) for name, case in cases.CASES.items()}
    found["splice_vs_copy"] = copies.splice
    found["reencode_vs_datafusion"] = copies.reencode
    found["trigger_to_commit_s"] = latency.measure
    found["write_amplification"] = amplification.measure
    found["flink_rewrites"] = upserts.measure
    found["row_group_memory_ratio"] = memory.measure
    found["kafka_events_per_s"] = events.measure
    found["cab"] = cab.measure
    return found


def own():
    """The benchmarks which use the library itself, with the names of their further figures: another binary of this package has them."""
    binary = os.environ.get("AFTERWRITE_BENCH_BIN")
    if not binary:
        return {}
    listed = subprocess.run([binary, "--list"], check=True, capture_output=True, text=True).stdout
    lines = [line.split("\t") for line in listed.splitlines() if line.strip()]
    return {name: also.split() for name, also, _ in lines}


def measure_own(name):
    def run(world, figures):
        command = [os.environ["AFTERWRITE_BENCH_BIN"], name, "--json", *(["--quick"] if world.quick else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        for line in filter(None, done.stdout.splitlines()):
            figures.measured(json.loads(line), world.quick)
        if done.returncode:
            raise RuntimeError(f"{name} ended with {done.returncode}")

    return run


def by_figure(known, own):
    """Which benchmark gives a figure that is not called like it."""
    found = {figure: "L1" for figure in compaction.FIGURES}
    for bench, figures in {**copies.FIGURES, "cab": cab.FIGURES, **own}.items():
        found |= {figure: bench for figure in figures}
    return {figure: bench for figure, bench in found.items() if figure not in known}


def chosen(names, known, figures):
    """Benchmarks by their own name or by that of a figure."""
    picked = []
    for name in names:
        name = figures.get(name, name)
        if name not in known:
            sys.exit(f"there is no benchmark or figure `{name}`; known are {', '.join([*known, *figures])}")
        picked.append(name)
    return list(dict.fromkeys(picked))


def arguments():
    parser = argparse.ArgumentParser(prog="tests/bench/run", description="Measures afterwrite beside its peers, on the same input.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks or figures; all but the largest without one")
    parser.add_argument("--json", action="store_true", help="one JSON object a figure, one a line")
    parser.add_argument("--quick", action="store_true", help="small data, one repetition: shows that they work, not how fast")
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions of each measurement [default: 3, quick: 1]")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    return parser.parse_args()


def main():
    args = arguments()
    ours = own()
    known = {**benchmarks(), **{name: measure_own(name) for name in ours}}
    named = by_figure(known, ours)
    if args.list:
        print("\n".join([*known, *named]))
        return 0
    # every peer on the same two cores, whatever the machine has
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    names = chosen(args.names, known, named) or [n for n in known if not (args.quick and n in cases.ONLY_FULL)]
    figures, failed = Figures(args.json), []
    world = World(quick=args.quick, repeat=args.repeat or (1 if args.quick else 3))
    figures.machine(machine.facts())
    try:
        for name in names:
            began = time.monotonic()
            try:
                figures.begin(name)
                known[name](world, figures)
            except Exception as error:  # the other figures are still worth having
                failed.append(name)
                print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr)
                traceback.print_exc()
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        figures.end()
    finally:
        world.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

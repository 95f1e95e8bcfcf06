"""Two builds of Thalweg in turns: python bench/builds.py OLD NEW [--rows N] [--rounds N] [--folder DIR]

OLD and NEW are folders with the Python package of a build. Each build has a process of its own with the same events, and both
take each step in turn, so that what else the machine does meets both. Printed is the time of the new build as a multiple of the
old one's: the median over all rounds, the range in which the middle half of the rounds lies, and that of the fastest rounds.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))


class Worker:
    """The steps that are compared, in the process of one build."""

    def __init__(self, rows, folder):
        from data import stream
        from stream import ranges
        from systems import Thalweg

        self.system, self.ranges, self.folder = Thalweg, ranges, folder
        self.events = stream(rows)
        self.times = self.events.column("ts").to_numpy()
        self.loaded = Thalweg(folder)
        self.loaded.load(self.events)
        self.values = list(zip(*(column.to_pylist() for column in self.events.slice(0, 100_000).columns)))
        self.batches = {rows: self.loaded.prepare([self.events.slice(i * rows, rows) for i in range(count)]) for rows, count in ((1, 1_000), (100, 1_000), (10_000, 100))}

    def steps(self):
        steps = {f"append_disk_{rows}": (self.append, rows) for rows in self.batches}
        steps |= {"put_process": (self.put,), "appender_process": (self.appender,), "bulk_load": (self.bulk_load,)}
        for rows in (200, 2_000, 20_000, 200_000, 2_000_000):
            if rows <= len(self.times):
                count = max(9, min(2_000_000 // rows, 500))
                steps[f"scan_{rows}"] = (self.each_range, self.loaded.scan_range, rows, count)
                steps[f"range_{rows}"] = (self.each_range, self.loaded.range, rows, count)
        for share in (0.001, 0.01, 0.1, 1.0):
            steps[f"aggregate_{share * 100:g}%"] = (self.each_range, self.loaded.aggregate, int(len(self.times) * share), 200)
        return steps | {"replay": (self.loaded.replay,)}

    def in_new_database(self, level, work):
        system = self.system(os.path.join(self.folder, "new"), level)
        work(system)
        system.close()

    def append(self, rows):
        self.in_new_database("disk", lambda system: [system.append(batch) for batch in self.batches[rows]])

    def put(self):
        self.in_new_database("process", lambda system: [system.put(row) for row in self.values])

    def appender(self):
        def fill(system):
            with system.table.appender() as appender:
                for row in self.values:
                    appender.put(*row)

        self.in_new_database("process", fill)

    def bulk_load(self):
        self.in_new_database("disk", lambda system: system.load(self.events))

    def each_range(self, read, rows, count):
        # Many short ones: the first few after a turn of the other build find neither caches nor threads awake.
        for first, last in self.ranges(self.times, rows, count):
            read(first, last)

    def serve(self):
        steps = self.steps()
        print(*steps, flush=True)
        for line in sys.stdin:
            step, *arguments = steps[line.strip()]
            start = time.perf_counter()
            step(*arguments)
            print(time.perf_counter() - start, flush=True)


class Build:
    """The process of one build."""

    def __init__(self, package, arguments, folder):
        command = [sys.executable, __file__, "--serve", "--rows", str(arguments.rows), "--folder", folder]
        environment = os.environ | {"PYTHONPATH": package}
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.steps = self.process.stdout.readline().split()

    def seconds(self, step):
        print(step, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def compare(arguments):
    builds = [Build(package, arguments, os.path.join(arguments.folder, name)) for name, package in zip(("old", "new"), arguments.packages)]
    for step in builds[0].steps:
        ratios, fastest = [], {build: math.inf for build in builds}
        for round in range(arguments.rounds + 1):
            # Whoever comes second may profit from what the first one left in the caches.
            turns = builds if round % 2 else builds[::-1]
            taken = {build: build.seconds(step) for build in turns}
            if round > 0:
                ratios.append(taken[builds[1]] / taken[builds[0]])
                fastest = {build: min(fastest[build], taken[build]) for build in builds}
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{step:18} {middle:.3f}  ({low:.3f} to {high:.3f})  {fastest[builds[1]] / fastest[builds[0]]:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="OLD NEW", help="folders with the Python packages of both builds")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--folder", default="bench-data")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        Worker(arguments.rows, arguments.folder).serve()
    elif len(arguments.packages) == 2:
        compare(arguments)
    else:
        parser.error("name the folders of two builds")


if __name__ == "__main__":
    main()

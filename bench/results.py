"""The figures of a benchmark, line by line, and the bars that it is judged by."""

import json
import statistics

RESULTS = []


def emit(metric, system, values, unit, note=""):
    values = sorted(values)
    result = dict(metric=metric, system=system, median=statistics.median(values), low=values[0], high=values[-1], unit=unit, note=note)
    RESULTS.append(result)
    print(json.dumps(result), flush=True)


def judge(metric, bar, holds, text):
    result = dict(metric=metric, bar=bar, holds=bool(holds), measured=text)
    RESULTS.append(result)
    print(("  ok   " if holds else "  MISS ") + f"{metric}: {text} (bar {bar})", flush=True)


def median(metric, system):
    return next(r["median"] for r in RESULTS if r["metric"] == metric and r.get("system") == system and "median" in r)


def at_least(metric, system, factor, smaller_is_better=False):
    """Judges Thalweg's figure against a peer's in the same run."""
    ours, theirs = median(metric, "thalweg"), median(metric, system)
    ratio = theirs / ours if smaller_is_better else ours / theirs
    judge(metric, f"{factor}x {system}", ratio >= factor, f"{ratio:.2f}x")


def finish(path):
    """Writes all lines to a file and says which bars were missed."""
    with open(path, "w") as out:
        out.writelines(json.dumps(r) + "\n" for r in RESULTS)
    missed = [r["metric"] for r in RESULTS if r.get("holds") is False]
    print(f"{sum('holds' in r for r in RESULTS) - len(missed)} bars held, {len(missed)} missed: {', '.join(missed)}")

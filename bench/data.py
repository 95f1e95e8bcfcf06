"""The 20 million events of the stream benchmark: a timestamp in ms and eight float64, from a seed.

a0 to a6 are reflected random walks with two decimals, a7 has no correlation in time.
"""

import numpy as np
import pyarrow as pa

ATTRIBUTES = [f"a{k}" for k in range(8)]
COLUMNS = ["ts", *ATTRIBUTES]
STEPS = [0.05, 0.1, 0.2, 0.02, 0.5, 0.01, 1.0]


def stream(rows, seed=44):
    """A pyarrow table of `rows` events, ordered by time."""
    random = np.random.default_rng(seed)
    columns = {"ts": 1_600_000_000_000 + np.cumsum(random.integers(1, 10, rows))}
    for k, step in enumerate(STEPS):
        walk = 50 + np.cumsum(random.normal(0, step, rows))
        columns[f"a{k}"] = np.round(np.abs((walk % 200) - 100), 2)
    columns["a7"] = np.round(random.gamma(2, 10, rows), 3)
    return pa.table(columns)

import pytest

import thalweg


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plant.thal"


@pytest.fixture
def db(path):
    with thalweg.connect(path, durability="memory") as opened:
        yield opened


@pytest.fixture
def cpu(db):
    """Ten rows, a second apart, the last without a host."""
    table = db.create_table("cpu", {"ts": "timestamp(ms)", "host": "varchar", "sys": "double"}, time="ts")
    hosts = [*"abcabcabc", None]
    table.append({"ts": [1000 * i for i in range(10)], "host": hosts, "sys": [i / 2 for i in range(10)]})
    return table

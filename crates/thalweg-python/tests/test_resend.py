"""Appends with a number, which are sent again."""

import subprocess
import sys

import pytest
import thalweg


def test_an_append_that_is_sent_again_is_stored_once(tmp_path):
    path = str(tmp_path / "resend.thal")
    code = f"""
import os, thalweg
db = thalweg.connect({path!r})
t = db.create_table("t", {{"ts": "int64", "v": "double"}}, time="ts")
for sequence in range(20):
    t.append({{"ts": range(sequence * 10, sequence * 10 + 10), "v": [0.5] * 10}}, producer="gw7", sequence=sequence)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    with thalweg.connect(path) as db:
        t = db.table("t")
        # Whoever was killed does not know how far it got, and sends all of it again.
        for sequence in range(25):
            rows = {"ts": range(sequence * 10, sequence * 10 + 10), "v": [0.5] * 10}
            assert t.append(rows, producer="gw7", sequence=sequence) == 10
        assert t.append({"ts": [5000], "v": [1.0]}, producer="gw8", sequence=0) == 1
        assert t.append({"ts": 5001, "v": 1.0}, producer="gw8", sequence=0) == 1
        assert len(t) == 251
        for wrong in ({"producer": "gw7"}, {"sequence": 3}, {"producer": "", "sequence": 3}):
            with pytest.raises(thalweg.Error, match="producer"):
                t.append({"ts": [1]}, **wrong)
        with pytest.raises((TypeError, OverflowError)):
            t.append({"ts": [1]}, producer="gw7", sequence=-1)

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from tests.quick.store.test_rebuild import contents
from tests.support.waiting import until
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.updates.rebuild import rebuild, reconcile

WRITER = """
import sys
from pathlib import Path
from tests.quick.store.test_rebuild import Life
from workbench.paths import Home
from workbench.store.db.database import Store

life = Life(Store.open(Home(Path(sys.argv[1]))), int(sys.argv[2]))
print("ready", flush=True)
life.go(1_000_000)
"""


def written(home: Home) -> int:
    total = 0
    for file in home.jobs.glob("*/events.jsonl"):
        with contextlib.suppress(FileNotFoundError):  # the writer deletes jobs, too
            total += file.stat().st_size
    return total


def has_written(home: Home, enough: int, writer: subprocess.Popen[str]) -> bool:
    """Say whether a writer has written so many bytes, or has ended."""
    return written(home) >= enough or writer.poll() is not None


@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(
            pytest.param(seed, marks=pytest.mark.soak("one seed more; the gate has one"))
            for seed in (1, 2, 3)
        ),
    ],
)
def test_a_writer_killed_at_any_instant_leaves_rows_that_the_histories_give(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        home = Home(Path(folder) / "home")
        for round_ in range(3):
            before = written(home) if round_ else 0
            arguments = [sys.executable, "-c", WRITER, str(home.path), str(seed * 10 + round_)]
            writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "ready\n"
                enough = before + chance.randint(1, 20_000)
                until(partial(has_written, home, enough, writer), f"the writer to write {enough} bytes")
            finally:
                writer.kill()
                writer.communicate()
            assert writer.returncode == -9

            with Store.open(home) as store:
                assert reconcile(store).problems == []
                found = contents(store)
                assert store.rows("PRAGMA integrity_check") == [("ok",)]
            assert rebuild(home, ingest=ingest).problems == []
            with Store.open(home) as store:
                assert contents(store) == found

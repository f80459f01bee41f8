"""What holds of rclone's S3 holds of another implementation: of SeaweedFS."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stores.seaweed import READER, Weed
from tests.stores.test_checkpoints import SAVE
from tests.support.real_jobs import Ground
from tests.support.store_servers import KEY
from workbench.job import State
from workbench.learner.stores.cache import entries

pytestmark = pytest.mark.soak("a second S3 server; the gate runs rclone's")

MEGABYTE = 1 << 20


@pytest.fixture
def ground(own_ground: Ground) -> Ground:
    """Real jobs in a home of the test's own: it counts copies."""
    return own_ground


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    """One server for all of these."""
    made = Weed(tmp_path_factory.mktemp("weed") / "server")
    try:
        made.start()
        made.put("training/train.txt", b"weed\n")
        made.put("training/sub/more.txt", b"more\n")
        made.rclone("mkdir", "X:results")
        yield made
    finally:
        made.stop()


def test_data_comes_results_go_and_the_second_job_finds_the_copy(ground: Ground, weed: Weed) -> None:
    # More than one part, whose etag is no checksum of the whole.
    command = (
        "cat $DATA_DIR/train.txt $DATA_DIR/sub/more.txt; echo m >$RESULT_DIR/m;"
        f" head -c {12 * MEGABYTE} /dev/urandom >$RESULT_DIR/big; sha256sum <$RESULT_DIR/big"
    )
    jobs = [ground.submit(command, data_stores=(weed.store(),))]
    ground.ends(jobs[0])
    jobs.append(ground.submit(command, data_stores=(weed.store(),)))

    for job_id in jobs:
        row = ground.reaches(job_id, State.COMPLETED, State.FAILED)
        assert row.state is State.COMPLETED, row.reason
        output = ground.output(job_id)
        assert output.startswith("weed\nmore\n")
        assert {"m", "big", "learner-1/output.log"} <= weed.names(f"results/{job_id}")
        assert hashlib.sha256(weed.get(f"results/{job_id}/big")).hexdigest() in output
    assert len(entries(str(ground.home.data))) == 1


def test_a_halted_job_goes_on_from_its_checkpoint(ground: Ground, weed: Weed, tmp_path: Path) -> None:
    program = tmp_path / "save.py"
    program.write_text(SAVE)
    command = f"{sys.executable} {program} stay"
    job_id = ground.submit(command, data_stores=(weed.store(),), upload_seconds=0.5)
    ground.prints(job_id, "saved")
    ground.ask(job_id, "halt")
    assert ground.ends(job_id).state is State.HALTED
    assert "_checkpoints/step-003/metadata.json" in weed.names(f"results/{job_id}")
    job = ground.home.job(job_id)
    shutil.rmtree(job.checkpoints)  # as at another place: nothing is there, nor what was stored from it
    (job.path / "stored.json").unlink()

    ground.ask(job_id, "resume")
    ground.prints(job_id, "saved", attempt=2)
    assert "found ['step-001', 'step-002', 'step-003']" in ground.output(job_id, attempt=2)
    assert (job.checkpoints / "step-003" / "weights").read_text() == "w3"
    ground.ask(job_id, "kill")
    ground.ends(job_id, attempt=2)


@pytest.mark.parametrize(
    ("login", "fields", "words"),
    [
        ((KEY, "wrong-secret"), {}, "does not accept the credentials"),
        (("nobody-at-all", "wrong-secret"), {}, "does not accept the credentials"),
        (READER, {}, "lets nothing be written"),
        (None, {"training_data": "nope"}, "has no container nope"),
    ],
)
def test_what_cannot_work_is_found_before_the_command_starts(
    ground: Ground, weed: Weed, login: tuple[str, str] | None, fields: dict[str, Any], words: str
) -> None:
    row = ground.ends(ground.submit("true", data_stores=(weed.store(login=login, **fields),)))

    assert (row.state, row.reason.code, row.exit_code) == (State.FAILED, "C103", 77), row.reason
    assert words in row.reason.text
    assert row.reason.hint

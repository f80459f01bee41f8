"""A process job with data stores: data before the command starts, results in the store when it ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.real_jobs import Ground
from tests.support.store_servers import SECRET, Server, serving
from tests.support.waiting import until
from workbench.job import State
from workbench.metrics import progress
from workbench.store.queries.jobs import transitions

SAVE = "echo model >$RESULT_DIR/model.bin"


def document(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(path.read_text())
    return found


def test_data_is_there_when_the_command_starts_and_results_are_there_when_it_ended(
    ground: Ground, s3: Server
) -> None:
    job_id = ground.submit(
        f"cat $DATA_DIR/train.txt $DATA_DIR/sub/more.txt; {SAVE}", data_stores=(s3.store(),)
    )

    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.COMPLETED, 0), row.reason
    assert ground.output(job_id) == "one\ntwo\nthree\n"
    results = s3.results(job_id)
    assert (results / "model.bin").read_text() == "model\n"
    assert (results / "learner-1" / "output.log").read_text() == "one\ntwo\nthree\n"
    assert document(results / "learner-1" / "attempt.json")["exit_code"] == 0


def test_results_are_stored_of_a_job_that_failed(ground: Ground, s3: Server) -> None:
    job_id = ground.submit(f"{SAVE}; echo trouble; exit 3", data_stores=(s3.store(),))

    row = ground.ends(job_id)

    assert (row.state, row.exit_code, row.reason.code) == (State.FAILED, 3, "C201")
    assert (s3.results(job_id) / "model.bin").exists()
    assert (s3.results(job_id) / "learner-1" / "output.log").read_text() == "trouble\n"


def test_results_are_stored_of_a_job_that_is_halted_and_storing_is_a_state(
    ground: Ground, s3: Server
) -> None:
    job_id = ground.submit(f"{SAVE}; echo here; sleep 600", data_stores=(s3.store(),))
    ground.prints(job_id, "here")
    ground.ask(job_id, "halt")

    row = ground.ends(job_id)

    assert row.state is State.HALTED
    assert (s3.results(job_id) / "model.bin").exists()
    states = [event.state for event in transitions(ground.store, job_id) if event.state]
    assert State.STORING in states


def test_new_results_and_output_go_up_while_it_runs(ground: Ground, s3: Server) -> None:
    job_id = ground.submit(f"{SAVE}; echo saved; sleep 600", data_stores=(s3.store(),), upload_seconds=0.3)

    results = s3.results(job_id)
    until((results / "model.bin").exists)
    until((results / "learner-1" / "output.log").exists)
    assert ground.row(job_id).state is State.PROCESSING
    ground.ask(job_id, "kill")
    ground.ends(job_id)


def test_a_copy_is_shared_made_anew_when_somebody_damaged_it_and_another_one_when_data_changed(
    ground: Ground, s3: Server
) -> None:
    command = "echo $DATA_DIR; stat -c %a $DATA_DIR/train.txt; cat $DATA_DIR/train.txt"

    def run() -> list[str]:
        job_id = ground.submit(command, data_stores=(s3.store(),))
        assert ground.ends(job_id).state is State.COMPLETED
        return ground.output(job_id).splitlines()

    first, second = run(), run()
    assert first == second
    assert first[1:] == ["444", "one", "two"]
    (Path(first[0]) / "train.txt").unlink()
    assert run()[1:] == ["444", "one", "two"]
    s3.write("tf_training_data/train.txt", "other\n")
    changed = run()
    assert changed[0] != first[0]
    assert changed[2:] == ["other"]


def test_several_stores_are_named_by_number_and_by_id_and_a_sub_path_stands_for_the_whole(
    ground: Ground, s3: Server
) -> None:
    s3.write("val_data/v.txt", "val\n")
    second = s3.store(id="val-set", training_data="val_data", training_results="")
    job_id = ground.submit(
        "ls $DATA_DIR; cat $DATA_DIR_1/v.txt $DATA_DIR_VAL_SET/v.txt",
        data_stores=(s3.store(path="sub"), second),
    )
    ground.ends(job_id)

    assert ground.output(job_id) == "more.txt\nval\nval\n"


def test_what_was_brought_in_is_recorded_with_its_fingerprint(ground: Ground, s3: Server) -> None:
    job_id = ground.submit("true", data_stores=(s3.store(),))
    ground.ends(job_id)

    (data,) = document(ground.learner(job_id).path / "data.json")["stores"]  # type: ignore[misc]
    assert (data["files"], data["bytes"], data["path"]) == (2, 14, "tf_training_data")  # type: ignore[has-type]
    assert len(data["fingerprint"]) == 64  # type: ignore[has-type]
    assert progress(ground.store, job_id)


def test_credentials_are_nowhere_but_in_the_files_of_secrets(own_ground: Ground, s3: Server) -> None:
    connection = {"password": "${secret:data_stores.0.connection.password}"}
    job_id = own_ground.submit(
        f"env; cat /proc/$PPID/cmdline | tr '\\0' ' '; echo {SECRET[:10]}; {SAVE}",
        data_stores=(s3.store(connection=connection),),
        secret_values={"data_stores.0.connection.password": SECRET},
    )
    own_ground.ends(job_id)

    assert (s3.results(job_id) / "model.bin").exists()
    held = [
        path
        for path in own_ground.home.path.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert [path.parent.name for path in held] == ["secrets"]
    stored = [
        path for path in s3.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert stored == []


WRONG: Final[Sequence[tuple[dict[str, object], str, str]]] = (
    ({"connection": {"password": "wrong-password"}}, "does not accept the credentials", "user_name"),
    ({"training_data": "nope"}, "has no container nope", "there are: tf_trained_model, tf_training_data"),
    ({"training_results": "nope"}, "has no container nope", "there are: tf_trained_model"),
    ({"path": "not/there"}, "has no folder not/there in tf_training_data", "check path:"),
)


def test_what_cannot_work_is_found_before_the_command_starts(ground: Ground, s3: Server) -> None:
    jobs = [ground.submit("echo it started", data_stores=(s3.store(**fields),)) for fields, _, _ in WRONG]

    for job_id, (fields, words, hint) in zip(jobs, WRONG, strict=True):
        row = ground.ends(job_id)
        assert (row.state, row.reason.code, row.exit_code) == (State.FAILED, "C103", 77), fields
        assert words in row.reason.text
        assert hint in row.reason.hint
        assert ground.output(job_id) == ""


def test_a_store_whose_results_cannot_be_written_is_found_before_the_training(
    ground: Ground, tmp_path: Path
) -> None:
    for server in serving("webdav", tmp_path / "dav", "--read-only"):
        job_id = ground.submit("echo it started", data_stores=(server.store(),))
        row = ground.ends(job_id)

    assert (row.state, row.reason.code) == (State.FAILED, "C103"), row.reason
    assert "lets nothing be written" in row.reason.text
    assert ground.output(job_id) == ""

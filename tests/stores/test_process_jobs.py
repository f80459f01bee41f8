"""A process job with data stores: data before the command starts, results in the store when it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.controller.real import Ground
from tests.controller.waiting import wait_for
from tests.stores.servers import SECRET, Server
from workbench.job import State
from workbench.metrics import progress
from workbench.store.reading import transitions

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
    job_id = ground.submit(f"{SAVE}; echo said; sleep 600", data_stores=(s3.store(),), upload_seconds=0.3)

    results = s3.results(job_id)
    wait_for((results / "model.bin").exists, seconds=40)
    wait_for((results / "learner-1" / "output.log").exists, seconds=40)
    assert ground.row(job_id).state is State.PROCESSING
    ground.ask(job_id, "kill")
    ground.ends(job_id)


def test_a_second_job_takes_the_same_copy(ground: Ground, s3: Server) -> None:
    command = (
        "echo $DATA_DIR; test ! -w $DATA_DIR/train.txt || test $(id -u) = 0; stat -c %a $DATA_DIR/train.txt"
    )
    first = ground.submit(command, data_stores=(s3.store(),))
    ground.ends(first)
    second = ground.submit(command, data_stores=(s3.store(),))
    ground.ends(second)

    assert ground.output(first) == ground.output(second)
    assert ground.output(first).endswith("444\n")


def test_data_that_changed_is_another_copy(ground: Ground, s3: Server) -> None:
    first = ground.submit("cat $DATA_DIR/train.txt", data_stores=(s3.store(),))
    ground.ends(first)
    s3.write("tf_training_data/train.txt", "other\n")
    second = ground.submit("cat $DATA_DIR/train.txt", data_stores=(s3.store(),))
    ground.ends(second)

    assert (ground.output(first), ground.output(second)) == ("one\ntwo\n", "other\n")


def test_a_copy_that_somebody_damaged_is_made_anew(ground: Ground, s3: Server) -> None:
    first = ground.submit("echo $DATA_DIR", data_stores=(s3.store(),))
    ground.ends(first)
    (Path(ground.output(first).strip()) / "train.txt").unlink()
    second = ground.submit("cat $DATA_DIR/train.txt", data_stores=(s3.store(),))

    assert ground.ends(second).state is State.COMPLETED
    assert ground.output(second) == "one\ntwo\n"


def test_several_stores_are_named_by_number_and_by_id(ground: Ground, s3: Server) -> None:
    s3.write("val_data/v.txt", "val\n")
    second = s3.store(id="val-set", training_data="val_data", training_results="")
    job_id = ground.submit(
        "cat $DATA_DIR/sub/more.txt $DATA_DIR_1/v.txt $DATA_DIR_VAL_SET/v.txt",
        data_stores=(s3.store(), second),
    )
    ground.ends(job_id)

    assert ground.output(job_id) == "three\nval\nval\n"


def test_a_sub_path_stands_for_the_whole(ground: Ground, s3: Server) -> None:
    job_id = ground.submit("ls $DATA_DIR", data_stores=(s3.store(path="sub"),))
    ground.ends(job_id)

    assert ground.output(job_id) == "more.txt\n"


def test_what_was_brought_in_is_told_with_its_fingerprint(ground: Ground, s3: Server) -> None:
    job_id = ground.submit("true", data_stores=(s3.store(),))
    ground.ends(job_id)

    (data,) = document(ground.learner(job_id).path / "data.json")["stores"]  # type: ignore[misc]
    assert (data["files"], data["bytes"], data["path"]) == (2, 14, "tf_training_data")  # type: ignore[has-type]
    assert len(data["fingerprint"]) == 64  # type: ignore[has-type]
    assert progress(ground.store, job_id)


def test_credentials_are_nowhere_but_in_the_files_of_secrets(ground: Ground, s3: Server) -> None:
    connection = {"password": "${secret:data_stores.0.connection.password}"}
    job_id = ground.submit(
        f"env; cat /proc/$PPID/cmdline | tr '\\0' ' '; echo {SECRET[:10]}; {SAVE}",
        data_stores=(s3.store(connection=connection),),
        secret_values={"data_stores.0.connection.password": SECRET},
    )
    ground.ends(job_id)

    assert (s3.results(job_id) / "model.bin").exists()
    held = [
        path
        for path in ground.home.path.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert [path.parent.name for path in held] == ["secrets"]
    stored = [
        path for path in s3.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert stored == []


@pytest.mark.parametrize(
    ("fields", "code", "words", "hint"),
    [
        (
            {"connection": {"password": "wrong-password"}},
            "C103",
            "does not accept the credentials",
            "user_name",
        ),
        (
            {"training_data": "nope"},
            "C103",
            "has no container nope",
            "there are: tf_trained_model, tf_training",
        ),
        ({"training_results": "nope"}, "C103", "has no container nope", "there are: tf_trained_model"),
        ({"path": "not/there"}, "C103", "has no folder not/there in tf_training_data", "check path:"),
    ],
)
def test_what_cannot_work_is_found_before_the_command_starts(
    ground: Ground, s3: Server, fields: dict[str, object], code: str, words: str, hint: str
) -> None:
    job_id = ground.submit("echo it started", data_stores=(s3.store(**fields),))

    row = ground.ends(job_id)

    assert (row.state, row.reason.code, row.exit_code) == (State.FAILED, code, 65)
    assert words in row.reason.text
    assert hint in row.reason.hint
    assert ground.output(job_id) == ""


def test_a_store_whose_results_cannot_be_written_is_found_before_the_training(
    ground: Ground, tmp_path: Path
) -> None:
    from tests.stores.servers import serving

    for server in serving("webdav", tmp_path / "dav", "--read-only"):
        job_id = ground.submit("echo it started", data_stores=(server.store(),))
        row = ground.ends(job_id)

    assert (row.state, row.reason.code) == (State.FAILED, "C103"), row.reason
    assert "lets nothing be written" in row.reason.text
    assert ground.output(job_id) == ""

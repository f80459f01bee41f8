"""Jobs that come after others: ``--after``, several documents in one file, results that are another's data."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.support.command import Fabric
from tests.support.waiting import until
from workbench.job import TERMINAL

CHAIN = """\
name: prepare
framework: {name: custom, command: 'echo data > $RESULT_DIR/d.txt; exit ${params.code}'}
params: {code: 0}
---
name: train
framework: {name: custom, command: 'cat $DATA_DIR/d.txt'}
data_stores:
- {type: job, training_data: {container: prepare}}
---
name: report
after: 'train:ended'
framework: {name: custom, command: 'echo reported'}
"""


def states(fabric: Fabric) -> dict[str, str]:
    return {row["name"]: row["state"] for row in fabric.json("list", "--json")}


def test_documents_of_one_file_run_one_after_the_other_with_their_results(fabric: Fabric) -> None:
    (fabric.folder / "chain.yml").write_text(CHAIN)

    ran = fabric("run", "chain.yml")

    assert states(fabric) == dict.fromkeys(("prepare", "train", "report"), "COMPLETED")
    assert fabric("logs", "train").stdout == "data\n"
    times = [fabric.json("show", name, "--json") for name in ("prepare", "train", "report")]
    for before, after in pairwise(times):
        assert before["ended"] <= after["started"]
    assert "3 jobs: 3 completed" in ran.stderr


def test_a_failed_parent_gives_the_child_a_reason_and_others_may_go_on(fabric: Fabric) -> None:
    (fabric.folder / "chain.yml").write_text(CHAIN)

    fabric("run", "-q", "chain.yml", "--set", "params.code=3", expect=3)

    assert states(fabric) == {"prepare": "FAILED", "train": "FAILED", "report": "COMPLETED"}
    train = fabric.json("show", "train", "--json")
    assert train["reason"].startswith("it comes after ")
    assert "prepare, which failed: the command failed with exit code 3" in train["reason"]
    assert train["reason_code"] == "C105"
    assert train["exit_code"] == 65


def test_a_child_waits_for_a_job_that_runs_and_says_so(fabric: Fabric) -> None:
    fabric("run", "-d", "--name", "first", "--", "while [ ! -e go ]; do sleep 0.2; done")
    fabric("run", "-d", "--name", "second", "--after", "first", "--", "echo second")

    def waits() -> bool:
        found = fabric.json("show", "second", "--json")
        return (
            "to complete" in found["reason"] and found["state"] == "QUEUED"
        )  # not while it is being prepared

    until(waits, "it to say why")
    folder = fabric.json("show", "first", "--json")["folder"]
    code = Path(folder) / "attempt-1" / "learner-1" / "model-code"
    until(code.is_dir, "the first to be given its code")
    (code / "go").touch()

    fabric("wait", "second", "--timeout", "60")
    assert fabric("logs", "second").stdout == "second\n"


def test_a_child_of_a_job_that_is_killed_or_deleted_fails_with_the_reason(fabric: Fabric) -> None:
    fabric("run", "-d", "--name", "first", "--", "sleep 600")
    for name, mode in (("strict", "completed"), ("mild", "ended")):
        fabric("run", "-d", "--name", name, "--after", f"first:{mode}", "--", "true")

    fabric("kill", "first")
    fabric("wait", "strict", "mild", "--timeout", "60", expect=65)

    assert states(fabric) == {"first": "HALTED", "strict": "FAILED", "mild": "COMPLETED"}
    assert "which was halted" in fabric.json("show", "strict", "--json")["reason"]


def test_a_child_that_failed_for_its_parent_goes_on_once_that_has_completed(fabric: Fabric) -> None:
    (fabric.folder / "flag").write_text("")
    fabric("run", "-q", "--name", "first", "--", "test -e $CHECKPOINT_DIR/mended", expect=1)
    fabric("run", "-d", "-q", "--name", "late", "--after", "first:ended", "--", "true")
    message = fabric("run", "--name", "second", "--after", "first", "--", "true", expect=64).stderr

    assert "did not complete: it is failed" in message
    assert ":ended starts anyway" in message


def test_chains_that_cannot_be_are_refused_and_start_nothing(fabric: Fabric) -> None:
    text = "name: {}\nafter: {}\nframework: {{command: 'true'}}\n"
    for after, message in (("a", "wait for each other: "), ("trian", "did you mean train?")):
        (fabric.folder / "chain.yml").write_text(
            f"{text.format('train', '[]')}---\n{text.format('a', 'b')}---\n{text.format('b', after)}"
        )
        assert message in fabric("run", "chain.yml", expect=64).stderr
    assert fabric.json("list", "--json") == []


def test_an_empty_chain_is_an_empty_manifest(fabric: Fabric) -> None:
    (fabric.folder / "chain.yml").write_text("---\n# nothing\n---\n")

    assert "the manifest is empty" in fabric("run", "chain.yml", expect=65).stderr


def test_a_fault_in_one_document_names_its_line_and_starts_nothing(fabric: Fabric) -> None:
    (fabric.folder / "chain.yml").write_text(CHAIN + "gpus: many\n")

    assert "chain.yml:13:7: " in fabric("run", "chain.yml", expect=65).stderr
    assert fabric.json("list", "--json") == []


def test_documents_that_say_so_start_at_once(fabric: Fabric) -> None:
    text = (
        "name: a\nframework: {command: 'sleep 600'}\n---\nname: b\nafter: []\nframework: {command: 'true'}\n"
    )
    (fabric.folder / "chain.yml").write_text(text)
    fabric("run", "-d", "chain.yml")

    fabric("wait", "b", "--timeout", "60")

    assert states(fabric)["a"] not in TERMINAL
    fabric("kill", "a")

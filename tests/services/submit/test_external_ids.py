"""Code that gives the external ids of an earlier job again is the same trial: it begins with that job's checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.quick.metrics.writing import Records
from tests.services.stored import HERE, submitted
from workbench.job import State, short_id
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import JobSubmission, prepare
from workbench.services.submit.rerun import prepare_rerun
from workbench.services.submit.submit import submit
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.db.schema import OF_EXTERNAL_TRIALS
from workbench.store.queries.jobs import detail
from workbench.store.updates.deletion import mark_deleted

SCRIPT = "from determined.experimental import core_v2\n"
UNKNOWN = (
    "the external ids that its code gives are not known before it runs: it goes on with an earlier trial only with"
    " --from JOB"
)
CONFIG = "core_v2.init(config=core_v2.Config(external_experiment_id={}, external_trial_id={}))\n"
COMMAND = ("python3", "train.py")
ELSEWHERE = TargetRef("lab", "ssh", "process", options={"address": "ssh://lab"})

Trial: TypeAlias = Callable[..., JobRow]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the code."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(SCRIPT + CONFIG.format("'e'", "'t'"))
    return folder


@pytest.fixture
def trial(store: Store) -> Iterator[Trial]:
    """Makes jobs whose code has given external ids, with checkpoints or without."""
    numbers = itertools.count()

    def make(
        experiment: str = "e",
        trial: str = "t",
        *,
        state: State = State.COMPLETED,
        target: TargetRef = HERE,
        saves: int = 2,
    ) -> JobRow:
        row = submitted(store, "name: one\nframework: {command: 'true'}\n", state=state, target=target)
        records = Records(store.home.path / f"records-{next(numbers)}.jsonl")
        records.add("note", text=f"experiment external experiment id: {experiment}")
        records.add("note", text=f"experiment external trial id: {trial}")
        for number in range(1, saves + 1):
            path = store.home.job(row.id).checkpoints / f"step-{number}"
            path.mkdir(parents=True)
            records.add("checkpoint", path=str(path), step=number)
        ingest(store, row.id, 1, 1, records.file)
        return row

    yield make


def prepared(home: Home, *command: str, **options: Any) -> JobSubmission:
    return prepare(RunOptions(command=command or COMMAND, runner="process", **options), home)


def beginning(submission: JobSubmission) -> tuple[str, str] | None:
    """Return the job and the checkpoint that a job begins with."""
    found = submission.recorded.get("from")
    return (found["job"], found["name"]) if found else None


def test_the_newest_checkpoint_of_the_newest_job_with_both_ids_is_begun_with_and_a_note_says_so(
    home: Home, trial: Trial
) -> None:
    trial()
    newest = trial()
    trial(experiment="other")
    trial(trial="other")

    found = prepared(home)

    assert beginning(found) == (newest.id, "step-2")
    assert found.notes[-1] == (
        f"it begins with the checkpoint step-2 of {short_id(newest.id)}, which had the external trial id t, too"
        " (--from none: with none)"
    )


def test_without_such_a_job_it_begins_with_nothing_and_nothing_is_noted(home: Home, trial: Trial) -> None:
    trial(trial="other")
    trial(saves=0)

    found = prepared(home)

    assert beginning(found) is None
    assert len(found.notes) == 1
    assert found.warnings == ()


def test_a_home_without_a_store_has_no_such_job_and_gets_none(home: Home) -> None:
    assert beginning(prepared(home)) is None
    assert not home.database.exists()


def test_jobs_without_a_checkpoint_that_is_left_and_deleted_ones_are_passed_over(
    home: Home, store: Store, trial: Trial
) -> None:
    first = trial()
    gone = trial(saves=1)
    (store.home.job(gone.id).checkpoints / "step-1").rmdir()
    trial(saves=0)
    mark_deleted(store, trial().id)

    assert beginning(prepared(home)) == (first.id, "step-2")


def test_a_job_that_runs_still_is_begun_with_and_the_note_says_so(home: Home, trial: Trial) -> None:
    running = trial(state=State.PROCESSING)

    found = prepared(home)

    assert beginning(found) == (running.id, "step-2")
    assert f"{short_id(running.id)} (PROCESSING), which had" in found.notes[-1]


def test_a_checkpoint_that_the_job_cannot_reach_is_a_warning(home: Home, store: Store, trial: Trial) -> None:
    there = trial(target=ELSEWHERE)
    for step in ("step-1", "step-2"):
        (store.home.job(there.id).checkpoints / step).rmdir()

    found = prepared(home)

    assert beginning(found) is None
    (warning,) = [each for each in found.warnings if "external trial id t" in each]
    assert "is not where the new job can get at it" in warning


def test_from_comes_before_external_ids_and_none_is_nothing(home: Home, trial: Trial) -> None:
    first = trial()
    trial()

    assert beginning(prepared(home, checkpoint=f"{first.id}@1")) == (first.id, "step-1")
    assert beginning(prepared(home, checkpoint="none")) is None
    assert len(prepared(home, checkpoint="none").notes) == 1


def test_a_job_that_is_repeated_begins_where_it_began(
    home: Home, store: Store, trial: Trial, woken: list[Home]
) -> None:
    first = trial()
    job = submit(store, prepared(home), origin="cli")
    trial()

    again = prepare_rerun(store, detail(store, job.id), name="", argv=())

    assert beginning(again) == (first.id, "step-2")


def test_the_manifest_that_is_kept_of_the_command_names_no_trial(
    home: Home, folder: Path, trial: Trial
) -> None:
    trial()
    (folder / "kept.yml").write_text(prepared(home).loaded.text)

    assert beginning(prepare(RunOptions(manifest="kept.yml", runner="process"), home)) is None


def test_a_script_behind_a_launcher_is_read_too(home: Home, trial: Trial) -> None:
    job = trial()

    found = prepared(
        home, "python3", "-m", "determined.launch.torch_distributed", "--", "python3", "train.py"
    )

    assert beginning(found) == (job.id, "step-2")


def give(folder: Path, lines: str, experiment: str, trial: str) -> None:
    """Have the script give external ids by these expressions, after some lines of its own."""
    (folder / "train.py").write_text(f"{SCRIPT}{lines}\n{CONFIG.format(experiment, trial)}")


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        ("TRIAL = 't'", ("'e'", "TRIAL")),
        ("TRIAL: str = 't'", ("'' 'e'", "TRIAL")),
        ("A = 'e'\nB = f'{A}'", ("B", "f't'")),
        ("import os", ("os.environ['ONE']", "'t'")),
        ("import os", ("os.environ.get('ONE')", "os.getenv('TWO', 'x')")),
        ("import os\nTRIAL = os.environ['TWO']", ("f'{os.environ[\"ONE\"]}'", "f'{TRIAL}'")),
        ("", ("'e', labels=['x']", "'t', name='y'")),
        ("def other(self):\n    self.TRIAL = 1\n    return f(TRIAL=2)\nTRIAL = 't'", ("'e'", "TRIAL")),
        ("core_v2.DefaultConfig(name='x', labels=[])", ("'e'", "'t'")),
        ("core_v2.Config(external_experiment_id='e', external_trial_id='t')", ("'e'", "'t'")),
    ],
)
def test_ids_are_read_from_texts_constants_and_variables_of_the_job(
    home: Home, folder: Path, trial: Trial, lines: str, ids: tuple[str, str]
) -> None:
    job = trial()
    give(folder, lines, *ids)

    assert beginning(prepared(home, environment=("ONE=e", "TWO=t"))) == (job.id, "step-2")


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        ("TRIAL = 'x'\nTRIAL = 't'", ("'e'", "TRIAL")),
        ("if True:\n    TRIAL = 't'", ("'e'", "TRIAL")),
        ("TRIAL = 't'\ndef go(TRIAL):\n    pass", ("'e'", "TRIAL")),
        ("TRIAL = 't'\nfrom others import TRIAL", ("'e'", "TRIAL")),
        ("TRIAL = 't'\ndef go():\n    global TRIAL", ("'e'", "TRIAL")),
        ("TRIAL = 't'\nfor TRIAL in others: pass", ("'e'", "TRIAL")),
        ("TRIAL = other = 't'", ("'e'", "TRIAL")),
        ("A = B = 'e'\nB = A", ("B", "'t'")),
        ("", ("'e'", "TRIAL")),
        ("", ("'e'", "None")),
        ("", ("'e'", "'' + 't'")),
        ("", ("'e'", "str('t')")),
        ("", ("'e'", "f'{\"t\"!s}'")),
        ("", ("'e'", "f'{\"t\":s}'")),
        ("", ("b'e'", "'t'")),
        ("import os", ("'e'", "os.environ['ABSENT']")),
        ("import os", ("'e'", "os.environ.get('ABSENT', 't')")),
        ("import os", ("'e'", "os.environ[TWO]")),
        ("import os", ("'e'", "os.environ['SECRET']")),
        ("import os", ("'e'", "others.environ['TWO']")),
        ("core_v2.Config(external_experiment_id='e', external_trial_id='x')", ("'e'", "'t'")),
        ("core_v2.Config(external_experiment_id='e')", ("'e'", "'t'")),
        ("core_v2.Config(external_experiment_id='e', external_trial_id=x)", ("'e'", "'t'")),
    ],
)
def test_other_ids_are_not_known_and_no_job_is_looked_for(
    home: Home, folder: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch, lines: str, ids: tuple[str, str]
) -> None:
    trial()
    give(folder, lines, *ids)
    monkeypatch.setenv("SECRET", "t")
    monkeypatch.setenv("ABSENT", "t")

    found = prepared(home, environment=("TWO=t", "SECRET"))

    assert beginning(found) is None
    assert found.notes[1:] == (UNKNOWN,)


def test_one_of_the_two_ids_alone_means_no_trial(home: Home, folder: Path, trial: Trial) -> None:
    trial()
    (folder / "train.py").write_text(f"{SCRIPT}core_v2.Config(external_trial_id='t')\n")

    found = prepared(home)

    assert beginning(found) is None
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("lines", "notes"),
    [
        ("core_v2.Config(**more)", ()),
        ("core_v2.Config(external_trial_id='t', **more)", (UNKNOWN,)),
        (
            "core_v2.Config(external_experiment_id='e', external_trial_id='t')\ncore_v2.Config(**more)",
            (UNKNOWN,),
        ),
        ("core_v2.Config(external_experiment_id='e', external_trial_id='t')", ()),
    ],
)
def test_a_note_says_that_ids_are_not_known_where_the_script_gives_some(
    home: Home, folder: Path, lines: str, notes: tuple[str, ...]
) -> None:
    (folder / "train.py").write_text(f"{SCRIPT}{lines}\n")

    assert prepared(home).notes[1:] == notes


def test_a_process_here_has_what_is_passed_along_unless_its_command_sets_it(
    home: Home, folder: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = trial()
    give(folder, "import os", "'e'", "os.environ['LANG']")
    monkeypatch.setenv("LANG", "t")

    assert beginning(prepared(home)) == (job.id, "step-2")
    assert beginning(prepared(home, "LANG=x python3 train.py")) is None
    monkeypatch.setenv("LANG", "x")
    assert beginning(prepared(home, environment=("LANG=t",))) == (job.id, "step-2")


def test_ids_that_no_reader_can_hold_are_those_that_are_noted(home: Home, folder: Path, trial: Trial) -> None:
    job = trial(trial="\\ud800\\x07")
    give(folder, "", "'e'", "'\\ud800\\x07'")

    found = prepared(home)

    assert beginning(found) == (job.id, "step-2")
    assert "the external trial id \\ud800\\x07, too" in found.notes[-1]


def test_different_ids_in_one_script_mean_no_trial(home: Home, folder: Path, trial: Trial) -> None:
    trial()
    trial(trial="x")
    give(folder, "core_v2.Config(external_experiment_id='e', external_trial_id='x')", "'e'", "'t'")

    assert beginning(prepared(home)) is None


def test_jobs_of_a_trial_are_found_by_an_index_that_such_a_note_makes(store: Store, trial: Trial) -> None:
    assert not store.has_table("notes_of_trials")

    trial()

    assert store.has_table("notes_of_trials")
    sql = f"EXPLAIN QUERY PLAN SELECT job_id FROM notes WHERE text = ? AND {OF_EXTERNAL_TRIALS}"
    ((*_, plan),) = store.rows(sql, ("experiment external trial id: t",))
    assert "USING COVERING INDEX notes_of_trials" in plan


NAMED = 'import os\nRUN = os.environ["RUN"]\n' + SCRIPT + CONFIG.format("'e'", "RUN")


@pytest.mark.parametrize(
    "change",
    [
        'os.environ["RUN"] = "x"',
        'os.environ.setdefault("RUN", "x")',
        'os.environ.pop("RUN", None)',
        'del os.environ["RUN"]',
        'os.environ.update({"RUN": "x"})',
        'os.environ.update(RUN="x")',
        'os.environ |= {"RUN": "x"}',
        'os.environ[name()] = "x"',
        'os.putenv("RUN", "x")',
        'from os import environ\nenviron["RUN"] = "x"',
    ],
)
def test_a_variable_that_the_script_changes_is_not_known(
    change: str, home: Home, folder: Path, trial: Trial
) -> None:
    trial()
    (folder / "train.py").write_text(f"import os\n{change}\n{NAMED}")

    assert beginning(prepared(home, environment=("RUN=t",))) is None


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["OTHER"] = "x"',
        "found = {**os.environ, 'RUN': 'x'}",
        'os.environ.setdefault("OTHER", "x")',
        'print(os.environ.get("RUN"))',
        "X = df" + ".filter('b')" * 300,
        "X = " + "(" * 80 + "1" + ")" * 80,
    ],
)
def test_a_script_that_leaves_a_variable_is_read_with_it(
    line: str, home: Home, folder: Path, trial: Trial
) -> None:
    row = trial()
    (folder / "train.py").write_text(f"{NAMED}{line}\n")

    found = prepared(home, environment=("RUN=t",))

    assert found.loaded.spec.env["RUN"] == "t"
    assert beginning(found) == (row.id, "step-2")


def test_ids_beside_a_config_whose_keys_are_not_known_are_not_known(
    home: Home, folder: Path, trial: Trial
) -> None:
    trial()
    known = SCRIPT + CONFIG.format("'e'", "'t'")
    (folder / "train.py").write_text(f"{known}core_v2.Config(**found())\n")

    assert beginning(prepared(home)) is None

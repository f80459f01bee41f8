"""Records on their way into the store: soon, in batches, all of them, whoever wrote them."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.quick.controller.values import JOB, row, spec
from tests.support.waiting import patience, until
from workbench.controller.decide.messages import Event, JournalsDrained
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.runtime.secrets import write_secrets
from workbench.controller.targets.ingest import JournalIngestion
from workbench.errors import TryAgain
from workbench.job import State
from workbench.learner.boot.sh_launch import agent_script, guard_argv, render, render_secrets
from workbench.learner.journal.output import published_end
from workbench.metrics import points, series
from workbench.metrics.records import RecordBatch, read_records
from workbench.paths import Home, LearnerFolder
from workbench.store.db.database import Store
from workbench.store.db.rows import JobDetail
from workbench.store.updates.jobs import insert_job


class Desk:
    """A home with one job, and the thread that takes its records in."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.store = Store.open(home)
        queued = row(State.QUEUED)
        insert_job(
            self.store,
            JobDetail(row=queued, spec=spec(), manifest_text="", origins={}, code_hash="", recorded={}),
        )
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.log = ControllerLog(home.controller_log)
        self.journals = JournalIngestion(home, self.events.put, self.log, threading.Lock())
        self.journals.start()
        self.learner(1).path.mkdir(parents=True)

    def learner(self, number: int) -> LearnerFolder:
        return self.home.job(JOB).attempt(1).learner(number)

    def record(self, *records: dict[str, object]) -> None:
        with self.learner(1).records.open("a") as stream:
            for one in records:
                stream.write(json.dumps(one) + "\n")

    def values(self, name: str) -> list[float | None]:
        found = [one for one in series(self.store, JOB) if one.name == name]
        return [point.value for one in found for point in points(self.store, one.id)]

    def close(self) -> None:
        self.journals.end()
        self.log.close()
        self.store.close()


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    made = Desk(home)
    yield made
    made.close()


def loss(seq: int, *values: float) -> dict[str, object]:
    steps = list(range(len(values)))
    return {
        "seq": seq, "time": seq, "kind": "metrics", "source": "test", "group": "", "subid": "", "steps": steps,
        "times": [seq] * len(values), "values": {"loss": list(values)}, "etimes": {}, "texts": {},
    }  # fmt: skip


def usage(seq: int) -> dict[str, object]:
    return {
        "seq": seq,
        "time": seq,
        "kind": "usage",
        "cpu_percent": 1.0,
        "memory_bytes": 5,
        "processes": 1,
        "gpus": [],
    }


def test_what_is_recorded_is_in_the_store_soon_also_from_a_file_that_comes_later(desk: Desk) -> None:
    desk.journals.follow(JOB, 1, 1)
    desk.record({"format": 1}, loss(1, 0.5))
    until(lambda: desk.values("loss") == [0.5])
    desk.record(loss(2, 0.25, 0.125))
    until(lambda: len(desk.values("loss")) >= 3)

    assert desk.values("loss") == [0.5, 0.25, 0.125]


def test_draining_takes_all_there_is_and_tells_so_also_where_there_is_nothing(desk: Desk) -> None:
    desk.record({"format": 1}, *(loss(n, *[float(n)] * 50) for n in range(1, 2001)), usage(2001))
    desk.journals.drain(JOB, 1, 2)

    assert desk.events.get(timeout=patience()) == JournalsDrained(JOB, 1)
    assert len(desk.values("loss")) == 100_000


def test_usage_alone_is_taken_in_late_and_metrics_at_once(desk: Desk) -> None:
    desk.record({"format": 1}, usage(1))
    desk.journals.follow(JOB, 1, 1)
    until(lambda: len(desk.values("cpu_percent")) == 1)
    before = desk.store.data_version()
    desk.record(usage(2))
    desk.record(usage(3))
    assert desk.store.data_version() == before
    desk.record(loss(4, 1.0))

    until(lambda: desk.values("loss") == [1.0])
    assert len(desk.values("cpu_percent")) == 3


def test_records_of_a_newer_format_hold_up_nobody(desk: Desk) -> None:
    desk.record({"format": 99}, loss(1, 0.5))
    desk.journals.drain(JOB, 1, 1)

    assert desk.events.get(timeout=patience()) == JournalsDrained(JOB, 1)
    assert "left alone" in desk.home.controller_log.read_text()


def test_a_fault_with_one_learners_records_holds_up_neither_its_end_nor_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: Path, *rest: int, **limits: int) -> RecordBatch:
        if file == desk.learner(2).records:
            raise RuntimeError("odd")
        return read_records(file, *rest, **limits)

    monkeypatch.setattr("workbench.metrics.ingestion.read_records", fail)
    desk.learner(2).path.mkdir()
    desk.learner(2).records.write_text('{"format": 1}\n')
    desk.record({"format": 1}, loss(1, 0.5))
    desk.journals.follow(JOB, 1, 2)
    until(lambda: desk.values("loss") == [0.5])
    desk.record(loss(2, 0.25))
    desk.journals.drain(JOB, 1, 2)

    assert desk.events.get(timeout=patience()) == JournalsDrained(
        JOB, 1, "records of learner 2 could not be taken in: RuntimeError: odd"
    )
    assert desk.values("loss") == [0.5, 0.25]


def test_a_store_that_takes_nothing_holds_a_jobs_end_only_so_long_and_then_takes_all(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = threading.Event()

    def fail(file: Path, *rest: int, **limits: int) -> RecordBatch:
        if not mended.is_set():
            raise TryAgain("the store is locked by another process")
        return read_records(file, *rest, **limits)

    monkeypatch.setattr("workbench.metrics.ingestion.read_records", fail)
    monkeypatch.setattr("workbench.controller.targets.ingest.PATIENCE_SECONDS", 0.5)
    desk.record({"format": 1}, loss(1, 0.5))
    desk.journals.drain(JOB, 1, 1)

    event = desk.events.get(timeout=patience())
    assert isinstance(event, JournalsDrained) and "locked by another process" in event.trouble
    desk.journals.drop(JOB)  # the job has ended
    mended.set()
    until(lambda: desk.values("loss") == [0.5])
    assert desk.events.empty()


def test_what_is_dropped_is_followed_no_more(desk: Desk) -> None:
    desk.journals.follow(JOB, 1, 1)
    desk.record({"format": 1}, loss(1, 0.5))
    until(lambda: desk.values("loss") == [0.5])
    desk.journals.drop(JOB)
    shutil.rmtree(desk.home.job(JOB).path)
    desk.journals.drain("training-bcdefghjk", 1, 1)

    assert desk.events.get(timeout=patience()) == JournalsDrained("training-bcdefghjk", 1)


@pytest.fixture
def sh_learner(desk: Desk, tmp_path: Path) -> LearnerFolder:
    """A learner that the ``sh`` agent keeps: it prints metrics and a secret."""
    folder = desk.learner(1)
    metrics = {
        "type": "regex_extractor", "source": "", "line_lookahead": 4, "event_types": [],
        "groups": {"g": {
            "regex": "loss (?P<loss>[0-9.]+)", "time": "", "subid": "",
            "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}}, "etimes": {},
        }},
    }  # fmt: skip
    launch = {
        "format": 1, "home": "h", "owner": "me", "job": JOB, "attempt": 1, "learner": 1, "learners": 1,
        "command": 'echo "loss 0.5"; echo "token $TOKEN"; echo "loss 0.25"', "setup": "echo setup $TOKEN",
        "shell": "sh", "cwd": str(tmp_path), "env": {"PATH": "/usr/bin:/bin"}, "attempt_dir": str(folder.path.parent),
        "log_dir": str(tmp_path), "log_dir_shared": False, "metrics": metrics,
    }  # fmt: skip
    secrets = {"TOKEN": "hunter2-hunter2"}
    write_secrets(desk.home, JOB, secrets)
    (tmp_path / "agent.sh").write_text(agent_script())
    (tmp_path / "secrets.sh").write_text(render_secrets(secrets))
    folder.launch.write_text(json.dumps(launch))
    folder.launch_sh.write_text(
        render(launch, learner_dir=str(folder.path), secrets_file=str(tmp_path / "secrets.sh"))
    )
    return folder


def test_the_journal_of_an_sh_agents_learner_is_made_here_secrets_struck_out(
    desk: Desk, sh_learner: LearnerFolder, tmp_path: Path
) -> None:
    desk.journals.follow(JOB, 1, 1)
    argv = guard_argv(str(tmp_path / "agent.sh"), str(sh_learner.path))
    subprocess.run(
        argv, check=True, timeout=patience(), stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"}
    )
    until(lambda: desk.values("g/loss") == [0.5, 0.25], lambda: desk.home.controller_log.read_text())
    desk.journals.drain(JOB, 1, 1)

    assert desk.events.get(timeout=patience()) == JournalsDrained(JOB, 1)
    assert sh_learner.output.read_text() == "loss 0.5\ntoken ***************\nloss 0.25\n"
    assert published_end(str(sh_learner.index)) == sh_learner.output.stat().st_size
    assert b"hunter2" not in b"".join(
        file.read_bytes() for file in sh_learner.path.iterdir() if file.is_file()
    )

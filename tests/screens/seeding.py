"""Homes with jobs, journals and metrics, made through the real store, at fixed times."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from workbench.job import ID_ALPHABET, JobId, Reason, State
from workbench.metrics.ingestion import ingest
from workbench.paths import Home, LearnerFolder
from workbench.services.backends.inventory import HostAnswer
from workbench.spec import DataStore, Framework, JobSpec
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import JobDetail, JobRow, TargetRef
from workbench.store.history.projection import at_least
from workbench.store.queries.jobs import job
from workbench.store.updates.jobs import insert_job, set_reason, step

NOW_US = 1_767_366_245_000_000
"""2026-01-02 15:04:05 UTC: the time that the screens of tests show."""
SECOND_US = 1_000_000
SEARCH_JOBS = 500
"""The numbers of the jobs of a search's trials come behind this one."""


def job_id(number: int) -> JobId:
    """Return an id that is the same in every run."""
    body = hashlib.sha256(str(number).encode()).digest()[:9]
    return JobId("training-" + "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in body))


def add_job(
    store: Store,
    number: int,
    name: str = "digits",
    *,
    age_seconds: float = 600.0,
    learners: int = 1,
    gpus: int = 0,
    cpus: float | None = None,
    memory_bytes: int | None = None,
    backend: str = "local",
    backend_type: str = "local",
    runner: str = "process",
    tags: tuple[str, ...] = (),
    command: str = "python train.py",
    params: Mapping[str, float | str] | None = None,
    code_hash: str = "c0de" * 16,
    sweep: str = "",
    parent: str | None = None,
    trial: int | None = None,
    data_stores: tuple[DataStore, ...] = (),
    manifest: str = "",
    origins: Mapping[str, str] | None = None,
) -> JobRow:
    """Submit a job as it was so many seconds ago; it waits."""
    submitted = NOW_US - int(age_seconds * SECOND_US)
    spec = JobSpec(
        name=name,
        framework=Framework("pytorch", "2.5", command),
        learners=learners,
        gpus=gpus,
        cpus=cpus,
        memory_bytes=memory_bytes,
        params={"lr": 0.1} if params is None else params,
        data_stores=data_stores,
    )
    row = JobRow(
        id=job_id(number),
        name=name,
        reason=Reason("waits for the controller"),
        target=TargetRef(backend, backend_type, runner),
        owner="ada",
        submitted_us=submitted,
        changed_us=submitted,
        learners=learners,
        gpus=gpus,
        cpus=cpus,
        memory_bytes=memory_bytes,
        labels={"sweep": sweep} if sweep else {},
        parent=parent,
        trial=trial,
        tags=tags,
    )
    recorded = {
        "fabric": "0.1.0",
        "python": "/usr/bin/python3",
        "cwd": "/home/ada/digits",
        "git": {"commit": "0123456789abcdef", "branch": "main", "dirty": True},
    }
    origins = dict(origins or {"name": "manifest.yml:1"})
    detail = JobDetail(row, spec, manifest or f"name: {name}\n", origins, code_hash, recorded)
    return insert_job(store, detail, who="ada@box", origin="cli")


def waiting_jobs(store: Store) -> tuple[JobRow, JobRow, JobRow]:
    """Make three jobs that wait: two for GPUs of a host, one for its time."""
    why = (
        "waits for 2 GPUs, 2nd of 3: resnet-wide holds 8 of 8 GPUs; enough is free by about 16:20 (max_runtime)",
        "waits behind resnet-seed-2, which goes first",
        "waits until 22:00",
    )
    far: dict[str, Any] = {"gpus": 2, "backend": "gpubox", "backend_type": "ssh"}
    with store.atomic():
        made = (
            add_job(store, 1, "resnet-seed-2", age_seconds=400, **far),
            add_job(store, 2, "resnet-seed-3", age_seconds=300, **far),
            add_job(store, 3, "nightly", age_seconds=200),
        )
        for row, text in zip(made, why, strict=True):
            set_reason(store, row.id, Reason(text))
    return made


def host_queue(home: Home, numbers: Sequence[int]) -> HostAnswer:
    """Return what a host says where somebody else's job waits first, and then these of a home."""
    entries = [{"home": "another", "job": "training-another", "owner": "eve", "gpus": 4}]
    uuid = home_uuid(home)
    entries += [{"home": uuid, "job": job_id(number), "owner": "ada", "gpus": 2} for number in numbers]
    ranked = [{**one, "place": at, "of": len(entries)} for at, one in enumerate(entries, start=1)]
    return HostAnswer(ranked, is_known=True)


def go(
    store: Store, row: JobRow, *states: State, reason: Reason | None = None, every: float = 5.0, **last: Any
) -> JobRow:
    """Take a job through states, so many seconds apart; what is given besides belongs to the last step."""
    current = job(store, row.id)
    assert current is not None
    time_us = max(current.changed_us, row.submitted_us)
    for index, state in enumerate(states):
        time_us += int(every * SECOND_US)
        final = index == len(states) - 1
        why = reason if final and reason else Reason("")
        step(store, row.id, current.attempt, state, why, time_us=time_us, **(last if final else {}))
    found = job(store, row.id)
    assert found is not None
    return found


TRACEBACK = b"""Traceback (most recent call last):
  File "train.py", line 7, in <module>
RuntimeError: CUDA out of memory
"""
RUN_UP = (State.PENDING, State.DOWNLOADING, State.PROCESSING)


class JournalWriter:
    """Writes a learner's output as its agent does: bytes, then the index entry that publishes them."""

    def __init__(self, folder: LearnerFolder, start_us: int) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.time_us = start_us
        self._end = 0
        self._newlines = 0
        folder.index.write_bytes(struct.pack("<8sQQ", b"FABRIDX1", start_us, 0))
        folder.output.touch()

    def write(self, data: bytes, *, seconds: float = 0.5) -> None:
        """Print some bytes, so many seconds after the last ones."""
        self.time_us += int(seconds * SECOND_US)
        with self.folder.output.open("ab") as stream:
            stream.write(data)
        self._end += len(data)
        self._newlines += data.count(b"\n")
        with self.folder.index.open("ab") as stream:
            stream.write(struct.pack("<QQQ", self._end, self.time_us, self._newlines))

    def ended(self) -> None:
        """Say that the learner has exited."""
        self.folder.state.write_text(json.dumps({"format": 1, "phase": "exited", "exit_code": 0}))


def journal(home: Home, row: JobRow, *, learner: int = 1) -> JournalWriter:
    """Begin a learner's journal of a job's last attempt."""
    return JournalWriter(
        home.job(row.id).attempt(row.attempt).learner(learner), row.started_us or row.submitted_us
    )


def report(
    store: Store,
    row: JobRow,
    values: Mapping[str, Sequence[float | None]],
    *,
    learner: int = 1,
    group: str = "train",
    etimes: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Report metrics at steps 1, 2, ... through the journal's records, and take them in."""
    folder = store.home.job(row.id).attempt(row.attempt).learner(learner)
    folder.path.mkdir(parents=True, exist_ok=True)
    length = len(next(iter(values.values())))
    start = row.started_us or row.submitted_us
    records = [
        {"format": 1, "agent": "0", "home": "", "job": row.id, "attempt": row.attempt, "learner": learner,
         "time_us": start, "boottime_us": 0},
        {"seq": 1, "time": start, "kind": "metrics", "source": "report", "group": group, "subid": "",
         "steps": list(range(1, length + 1)), "times": [start + i * SECOND_US for i in range(length)],
         "values": {name: list(column) for name, column in values.items()},
         "etimes": {name: list(column) for name, column in (etimes or {}).items()}, "texts": {}},
        {"seq": 2, "time": start, "kind": "usage", "cpu_percent": 180.0, "memory_bytes": 1 << 30, "processes": 3,
         "gpus": []},
        {"seq": 3, "time": start, "kind": "progress", "fraction": 0.5, "text": "epoch 5/10"},
        {"seq": 4, "time": start, "kind": "checkpoint", "path": "checkpoints/5.pt", "step": 5,
         "metrics": {"loss": 0.2}, "metadata": {}},
    ]  # fmt: skip
    folder.records.write_text("".join(json.dumps(record) + "\n" for record in records))
    while ingest(store, row.id, row.attempt, learner, folder.records):
        pass


def report_progress(store: Store, row: JobRow, fraction: float, time_us: int, *, seq: int) -> None:
    """Report how much is done by then, and take it in; the first record has the number 1."""
    records = store.home.job(row.id).attempt(row.attempt).learner(1).records
    records.parent.mkdir(parents=True, exist_ok=True)
    with records.open("a") as stream:
        if seq == 1:
            head = {"format": 1, "agent": "0", "home": "", "job": row.id, "attempt": row.attempt, "learner": 1,
                    "time_us": time_us, "boottime_us": 0}  # fmt: skip
            stream.write(json.dumps(head) + "\n")
        record = {"seq": seq, "time": time_us, "kind": "progress", "fraction": fraction, "text": ""}
        stream.write(json.dumps(record) + "\n")
    while ingest(store, row.id, row.attempt, 1, records):
        pass


def busy(count: int) -> list[tuple[float, float, int]]:
    """Return samples of four seconds each that rise and fall: seconds, CPU in percent, bytes of memory."""
    return [
        (4.0 * at, round(200 + 150 * math.sin(at / 9) + 40 * math.sin(at * 2.1), 1), (4 + at // 10) << 30)
        for at in range(count)
    ]


def sample(
    store: Store,
    row: JobRow,
    samples: Sequence[tuple[float, float, int]],
    *,
    learner: int = 1,
    gpus: int = 1,
    slices: int = 0,
    has_network: bool = True,
    hottest: float | None = 92.0,
) -> None:
    """Take in samples of usage: seconds since the start, CPU in percent, bytes of memory; all else follows the CPU.

    An agent of today gives them, one of before not how hot a GPU may get (``hottest``); ``slices`` are of divided
    GPUs, of which the driver knows the memory alone.
    """
    folder = store.home.job(row.id).attempt(row.attempt).learner(learner)
    folder.path.mkdir(parents=True, exist_ok=True)
    start = row.started_us or row.submitted_us
    heat = {} if hottest is None else {"temperature_limit_celsius": hottest}
    known = folder.records.read_text().splitlines() if folder.records.exists() else []
    if not known:
        head = {"format": 1, "agent": "0", "home": "", "job": row.id, "attempt": row.attempt, "learner": learner,
                "time_us": start, "boottime_us": 0}  # fmt: skip
        known = [json.dumps(head)]
    for seconds, cpu, memory in samples:
        known.append(
            json.dumps(
                {
                    "seq": len(known), "time": start + int(seconds * SECOND_US), "kind": "usage", "cpu_percent": cpu,
                    "memory_bytes": memory, "processes": 3, **_traffic(cpu, has_network=has_network),
                    "gpus": [
                        *({"uuid": f"GPU-{number}", "memory_bytes": memory * 4, "utilization_percent": cpu / 4,
                           "temperature_celsius": 40 + cpu / 10, "power_watts": cpu * 1.6,
                           "memory_limit_bytes": 80 << 30, "power_limit_watts": 700.0, **heat}
                          for number in range(gpus)),
                        *({"uuid": f"MIG-{number}", "memory_bytes": memory // 2, "utilization_percent": None,
                           "memory_limit_bytes": 10 << 30} for number in range(slices)),
                    ],
                }
            )
        )  # fmt: skip
    folder.records.write_text("".join(line + "\n" for line in known))
    while ingest(store, row.id, row.attempt, learner, folder.records):
        pass


def _traffic(cpu: float, *, has_network: bool) -> dict[str, float]:
    found = {"disk_read_bytes_per_second": cpu * 2e5, "disk_write_bytes_per_second": cpu * 3e4}
    if has_network:
        found |= {"network_receive_bytes_per_second": cpu * 1e5, "network_send_bytes_per_second": cpu * 9e4}
    return found


def list_processes(home: Home, row: JobRow, *, learner: int = 1, workers: int = 3, now_us: int = 0) -> None:
    """Leave the list of processes of a learner that runs, as its agent does: a shell, Python, and its workers."""
    gib = 1 << 30
    rows: list[dict[str, Any]] = [
        {"pid": 4100, "parent": 4099, "user": "ada", "cpu_percent": 0.0, "memory_bytes": 3 << 20,
         "command": "bash -c python train.py --amp"},
        {"pid": 4101, "parent": 4100, "user": "ada", "cpu_percent": 98.0, "memory_bytes": 9 * gib,
         "gpu_memory_bytes": 61 * gib, "command": "python train.py --amp"},
        *({"pid": 4110 + number, "parent": 4101, "user": "ada", "cpu_percent": 61.0 + number,
           "memory_bytes": gib, "command": "python train.py --amp (loader)"} for number in range(workers)),
    ]  # fmt: skip
    folder = home.job(row.id).attempt(row.attempt).learner(learner)
    folder.path.mkdir(parents=True, exist_ok=True)
    document = {"format": 1, "time": now_us or NOW_US, "processes": rows, "omitted": 0}
    folder.processes.write_text(json.dumps(document) + "\n")


def falling(length: int) -> list[float | None]:
    """Return a loss that falls, with a hole in it."""
    return [
        None if i in (40, 41) else round(2.3 * math.exp(-i / 30) + 0.05 * math.sin(i), 5)
        for i in range(length)
    ]


def three_runs(store: Store) -> list[JobRow]:
    """Make one job that runs, one that failed and one that waits."""
    home = store.home
    done = add_job(store, 1, "mnist-baseline", age_seconds=7200, tags=("baseline",))
    done = go(store, done, *RUN_UP, State.STORING, State.COMPLETED, exit_code=0, exit_by="job")
    report(store, done, {"loss": falling(60), "accuracy": [i / 60 for i in range(60)]})
    writer = journal(home, done)
    writer.write(b"".join(b"epoch %d loss %.4f\n" % (i, 2.3 / (i + 1)) for i in range(60)))
    writer.ended()

    failed = add_job(store, 2, "mnist-big", age_seconds=3600, gpus=1)
    why = Reason("the command ended with 1: CUDA out of memory", "C201", "use a smaller batch")
    failed = go(store, failed, *RUN_UP, State.STORING, State.FAILED, reason=why, exit_code=1, exit_by="job")
    writer = journal(home, failed)
    writer.write(b"starting\nWARNING: batch of 4096 is large\n")
    writer.write(TRACEBACK)
    writer.ended()

    running = add_job(store, 3, "mnist-wide", age_seconds=600, learners=2)
    running = go(store, running, *RUN_UP)
    report(
        store, running, {"loss": falling(100), "accuracy": [i / 100 for i in range(100)], "lr": [0.1] * 100}
    )
    for learner in (1, 2):
        writer = journal(home, running, learner=learner)
        for i in range(20):
            writer.write(b"[%d] step %d loss %.3f\n" % (learner, i, 2.3 / (i + 1)))
    return [done, failed, running]


def many_runs(store: Store, count: int) -> None:
    """Make many jobs at once, as a home has them after a year."""
    states = (State.COMPLETED, State.FAILED, State.HALTED)
    template = add_job(store, 100_000, "template", age_seconds=10_000_000)
    columns = [row[1] for row in store.rows("PRAGMA table_info(jobs)")]
    kept = [
        name for name in columns if name not in ("seq", "id", "name", "state", "submitted_us", "changed_us")
    ]

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(count):
            submitted = NOW_US - (count - number) * 300 * SECOND_US
            yield (
                number + 10,
                job_id(number),
                f"sweep-{number:05}",
                states[number % 3].value,
                submitted,
                submitted,
            )

    with store.atomic():
        names = ", ".join(kept)
        store.executemany(
            f"INSERT INTO jobs (seq, id, name, state, submitted_us, changed_us, {names}) "
            f"SELECT ?, ?, ?, ?, ?, ?, {names} FROM jobs WHERE id = '{template.id}'",
            rows(),
        )
        store.execute("DELETE FROM jobs WHERE id = ?", (template.id,))
    shutil.rmtree(store.home.job(template.id).path)  # else a controller finds it again


def renamed(row: JobRow, name: str) -> JobRow:
    """Return the same job under another name."""
    return replace(row, name=name)


def one_more_point(store: Store, row: JobRow, names: Sequence[str], step_number: int) -> None:
    """Report one more point of some metrics."""
    records = store.home.job(row.id).attempt(row.attempt).learner(1).records
    time_us = (row.started_us or row.submitted_us) + step_number * SECOND_US
    last = json.loads(records.read_bytes().splitlines()[-1])["seq"]
    record = {
        "seq": last + 1, "time": time_us, "kind": "metrics", "source": "report", "group": "train", "subid": "",
        "steps": [step_number], "times": [time_us],
        "values": {name: [1.0 / step_number] for name in names}, "etimes": {}, "texts": {},
    }  # fmt: skip
    with records.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    ingest(store, row.id, row.attempt, 1, records)


def print_and_report(store: Store, rows: Sequence[JobRow]) -> None:
    """Give jobs what a preview shows, a log and a curve, no two alike."""
    for number, row in enumerate(rows, start=1):
        report(store, row, {"loss": [number * math.exp(-at / (10 + number)) for at in range(100)]})
        writer = journal(store.home, row)
        writer.write(b"".join(b"epoch %d loss %.4f\n" % (at, number / (at + 1)) for at in range(60)))
        writer.ended()


@contextmanager
def printing(home: Home, row: JobRow, lines_per_second: int = 1000) -> Iterator[None]:
    """Have a job print lines all the time, no two alike."""
    writer, numbers = journal(home, row), random.Random(20)
    each = max(1, lines_per_second // 20)

    def write() -> None:
        writer.write(b"".join(b"loss %.20f\n" % (numbers.random() * 10**50) for _ in range(each)))

    with _every(each / lines_per_second, write):
        yield


@contextmanager
def working(store: Store) -> Iterator[JobRow]:
    """Have a job that began ten minutes ago by the real clock, and prints a line and reports a point each second."""
    age_seconds = 600 + (NOW_US - time.time_ns() // 1000) / SECOND_US
    at_least(store, "next_job", 100_000)  # the job is listed above those of many_runs
    row = go(store, add_job(store, 99_999, "at-work", age_seconds=age_seconds), *RUN_UP)
    report(store, row, {"loss": falling(600)})
    writer, numbers, step_number = journal(store.home, row), random.Random(20), 500

    def work() -> None:
        nonlocal step_number
        step_number += 1
        writer.write(
            b"step %d loss %.4f samples/s %d\n" % (step_number, numbers.random(), numbers.randint(800, 899))
        )
        if step_number > 600:
            with Store.open(store.home) as own:  # a connection belongs to its thread
                one_more_point(own, row, ("loss",), step_number)

    for _ in range(100):
        work()
    with _every(1.0, work):
        yield row


@contextmanager
def _every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again meanwhile, in a thread."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(seconds):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def many_points(store: Store, row: JobRow, count: int, *, block: int = 100_000) -> None:
    """Report a metric so many times, as blocks of points."""
    records = store.home.job(row.id).attempt(row.attempt).learner(1).records
    records.parent.mkdir(parents=True, exist_ok=True)
    start = row.started_us or row.submitted_us
    values = [round(math.exp(-i / block), 5) for i in range(block)]
    with records.open("w") as stream:
        head = {"format": 1, "agent": "0", "home": "", "job": row.id, "attempt": row.attempt, "learner": 1,
                "time_us": start, "boottime_us": 0}  # fmt: skip
        stream.write(json.dumps(head) + "\n")
        for seq in range(count // block):
            first = seq * block + 1
            stream.write(
                json.dumps(
                    {"seq": seq + 1, "time": start, "kind": "metrics", "source": "report", "group": "train",
                     "subid": "", "steps": list(range(first, first + block)),
                     "times": list(range(start + first, start + first + block)), "values": {"loss": values},
                     "etimes": {}, "texts": {}}
                )
                + "\n"
            )  # fmt: skip
    while ingest(store, row.id, row.attempt, 1, records):
        pass


def search(store: Store, count: int = 12, *, epochs: int = 9, has_jobs: bool = True) -> str:
    """Write down a search by ASHA as the controller does, of which all but two trials have ended; return its id.

    The values of a trial fall to the distance of its learning rate from 0.01, in decades.
    """
    from workbench.store.updates.experiments import catch_up_experiment

    nine = job_id(SEARCH_JOBS).removeprefix("training-")
    experiment = f"experiment-{nine}"
    params = {"lr": {"loguniform": [1e-4, 1.0]}, "optimizer": {"kind": {"choice": ["adam", "sgd"]}}}
    search = {
        "method": "asha", "metric": "val_loss", "time_metric": "epoch", "goal": "minimize", "divisor": 3,
        "max_time": epochs, "max_trials": count + 4, "max_concurrent": 4, "params": params,
    }  # fmt: skip
    folder = store.home.experiment(experiment)
    folder.experiment_file.parent.mkdir(parents=True)
    document = {"format": 1, "seed": 42, "who": "ada@box", "spec": {"name": "digits", "search": search}}
    folder.experiment_file.write_text(json.dumps(document))
    events: list[dict[str, Any]] = [{"do": "submit", "time": NOW_US - 1200 * SECOND_US}]
    for number in range(1, count + 1):
        events += _trial_events(number, count, epochs)
    folder.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    with store.atomic():
        catch_up_experiment(store, experiment)
        for number in range(1, count + 1 if has_jobs else 0):
            rate, kind = _tried(number, count)
            row = add_job(
                store, SEARCH_JOBS + number, f"digits-{number:02}", age_seconds=1100 - 1090 * number // count,
                params={"lr": rate, "optimizer.kind": kind}, sweep=nine, parent=experiment, trial=number,
            )  # fmt: skip
            go(store, row, *RUN_UP, *((State.STORING, State.COMPLETED) if number <= count - 2 else ()))
    return experiment


def _tried(number: int, count: int) -> tuple[float, str]:
    """Return the hyper-parameters of a trial: its learning rate, and its optimizer."""
    return 10.0 ** (-4 + 4 * ((number * 7) % count) / count), ("adam", "sgd")[number % 2]


def _trial_events(number: int, count: int, epochs: int) -> list[dict[str, Any]]:
    """Return the history of a trial: one in three comes to the end, the others stop at the first rung."""
    trial, (rate, kind) = f"trial-{number}", _tried(number, count)
    begun_us = NOW_US - (1100 - 1090 * number // count) * SECOND_US
    hparams = {"lr": rate, "optimizer": {"kind": kind, "momentum": 0.9}}
    create = {"do": "create", "trial": trial, "number": number, "job": job_id(SEARCH_JOBS + number)}
    create |= {"hparams": hparams, "seed": number}
    events: list[dict[str, Any]] = [{"do": "begin", "time": begun_us, "operations": [create]}]
    reach = epochs if number % 3 == 0 else max(1, epochs // 3)
    for epoch in range(1, reach + 1):
        value = round(abs(math.log10(rate) + 2) + 1.0 / epoch + 0.01 * number / count, 4)
        reported = {"do": "report", "trial": trial, "point": epoch, "units": epoch, "value": value}
        events.append({**reported, "metrics": {}, "time": begun_us + epoch * SECOND_US})
    if number <= count - 2:
        ended_us = begun_us + (reach + 1) * SECOND_US
        stop = [{"do": "stop", "trial": trial}] if reach < epochs else []
        events.append({"do": "end", "trial": trial, "how": "completed", "time": ended_us, "operations": stop})
    return events


def remember_runs(store: Store) -> None:
    """Have the app open where the table of runs was left."""
    from screens.core.memory import MEMORY_KEY
    from workbench.store.queries.ui_state import set_state

    set_state(store, MEMORY_KEY, {"screen": "runs"})

"""Every path that fabric writes to: one class a folder, and no path is put together anywhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from functools import cached_property
from pathlib import Path
from typing import TextIO

from workbench.values import dataclass

LEASES = Path("/tmp/fabric-leases")
"""Where GPUs are leased, mode 1777. ``FABRIC_LEASES`` overrides it in tests."""


def leases_folder() -> Path:
    """Return where this machine's GPUs are leased."""
    return Path(os.environ.get("FABRIC_LEASES") or LEASES)


def default_home() -> Path:
    """Return ``$FABRIC_HOME``, else the XDG data folder, else ``~/.fabric`` (macOS's own has a blank in its name)."""
    if configured := os.environ.get("FABRIC_HOME"):
        return Path(configured).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / ".fabric"
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "fabric"


def config_file() -> Path:
    """Return the user's ``config.toml`` (``$FABRIC_CONFIG`` overrides it)."""
    if configured := os.environ.get("FABRIC_CONFIG"):
        return Path(configured).expanduser().absolute()
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(config) / "fabric" / "config.toml"


def runtime_folder() -> Path:
    """Return the user's folder on local disk for sockets (0700): ``$XDG_RUNTIME_DIR/fabric`` or one under /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "fabric"
    return Path(f"/tmp/fabric-{os.getuid()}")


def make_private_folder(folder: Path, *, within: Path | None = None) -> None:
    """Make a folder and those on the way, 0700 each whatever the umask; what is there is left as it is.

    Args:
        folder: The folder.
        within: One above it, or itself, that is not made: a home that was removed must not come back in pieces.

    Raises:
        FileNotFoundError: ``within`` is not there.
    """
    if folder.is_dir():
        return
    if folder == within:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    if not folder.parent.exists():
        make_private_folder(folder.parent, within=within)
    folder.mkdir(mode=0o700, exist_ok=True)


def create_private(file: Path, *, errors: str = "strict") -> TextIO:
    """Create a file that nobody else may read, whatever the umask, and open it for text.

    Raises:
        FileExistsError: it is there.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8", errors=errors)


def write_private(file: Path, text: str, *, errors: str = "strict") -> None:
    """Write a file that nobody else may read, whatever the umask."""
    with contextlib.suppress(FileNotFoundError):
        file.unlink()
    with create_private(file, errors=errors) as stream:
        stream.write(text)


@dataclass(frozen=True, slots=True)
class LearnerFolder:
    """One learner's journal and what its agent reads: ``attempt-N/learner-N``."""

    path: Path

    @property
    def launch(self) -> Path:
        """What the agent is to do; written once, before it starts."""
        return self.path / "launch.json"

    @property
    def launch_sh(self) -> Path:
        """The same as shell text, for the ``sh`` agent; only there where that one keeps the learner."""
        return self.path / "launch.sh"

    @property
    def lock(self) -> Path:
        """Held by the guard for life: alive means held."""
        return self.path / "agent.lock"

    @property
    def output(self) -> Path:
        """The bytes exactly as printed."""
        return self.path / "output.log"

    @property
    def index(self) -> Path:
        """Where lines and times are; its last entry is the published end."""
        return self.path / "output.idx"

    @property
    def records(self) -> Path:
        """Metric points, usage samples, checkpoints: one JSON record a line."""
        return self.path / "records.jsonl"

    @property
    def state(self) -> Path:
        """Where the learner is, by its agent, replaced by atomic rename."""
        return self.path / "state.json"

    @property
    def processes(self) -> Path:
        """The processes of the last usage sample, one line of JSON; there is none once the learner has ended."""
        return self.path / "processes.json"

    @property
    def stop(self) -> Path:
        """A request to stop, by rename; the guard obeys it."""
        return self.path / "stop.json"


class SetupFolder(LearnerFolder):
    """The same folder, as the setup command's output is read from it."""

    __slots__ = ()

    @property
    def output(self) -> Path:
        """What the setup command printed."""
        return self.path / "setup.log"

    @property
    def index(self) -> Path:
        """Where its lines and times are."""
        return self.path / "setup.idx"


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """One attempt of a job: ``jobs/<id>/attempt-N``."""

    path: Path

    def learner(self, number: int) -> LearnerFolder:
        """Return a learner's folder; learners count from 1."""
        return LearnerFolder(self.path / f"learner-{number}")

    @property
    def job_state(self) -> Path:
        """JOB_STATE_DIR, shared by all learners of the attempt."""
        return self.path / "job"

    @property
    def logs(self) -> Path:
        """LOG_DIR."""
        return self.job_state / "logs"

    def model(self, learner: int) -> Path:
        """Return MODEL_DIR of a learner in a process job: its own writable copy of the code."""
        return self.path / f"learner-{learner}" / "model-code"

    @property
    def environment(self) -> Path:
        """What only the place could know: packages that were resolved, the image with its digest."""
        return self.path / "environment.json"

    @property
    def decision(self) -> Path:
        """Which learner's exit decided, written once by whichever agent saw it first."""
        return self.path / "decision.json"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """One job: ``jobs/<job id>``."""

    path: Path

    def attempt(self, number: int) -> AttemptFolder:
        """Return an attempt's folder; attempts count from 1."""
        return AttemptFolder(self.path / f"attempt-{number}")

    @property
    def job_file(self) -> Path:
        """The frozen manifest, the place, and what makes a rerun possible."""
        return self.path / "job.json"

    def changed_spec(self, attempt: int) -> Path:
        """What was changed when an attempt was begun: ``spec-2.json``. Most attempts have none."""
        return self.path / f"spec-{attempt}.json"

    @property
    def manifest(self) -> Path:
        """The manifest that was written for a job that was given as a command line."""
        return self.path / "manifest.yml"

    @property
    def events(self) -> Path:
        """Every transition and intent, written before the store: the store can be rebuilt from it."""
        return self.path / "events.jsonl"

    @property
    def results(self) -> Path:
        """RESULT_DIR of a job without a result store."""
        return self.path / "results"

    @property
    def checkpoints(self) -> Path:
        """CHECKPOINT_DIR."""
        return self.path / "checkpoints"

    @property
    def removed_checkpoints(self) -> Path:
        """By name, when a checkpoint was removed: what a store no longer has is known without asking it."""
        return self.path / "removed-checkpoints.json"

    @property
    def deleted_files(self) -> Path:
        """Results and checkpoints that a job over several hosts has deleted: no host gets them again from here."""
        return self.path / "deleted-files.json"

    @property
    def data(self) -> Path:
        """DATA_DIR of a job without a data store: an empty folder."""
        return self.path / "data"

    @property
    def diff(self) -> Path:
        """What was not committed when the code was snapped."""
        return self.path / "uncommitted.diff"


@dataclass(frozen=True, slots=True)
class ExperimentFolder:
    """One search: ``experiments/<experiment id>``."""

    path: Path

    @property
    def experiment_file(self) -> Path:
        """What was submitted, frozen: the manifest, the place, the seed."""
        return self.path / "experiment.json"

    @property
    def events(self) -> Path:
        """Every event of the search with its operations, in order; replayed, they give the search again."""
        return self.path / "events.jsonl"

    @property
    def code(self) -> Path:
        """The job's code unpacked, where a class in it chooses what is tried."""
        return self.path / "code"

    @property
    def searcher_log(self) -> Path:
        """What the process that chooses has printed since it was last started."""
        return self.path / "searcher.log"


@dataclass(frozen=True, slots=True)
class ScheduleFolder:
    """One schedule: ``schedules/<schedule id>``."""

    path: Path

    @property
    def schedule_file(self) -> Path:
        """What is started, when, and from where; it is replaced when the schedule is paused or resumed."""
        return self.path / "schedule.json"

    @property
    def events(self) -> Path:
        """Every run that became due, and what became of it."""
        return self.path / "events.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the process that makes a run's jobs, for as long as it lives."""
        return self.path / "lock"


@dataclass(frozen=True)
class Home:
    """``$FABRIC_HOME``, mode 0700. Its paths are asked for all the time, so each is put together once."""

    path: Path

    @cached_property
    def identity(self) -> Path:
        """``home.json``: uuid of this home and format version."""
        return self.path / "home.json"

    @cached_property
    def binding(self) -> Path:
        """``binding.json``: the folder that this home is, so that a copy is known for one."""
        return self.path / "binding.json"

    @cached_property
    def database(self) -> Path:
        """The one SQLite file."""
        return self.path / "fabric.db"

    @cached_property
    def jobs(self) -> Path:
        """One folder a job."""
        return self.path / "jobs"

    def job(self, job_id: str) -> JobFolder:
        """Return a job's folder."""
        return JobFolder(self.jobs / job_id)

    @cached_property
    def experiments(self) -> Path:
        """One folder a search."""
        return self.path / "experiments"

    def experiment(self, experiment_id: str) -> ExperimentFolder:
        """Return a search's folder."""
        return ExperimentFolder(self.experiments / experiment_id)

    @cached_property
    def deleted_experiments(self) -> Path:
        """Folders of deleted searches that are still being removed; most homes have none."""
        return self.path / "deleted-experiments"

    @cached_property
    def schedules(self) -> Path:
        """One folder a schedule; there is none before the first."""
        return self.path / "schedules"

    def schedule(self, schedule_id: str) -> ScheduleFolder:
        """Return a schedule's folder."""
        return ScheduleFolder(self.schedules / schedule_id)

    @cached_property
    def tombstones(self) -> Path:
        """One line for each deleted job: its folder is gone, but its learners may still have to be removed."""
        return self.path / "deleted.jsonl"

    @cached_property
    def code(self) -> Path:
        """Content-addressed snapshots of code."""
        return self.path / "code"

    def snapshot(self, code_hash: str) -> Path:
        """Return where the snapshot of that content lies."""
        return self.code / f"{code_hash}.tar.gz"

    def scan(self, key: str) -> Path:
        """Return what is remembered of one source of code, so that only what changed is looked at again."""
        return self.code / "scans" / f"{key}.json"

    @cached_property
    def environments(self) -> Path:
        """Cached virtual environments."""
        return self.path / "envs"

    @cached_property
    def agents(self) -> Path:
        """Agent archives by content, so that a running learner keeps the one it started with."""
        return self.path / "agents"

    @cached_property
    def drafts(self) -> Path:
        """Manifests that were begun on the screens."""
        return self.path / "drafts"

    @cached_property
    def data(self) -> Path:
        """Copies of what data stores hold, shared by the jobs of this place."""
        return self.path / "data"

    @cached_property
    def secrets(self) -> Path:
        """Secret values by job, 0600 each, in a 0700 folder."""
        return self.path / "secrets"

    @cached_property
    def hosts(self) -> Path:
        """What is remembered of hosts that were reached before."""
        return self.path / "places"

    def host(self, key: str) -> Path:
        """Return the file of what is remembered of one of them."""
        return self.hosts / f"{key}.json"

    @cached_property
    def machines_on_demand(self) -> Path:
        """A file for each machine that is up and is to be stopped when it idles; most homes have none."""
        return self.path / "on-demand"

    @cached_property
    def reserve(self) -> Path:
        """Room that is kept for what has to be written on a full disk."""
        return self.path / "reserve"

    @cached_property
    def spare_files(self) -> Path:
        """A folder of empty files, kept for what has to be made on a disk without inodes."""
        return self.path / "spare-files"

    @cached_property
    def served_store(self) -> Path:
        """What ``fabric store serve`` serves, locked by it for as long as it lives; its text is JSON."""
        return self.path / "served-store.json"

    @cached_property
    def store_folder(self) -> Path:
        """What ``fabric store serve`` serves when no folder is named: a folder for each container."""
        return self.path / "store"

    @cached_property
    def controller_lock(self) -> Path:
        """Held by the controller; its text is JSON: pid, version, socket path."""
        return self.path / "controller.lock"

    @cached_property
    def controller_log(self) -> Path:
        """What the controller has to say."""
        return self.path / "controller.log"

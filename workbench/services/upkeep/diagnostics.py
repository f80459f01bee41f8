"""Checks this machine and fabric's own files. Each check is small, yields findings, and never stops the others."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from backends.contract.host import Finding
from workbench.errors import FabricError, InputMissing
from workbench.formats import count, duration
from workbench.paths import Home, config_file, runtime_folder

if TYPE_CHECKING:
    from threading import Event

    from backends.contract.host import BackendOptions


def cluster_finding(options: BackendOptions) -> Finding:
    """Say whether a cluster answers and is new enough."""
    from backends.kubernetes.backend import KubernetesBackend
    from backends.kubernetes.cluster import KubernetesCluster

    subject = f"backend {options.name}"
    try:
        backend = KubernetesBackend(options)
        with closing(backend.open()) as cluster:
            assert isinstance(cluster, KubernetesCluster)
            major, minor = cluster.version
            where = f"{cluster.access.address} at {cluster.server}"
        return Finding(subject, f"{where}, Kubernetes {major}.{minor}")
    except FabricError as error:
        return Finding(subject, error.message, "lack", "no job can run there now", error.hint)


def rclone(home: Home) -> Iterator[Finding]:
    """Say which rclone moves data here."""
    from workbench.data.stores.rclone import find_rclone

    try:
        found = find_rclone()
    except InputMissing as error:
        yield Finding("rclone", error.message, "lack", "jobs with data stores cannot run here", error.hint)
        return
    yield Finding("rclone", f"{found.version}, {found.path}")


def secrets(home: Home) -> Iterator[Finding]:
    """Say whether others may read the file that the user keeps secrets in."""
    from workbench.config.secrets import secrets_file

    file = secrets_file()
    if not file.exists():
        return
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        yield Finding(
            "secrets",
            f"{file} has mode {mode:o}",
            "lack",
            "no secret is taken from it, and others of this machine can read it",
            f"chmod 600 {file}",
        )
    else:
        yield Finding("secrets", f"{file}, read by nobody else")


DATA_CHECKS = (rclone, secrets)


SOCKET_PATH_MOST: Final = 100
"""A unix socket's path may have so many characters."""

EARLIEST: Final = 1_735_689_600
"""2025-01-01: a clock before that was never set."""


def diagnose(home: Home, *, cancel: Event | None = None) -> Iterator[Finding]:
    """Run every check; one that fails is a finding, too.

    Args:
        home: Whose files are checked.
        cancel: When it is set, no further check is begun.
    """
    from workbench.services.upkeep.machine_checks import CHECKS as MACHINE_CHECKS
    from workbench.services.upkeep.machine_checks import HOST_CHECKS

    for check in (*CHECKS, *HOST_CHECKS, *DATA_CHECKS, *MACHINE_CHECKS):
        if cancel is not None and cancel.is_set():
            return
        try:
            yield from check(home)
        except (FabricError, OSError) as error:
            hint = error.hint if isinstance(error, FabricError) else ""
            subject = check.__name__.removeprefix("_")
            yield Finding(subject, str(error), "wrong", "", hint)


def _python_path(home: Home) -> Iterator[Finding]:
    if folders := os.environ.get("PYTHONPATH"):
        yield Finding("PYTHONPATH", f"{folders}; fabric itself does not use it, and jobs do not get it")


def _home(home: Home) -> Iterator[Finding]:
    from workbench.store.db.home_folder import BIND, why_not
    from workbench.store.db.privacy import close_home, is_open

    if not home.path.exists():
        yield Finding("home", f"{home.path} is not there yet; the first job makes it")
        return
    if (why := why_not(home)) is not None:
        yield Finding("home", why, "wrong", "no job is started, stopped or moved on here", BIND)
        return
    close_home(home)
    found = home.path.stat()
    if is_open(found):
        yield Finding(
            "home",
            f"{home.path} has mode {found.st_mode & 0o777:o}, which its file system does not let us change",
            "wrong",
            "other people of this machine can read jobs and results",
            "FABRIC_HOME names a folder on another file system",
        )
    elif not os.access(home.path, os.W_OK):
        yield Finding(
            "home", f"{home.path} cannot be written", "wrong", "no job can be started", "FABRIC_HOME=..."
        )
    else:
        yield Finding("home", str(home.path))


def _database(home: Home) -> Iterator[Finding]:
    from workbench.store.db.database import Store
    from workbench.store.queries.jobs import count_jobs, open_jobs

    folders = len(list(home.jobs.glob("training-*"))) if home.jobs.is_dir() else 0
    if not home.database.exists():
        if folders:
            yield Finding(
                "database",
                f"lost, with {count(folders, 'job folder')}",
                "wrong",
                "",
                "fabric doctor --rebuild",
            )
        else:
            yield Finding("database", "not there yet; the first job makes it")
        return
    with Store.open(home) as store:
        problems = [str(row[0]) for row in store.rows("PRAGMA quick_check(3)") if row[0] != "ok"]
        jobs, waiting = sum(count_jobs(store).values()), len(open_jobs(store))
    if problems:
        yield Finding("database", "; ".join(problems), "wrong", "jobs may be lost", "fabric doctor --rebuild")
    else:
        yield Finding("database", f"{count(jobs, 'job')}, {waiting} of them open")


def _controller(home: Home) -> Iterator[Finding]:
    from workbench.services.controller import count_open_jobs, inspect_controller
    from workbench.store.db.home_folder import is_home
    from workbench.version import VERSION

    if not is_home(home):
        return
    found = inspect_controller(home)
    if found.pid is not None and not found.answers:
        yield Finding("controller", found.trouble, "wrong", "jobs do not move on", found.hint)
    elif found.pid is None:
        if waiting := count_open_jobs(home):
            yield Finding(
                "controller",
                f"not running, with {count(waiting, 'open job')}",
                "lack",
                "they do not move on",
                "any command that follows or changes a job starts it; its log is " + str(home.controller_log),
            )
        else:
            yield Finding("controller", "not running; nothing needs it")
    elif found.version != VERSION:
        yield Finding(
            "controller",
            f"pid {found.pid} is of version {found.version}, this is {VERSION}",
            "lack",
            "it knows less or more than this command",
            "fabric controller stop",
        )
    else:
        yield Finding("controller", f"running, pid {found.pid}")


def _sockets(home: Home) -> Iterator[Finding]:
    folder = runtime_folder()
    if len(str(folder)) + 40 > SOCKET_PATH_MOST:
        yield Finding(
            "sockets",
            f"{folder} is a long path",
            "lack",
            "the controller may not be reached",
            "a shorter TMPDIR",
        )
    else:
        yield Finding("sockets", str(folder))


def _configuration(home: Home) -> Iterator[Finding]:
    from workbench.config import load_config

    config = load_config()
    backends = count(len(config.backends), "backend")
    there = "" if config_file().exists() else ", which is not there: nothing has to be"
    yield Finding("configuration", f"{config_file()}{there}; {backends}")


def _git(home: Home) -> Iterator[Finding]:
    if found := shutil.which("git"):
        yield Finding("git", found)
    else:
        yield Finding("git", "not there", "lack", "the commit of a job's code is not recorded", "install git")


def _clock(home: Home) -> Iterator[Finding]:
    now = time.time()
    if now < EARLIEST:
        yield Finding("clock", time.ctime(now), "wrong", "times of jobs are wrong", "set the clock (NTP)")
        return
    ahead = 0.0
    if home.database.exists():
        ahead = home.database.stat().st_mtime - now
    if ahead > 5:
        yield Finding(
            "clock",
            f"the last write is {duration(ahead)} ahead",
            "lack",
            "times of jobs are wrong",
            "set the clock",
        )
    else:
        yield Finding("clock", time.strftime("%Y-%m-%d %H:%M:%S %Z"))


def _terminal(home: Home) -> Iterator[Finding]:
    encoding = getattr(sys.stdout, "encoding", "") or "none"
    if encoding.lower().replace("-", "") != "utf8":
        yield Finding(
            "terminal",
            f"its encoding is {encoding}",
            "lack",
            "some characters are not shown",
            "export LANG=C.UTF-8",
        )
    else:
        yield Finding("terminal", f"TERM={os.environ.get('TERM', 'not set')}, UTF-8")


def _place(home: Home) -> Iterator[Finding]:
    from workbench.services.backends.placement import backend_options
    from workbench.services.backends.probe import probe

    yield from probe(backend_options("local")).findings


def _clusters(home: Home) -> Iterator[Finding]:
    """Say which configured clusters can be reached; what is there `fabric backend test` says."""
    from workbench.services.backends.placement import backend_options, known_backends

    for name in known_backends():
        options = backend_options(name)
        if options.type == "kubernetes":
            yield cluster_finding(options)


CHECKS: Final[tuple[Callable[[Home], Iterator[Finding]], ...]] = (
    _python_path,
    _home,
    _database,
    _controller,
    _sockets,
    _configuration,
    _git,
    _clock,
    _terminal,
    _place,
    _clusters,
)

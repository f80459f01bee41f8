"""What clients ask of the controller: they write to the store, then wake it, and start it where none runs.

Nothing here blocks on a controller: a slow or stopped one stops no client.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from workbench.clock import now_us
from workbench.controller.lock import read_lock
from workbench.controller.secrets import forget_secrets, write_secrets
from workbench.errors import FabricError, UnknownName
from workbench.job import Intent, JobId, Reason, State, new_job_id
from workbench.manifest.model import JobSpec
from workbench.paths import Home
from workbench.store.database import Store
from workbench.store.failures import write_failure
from workbench.store.jobs import insert_job, job, who_am_i
from workbench.store.requests import add_request
from workbench.store.rows import JobDetail, JobRow, PlaceRef
from workbench.version import VERSION

ANSWER_SECONDS: Final = 2.0
"""How long a controller that is there may take to answer."""

_spawned: list[int] = []
"""Controllers that this process started: they are its children and are reaped when it asks the next time."""


@dataclass(frozen=True, slots=True)
class Submission:
    """All that the client resolved of a job before it hands it over."""

    spec: JobSpec
    manifest_text: str
    """As the user wrote it, secrets struck out."""
    origins: Mapping[str, str]
    place: PlaceRef
    code_hash: str
    """Empty when the job has no code."""
    recorded: Mapping[str, Any]
    """Design, section 9: interpreter, environment, git, host, packages, seed, arguments."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values by name; they go to a 0600 file and into no row."""
    diff: str = ""
    """What was not committed when the code was snapped."""
    parent: str | None = None
    trial: int | None = None
    tags: tuple[str, ...] = ()
    job_id: JobId | None = None
    """Chosen beforehand, or None for a new one."""


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What a controller that answers says of itself."""

    pid: int
    version: str
    home: str
    """The uuid of its home."""
    open_jobs: int
    started_us: int
    socket: str
    log: str


def submit(store: Store, submission: Submission, *, origin: str) -> JobRow:
    """Write a new job, its secrets and the request to start it; return its row. It starts no controller.

    Raises:
        CannotWrite: the home takes no more; nothing is left of the job.
    """
    job_id = submission.job_id or new_job_id()
    who = who_am_i()
    try:
        write_secrets(store.home, job_id, submission.secrets)
        with store.atomic():
            row = insert_job(store, _detail(job_id, submission, who), who=who, origin=origin)
            _write_diff(store.home, job_id, submission.diff)
            add_request(store, "submit", job_id, {}, who, origin)
    except BaseException:
        forget_secrets(store.home, job_id)
        raise
    return row


def ask(
    store: Store, job_id: str, kind: str, *, origin: str, payload: Mapping[str, Any] | None = None
) -> int:
    """Ask for a job to be halted, killed, resumed or deleted; return the request's id.

    Raises:
        UnknownName: there is no such job.
    """
    row = job(store, job_id)
    if row is None or row.deleted_us is not None:
        raise UnknownName(f"there is no job {job_id}", hint="fabric list shows those there are")
    return add_request(store, kind, job_id, dict(payload or {}), who_am_i(), origin)


def ensure_controller(home: Home) -> None:
    """Wake the controller; start one where none answers, or an older version's. Returns at once."""
    _reap()
    answer = _say(home, "wake")
    if answer is None:
        _spawn(home)
    elif not answer.get("ok"):
        _spawn(home, wait=True)  # it is about to end
    elif _version(str(answer.get("version"))) < _version(VERSION):
        _say(home, "stop")
        _spawn(home, wait=True)


def wake(home: Home) -> bool:
    """Tell the controller that there is something new; return whether one is there to hear it."""
    answer = _say(home, "wake")
    return answer is not None and bool(answer.get("ok"))


def status(home: Home) -> ControllerStatus | None:
    """Ask the controller how it is; None when none answers."""
    answer = _say(home, "status")
    if answer is None or not answer.get("ok"):
        return None
    held = read_lock(home)
    return ControllerStatus(
        pid=int(answer["pid"]),
        version=str(answer["version"]),
        home=str(answer["home"]),
        open_jobs=int(answer.get("open_jobs", 0)),
        started_us=int(answer.get("started_us", 0)),
        socket=held.socket if held else "",
        log=str(home.controller_log),
    )


def stop_controller(home: Home) -> bool:
    """Ask the controller to end; return whether there was one. Learners go on."""
    answer = _say(home, "stop")
    return answer is not None and bool(answer.get("ok"))


def _detail(job_id: JobId, submission: Submission, who: str) -> JobDetail:
    spec, now = submission.spec, now_us()
    row = JobRow(
        id=job_id,
        seq=0,  # the store gives it
        name=spec.name,
        state=State.QUEUED,
        reason=Reason("was submitted"),
        intent=Intent.NONE,
        exit_code=None,
        exit_by="",
        attempt=1,
        place=submission.place,
        owner=who.partition("@")[0],
        submitted_us=now,
        started_us=None,
        ended_us=None,
        changed_us=now,
        seen_us=None,
        restarts=0,
        platform_restarts=0,
        next_try_us=None,
        learners=spec.learners,
        gpus=spec.gpus,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        labels=spec.labels,
        tags=submission.tags,
        note="",
        parent=submission.parent,
        trial=submission.trial,
        deleted_us=None,
        revision=0,
    )
    return JobDetail(
        row=row,
        spec=spec,
        manifest_text=submission.manifest_text,
        origins=submission.origins,
        code_hash=submission.code_hash,
        recorded=submission.recorded,
    )


def _write_diff(home: Home, job_id: str, diff: str) -> None:
    if not diff:
        return
    file = home.job(job_id).diff
    try:
        file.write_text(diff, encoding="utf-8", errors="surrogateescape")
        file.chmod(0o600)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise write_failure(error, file) from error


def _say(home: Home, what: str) -> Mapping[str, Any] | None:
    """Say a word to the controller; None when none answers."""
    held = read_lock(home)
    if held is None or not held.socket:
        return None
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(held.socket)
        connection.sendall(json.dumps({"do": what}).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            more = connection.recv(65536)
            if not more:
                return None
            data += more
        answer = json.loads(data)
        return answer if isinstance(answer, dict) else None
    return None


def _spawn(home: Home, *, wait: bool = False) -> None:
    """Start a controller that belongs to nobody: own session, no terminal, its output in its log."""
    # As a file, since -m costs the import of runpy. -P and no PYTHONPATH: a folder of the user's that is
    # called runners must not be imported in the place of ours.
    main = str(Path(__file__).with_name("__main__.py"))
    arguments = [sys.executable, "-P", main, "--home", str(home.path), *(["--wait"] if wait else [])]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    log = str(home.controller_log)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    spawn = partial(
        os.posix_spawn,
        sys.executable,
        arguments,
        environment,
        file_actions=actions,
        setsigmask=(),
        setsigdef=sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}),
    )
    try:
        try:
            pid = spawn(setsid=True)
        except NotImplementedError:  # it makes its own session then, a moment later
            pid = spawn()
    except OSError as error:
        raise FabricError(f"the controller could not be started: {error.strerror or error}") from error
    _spawned.append(pid)


def _reap() -> None:
    for pid in list(_spawned):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            _spawned.remove(pid)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())

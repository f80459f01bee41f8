"""Schedules: how one is made and changed, how it stands, and how a run's jobs are made.

Run as a program it makes the jobs of one time, in an environment that holds what the schedule keeps and nothing of the
shell that started the controller: ``check HOME`` with a schedule's file on standard input says whether that would
work, ``run HOME SCHEDULE DUE_US`` does it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import FabricError, InputMissing, ManifestError, TryAgain, UsageError
from workbench.services.submit.options import RunOptions, resolve_arguments

if TYPE_CHECKING:
    from workbench.documents.schedules import ScheduleDocument, ScheduledRun
    from workbench.paths import Home
    from workbench.services.submit.prepare import JobSubmission
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.schedules import ScheduleRow

ORIGIN: Final = "schedule"
KEPT: Final = frozenset(
    (
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "DOCKER_CONFIG",
        "DOCKER_CERT_PATH",
        "DOCKER_TLS_VERIFY",
        "CONTAINER_HOST",
        "KUBECONFIG",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
        "SSH_AUTH_SOCK",
        "NETRC",
        "PYENV_VERSION",
    )
)
"""Variables that say where things are, beside those that jobs inherit."""
NOT_KEPT: Final = frozenset(("FABRIC_WEB_TOKEN", "FABRIC_HOME", "FABRIC_NO_CONTROLLER", "FABRIC_DEBUG"))
SHOWN: Final = 20
"""So many events `show` prints, unless all are asked for."""


def create_schedule(store: Store, options: RunOptions, every: str) -> ScheduleRow:
    """Make a schedule of a run, after its jobs were prepared once just as they will be later; wake the controller.

    Args:
        store: the store.
        options: the run; its manifest, code and templates are read again at each time.
        every: a cron expression of five fields, or a word such as ``@daily``.

    Raises:
        UsageError: the expression is none, or an option has no meaning for runs that come again.
        FabricError: as :func:`workbench.services.submit.prepare.prepare`.
    """
    from workbench.clock import now_us
    from workbench.controller.client.connect import ensure_controller
    from workbench.recurrence import local_zone, recurrence
    from workbench.store.db.home_folder import require_home
    from workbench.store.queries.schedules import ScheduleRow
    from workbench.store.updates.jobs import who_am_i
    from workbench.store.updates.schedules import new_schedule_id, record_run, write_schedule

    require_home(store.home)
    now, zone = now_us(), local_zone()
    wanted = recurrence(every, zone, now)
    options = resolve_arguments(options)
    _refuse_options(options)
    row = ScheduleRow(
        id=new_schedule_id(),
        name="",
        every=wanted.every,
        zone=zone,
        folder=os.getcwd(),  # noqa: PTH109 - as the shell has it
        options=asdict(options),
        environment=_kept_environment(),
        who=who_am_i(),
        created_us=now,
    )
    row = replace(row, name=_check(store.home, row))
    write_schedule(store.home, row)
    record_run(store.home, row.id, {"do": "created", "who": row.who})
    ensure_controller(store.home)
    return row


def pause_schedule(home: Home, row: ScheduleRow, *, paused: bool) -> ScheduleRow:
    """Pause a schedule or let it go on, and wake the controller; return it as it is then.

    One that is so already is left alone.

    Raises:
        CannotWrite: the home takes no more.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.store.updates.jobs import who_am_i
    from workbench.store.updates.schedules import set_paused

    if (row.paused_us is not None) == paused:
        return row
    changed = set_paused(home, row, paused=paused, who=who_am_i())
    ensure_controller(home)
    return changed


def delete_schedule(home: Home, row: ScheduleRow) -> None:
    """Remove a schedule with its history, and wake the controller; jobs that it has started stay.

    Raises:
        CannotWrite: its folder cannot be removed.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.store.updates.schedules import remove_schedule

    remove_schedule(home, row)
    ensure_controller(home)


def _refuse_options(options: RunOptions) -> None:
    from workbench.services.submit.credentials import masked

    if options.manifest == "-" or options.manifest_text:
        raise UsageError(
            "--every reads the manifest again at each time, and standard input cannot be",
            hint="write the manifest into a file",
        )
    if options.begin:
        raise UsageError("--every and --begin both say when", hint="leave one of them out")
    for text in options.overrides:
        if masked([text], ()) != [text]:
            raise UsageError(
                f"--set {text.partition('=')[0]}: a schedule keeps no passwords",
                hint="write ${NAME} in the manifest, and NAME into secrets.toml or the keyring",
            )


def _kept_environment() -> dict[str, str]:
    """Return the variables that runs of a schedule are prepared with: those without a secret in them."""
    from workbench.config import PROFILE_VARIABLE, profile_in_force
    from workbench.services.submit.submit_environment import passed_environment

    kept, _ = passed_environment()
    kept |= {name: text for name, text in os.environ.items() if name in KEPT}
    kept |= {
        name: text
        for name, text in os.environ.items()
        if name.startswith("FABRIC_") and name not in NOT_KEPT and "SECRET" not in name
    }
    return {**kept, PROFILE_VARIABLE: named} if (named := profile_in_force()) else kept


def _check(home: Home, row: ScheduleRow) -> str:
    """Prepare a schedule's jobs as a run of it would; return the name that they have.

    Raises:
        FabricError: what that failed with.
    """
    answer = _ask_maker(home, row, "check", str(home.path), text=json.dumps(asdict(row)))
    return str(answer["name"])


def _ask_maker(home: Home, row: ScheduleRow, *words: str, text: str = "") -> dict[str, Any]:
    """Have this module's program do something for a schedule, in the environment of its runs; return its answer.

    Raises:
        FabricError: what that failed with.
    """
    import subprocess

    from workbench.controller.loop.schedules import maker_command, maker_environment

    ran = subprocess.run(
        maker_command(*words),
        input=text.encode(),
        stdout=subprocess.PIPE,
        env=maker_environment(row.environment, os.environ, home),
        cwd="/",
        check=False,
    )
    try:
        answer: dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        why = f"the jobs of {row.name or 'the schedule'} could not be made: their process ended with {ran.returncode}"
        raise FabricError(why) from None
    if "error" in answer:
        error = FabricError(answer["error"], hint=answer["hint"])
        error.exit_code = int(answer["exit_code"])
        raise error
    return answer


def schedule_document(home: Home, row: ScheduleRow, *, runs: int | None = 0) -> ScheduleDocument:
    """Return how a schedule stands; ``runs`` is how many events are shown, None for all."""
    from workbench.clock import now_us
    from workbench.controller.loop.schedules import NOT_THERE, look
    from workbench.formats import iso
    from workbench.store.queries.schedules import dealt_with_us, runs_of

    events = runs_of(home, row.id, everything=runs is None)
    started = [at for at, event in enumerate(events) if event["do"] == "started"]
    last = events[started[-1]] if started else None
    next_us, wrong = None, ""
    if row.paused_us is None:
        try:
            found = look(row, dealt_with_us(row, events), now := now_us())
            next_us = found.next_us
            if found.missed is not None:  # the next controller will write it down
                events.append({"do": "missed", "time": now, **asdict(found.missed), "why": NOT_THERE})
        except UsageError as error:
            wrong = str(error)
    since = events[started[-1] + 1 :] if started else events
    missed = [event for event in since if event["do"] == "missed"]
    document: ScheduleDocument = {
        "schema": "fabric.schedule/1",
        "id": row.id,
        "name": row.name,
        "state": "ACTIVE" if row.paused_us is None else "PAUSED",
        "every": row.every,
        "zone": row.zone,
        "next": iso(next_us),
        "last": None if last is None else iso(int(last["time"])),
        "jobs": [] if last is None else list(last["jobs"]),
        "missed": sum(int(event["count"]) for event in missed),
        "missed_since": iso(int(missed[0]["first_us"])) if missed else None,
        "trouble": wrong or _trouble(since) or str((last or {}).get("why") or ""),
        "folder": row.folder,
        "command": list(row.options["argv"]),
        "created": iso(row.created_us),
    }
    if runs != 0:
        shown = [_run_document(event) for event in events if event["do"] not in ("due", "created")]
        document["runs"] = shown[::-1][:runs]
    return document


def _trouble(events: Sequence[Mapping[str, Any]]) -> str:
    """Return why the last time that came has started nothing."""
    from workbench.formats import count

    for event in reversed(events):
        if event["do"] == "missed":
            return f"{count(int(event['count']), 'run')} missed: {event['why']}"
        if event["do"] in ("skipped", "refused"):
            return f"{event['do']}: {event['why']}"
    return ""


def _run_document(event: Mapping[str, Any]) -> ScheduledRun:
    from workbench.formats import iso

    due_us = event.get("due_us", event.get("first_us"))
    job = event.get("job")
    return {
        "time": iso(int(event["time"])),
        "what": event["do"],
        "due": None if due_us is None else iso(int(due_us)),
        "jobs": [job] if job else list(event.get("jobs") or ()),
        "count": int(event.get("count", 1)),
        "why": str(event.get("why") or ""),
    }


def run_now(store: Store, row: ScheduleRow) -> list[str]:
    """Start a run of a schedule at once, whether it is paused or not; return the ids of its jobs.

    Raises:
        TryAgain: the last one still goes on.
        FabricError: its jobs cannot be made.
    """
    answer = _ask_maker(store.home, row, "run", str(store.home.path), row.id, "now")
    return [str(each) for each in answer["jobs"]]


def jobs_going_on(store: Store, row: ScheduleRow) -> list[JobRow]:
    """Return the jobs of a schedule that have not ended."""
    from workbench.store.queries.jobs import open_jobs
    from workbench.store.queries.schedules import SCHEDULE_LABEL

    return [job for job in open_jobs(store) if job.labels.get(SCHEDULE_LABEL) == row.nine]


def _make_jobs(home: Home, row: ScheduleRow, due_us: int | None) -> list[str]:
    """Make the jobs of one time, unless those of the last one go on; return their ids.

    Raises:
        TryAgain: they go on.
        FabricError: they cannot be made.
    """
    from workbench.job import short_id
    from workbench.services.submit.submit import submit
    from workbench.store.db.database import Store
    from workbench.store.updates.schedules import record_run

    with Store.open(home) as store:
        if going_on := jobs_going_on(store, row):
            why = f"{short_id(going_on[0].id)} of the run before still goes on"
            if due_us is not None:
                event = {"do": "skipped", "due_us": due_us, "job": going_on[0].id, "why": why}
                record_run(home, row.id, event)
            raise TryAgain(why, hint="`fabric halt` or `fabric kill` ends it")
        made: list[str] = []
        why = ""
        try:
            for options, submission in _prepared(home, row):
                job = submit(store, submission, origin=ORIGIN, keep_manifest=not options.manifest)
                made.append(job.id)
        except FabricError as error:
            # What was begun goes on, so the time did start something.
            if due_us is not None and not made:
                event = {"do": "refused", "due_us": due_us, "why": _one_line(error)}
                record_run(home, row.id, event)
            if not made:
                raise
            why = f"not all of its jobs: {_one_line(error)}"
        record_run(home, row.id, {"do": "started", "due_us": due_us, "jobs": made, "why": why})
        return made


def _prepared(home: Home, row: ScheduleRow) -> list[tuple[RunOptions, JobSubmission]]:
    """Prepare the jobs of a schedule as the folder and the configuration are now.

    Raises:
        FabricError: as :func:`workbench.services.submit.prepare.prepare`.
    """
    from workbench.services.submit.batch import read_batch
    from workbench.services.submit.sweeps import JOBS_MOST
    from workbench.store.queries.schedules import SCHEDULE_LABEL

    try:
        os.chdir(row.folder)
    except OSError as error:
        raise InputMissing(f"{row.folder}: {(error.strerror or str(error)).lower()}") from error
    known = {each.name for each in fields(RunOptions)}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row.options.items()
        if name in known
    }
    options = RunOptions(**given)
    labels = (*options.labels, f"{SCHEDULE_LABEL}={row.nine}")
    batch = read_batch(replace(options, labels=labels))
    submissions = batch.prepare(home, launch=True)
    if any(each.array for each in batch.options):
        raise UsageError(
            "--every starts jobs, and so many are an array", hint=f"start at most {JOBS_MOST:,} each time"
        )
    if any(each.loaded.spec.search for each in submissions):
        raise UsageError("--every starts jobs, and this manifest is a search", hint="leave --every out")
    return list(zip(batch.options, submissions, strict=True))


def _checked(home: Home, row: ScheduleRow) -> str:
    """Return the name of a schedule's first job.

    Raises:
        UsageError: a secret is written out in what the schedule would keep, or is nowhere but in the user's shell.
        FabricError: the jobs cannot be made.
    """
    from workbench.learner.scribe.masking import secret_texts
    from workbench.services.submit.credentials import masked

    try:
        prepared = _prepared(home, row)
    except UsageError as error:
        if not error.message.startswith(("secret ", "secrets ")):
            raise
        from workbench.config.secrets import secrets_file

        hint = f"a schedule keeps no values of your shell: write it into {secrets_file()} (mode 0600), or the keyring"
        raise UsageError(error.message, hint=hint) from error
    for _, submission in prepared:
        texts = json.dumps([row.options, row.environment], ensure_ascii=False)
        if masked([texts], secret_texts(submission.secrets)) != [texts]:
            raise UsageError(
                "a secret is written out in the command, and a schedule keeps none",
                hint="give it by its name, from secrets.toml or the keyring",
            )
    return prepared[0][1].loaded.spec.name


def _one_line(error: FabricError) -> str:
    more = error.message.count("\n") if isinstance(error, ManifestError) else 0
    return error.message.partition("\n")[0] + (f" (and {more} more)" if more else "")


def main(words: Sequence[str]) -> int:
    """Check a schedule, or make the jobs of one time; print what came of it as JSON, return the exit code."""
    import fcntl

    from workbench.paths import Home
    from workbench.store.queries.schedules import ScheduleRow, read_schedule

    home = Home(Path(words[1]))
    due_us = int(words[3]) if words[3:] and words[3] != "now" else None
    answer: dict[str, Any]
    code = 0
    try:
        if words[0] == "check":
            answer = {"name": _checked(home, ScheduleRow(**json.load(sys.stdin)))}
        else:
            row = read_schedule(home, words[2])
            lock = os.open(home.schedule(row.id).lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TryAgain("jobs of this schedule are just being made") from None
            answer = {"jobs": _make_jobs(home, row, due_us)}
    except FabricError as error:
        answer = {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
        code = error.exit_code
    # What the controller asked for is in the schedule's history; its log gets no more of it.
    if due_us is None:
        sys.stdout.write(json.dumps(answer))
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

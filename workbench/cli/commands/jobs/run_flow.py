"""What ``fabric run`` and ``fabric rerun`` do and print: they submit jobs, and follow them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from workbench.formats import count, duration, stamp
from workbench.job import EXIT_HALTED, EXIT_TIMED_OUT, short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.cli.follow.options import FollowOptions
    from workbench.cli.follow.signals import Policy
    from workbench.errors import CannotWrite
    from workbench.services.submit.batch import JobBatch
    from workbench.services.submit.options import RunOptions
    from workbench.services.submit.prepare import JobSubmission
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow


ORIGIN: Final = "cli"


def start(batch: JobBatch, follow: FollowOptions) -> int:
    """Submit the jobs of a batch, follow them unless they are detached, and return the exit code.

    Raises:
        UsageError: it has several jobs, and of one the first trial is to be followed.
    """
    from workbench.errors import UsageError
    from workbench.services.open_store import open_store
    from workbench.services.submit.submit import ControllerStart

    if follow.first_trial and not batch.is_single:
        raise UsageError(
            f"--follow-first-trial follows one search, and these are {count(len(batch.options), 'job')}",
            hint="leave it out: `fabric logs --follow ID` follows one of them once it runs",
        )
    with open_store(steers=True) as store, ControllerStart(store.home):
        if batch.is_single:
            return _start_one(store, batch, follow)
        rows = _submit_all(store, batch, quiet=follow.quiet or follow.json)
        if follow.detach:
            _warn_of_hang(store)
            return _print_detached(rows, batch, follow)
        return _follow(store, rows, batch, follow)


def start_schedule(options: RunOptions, every: str, follow: FollowOptions) -> int:
    """Make a schedule of a run, and print its id or its document."""
    from workbench.errors import UsageError
    from workbench.services.open_store import open_store
    from workbench.services.submit.schedules import create_schedule, schedule_document
    from workbench.time_expressions import iso_us

    if follow.needs_the_end or follow.timeout_seconds is not None or follow.notify or follow.first_trial:
        raise UsageError(
            "nobody follows runs that come again: --timeout, --require, --junit, --summary, --notify and"
            " --follow-first-trial say nothing",
            hint="max_runtime and stop_when in the manifest hold for every run",
        )
    with open_store(steers=True) as store:
        row = create_schedule(store, options, every)
        document = schedule_document(store.home, row)
    if follow.json:
        from workbench.terminal.json_output import print_document

        print_document(document)
        return 0
    print(row.id)
    if not follow.quiet:
        begins = iso_us(document["next"] or "")
        when = f", next at {stamp(begins)}" if begins else ""
        narrate(f"{row.name} runs at {row.every} ({row.zone}){when}; `fabric schedule show {row.nine}`")
    return 0


def _start_one(store: Store, batch: JobBatch, follow: FollowOptions) -> int:
    from workbench.cli.follow.attach import attach_to
    from workbench.terminal.code import terminal_code_options

    (submission,) = batch.prepare(
        store.home, launch=True, code_options=terminal_code_options(quiet=follow.quiet)
    )
    if submission.loaded.spec.search is not None:
        return _start_search(store, submission, follow)
    if follow.detach and not follow.accept_loss:
        from workbench.services.submit.preview import refuse_loss

        refuse_loss(submission, store.home)
    row = submit_and_narrate(
        store, submission, keep_manifest=not batch.options[0].manifest, quiet=follow.quiet or follow.json
    )
    if follow.detach:
        _warn_of_hang(store)
        return print_detached(row, json=follow.json, quiet=follow.quiet)
    code = attach_to(store, row, follow, fresh=True)
    return _finish(store, row, code, follow)


def _start_search(store: Store, submission: JobSubmission, follow: FollowOptions) -> int:
    """Start a search, which goes on in the background; print its id or its document, or stay with it.

    Raises:
        UsageError: it is to be stayed with in ways that exclude each other, or required of what it has not.
    """
    from workbench.errors import UsageError
    from workbench.services.submit.experiments import experiment_document, start_experiment
    from workbench.store.queries.experiments import short_experiment_id
    from workbench.terminal.errors import warn

    stays = follow.stays and not follow.detach
    if follow.first_trial and stays:
        raise UsageError(
            "--follow-first-trial ends with the first trial; --require, --junit, --summary, --timeout and --notify wait"
            " for the whole search",
            hint="leave it out",
        )
    if follow.require and not (submission.loaded.spec.search or {}).get("metric"):
        raise UsageError(
            "--require holds against the best trial, and no metric says which one that is",
            hint="search.metric names it; `fabric wait JOB --require` checks one job",
        )
    for warning in submission.warnings:
        warn(warning)
    row = start_experiment(store, submission)
    if follow.json and not stays:
        from workbench.terminal.json_output import print_document

        print_document(experiment_document(store, row))
        return 0
    if not (follow.first_trial or follow.json):
        print(row.id)
    if not follow.quiet:
        for note in submission.notes:
            narrate(f"note: {note}")
        nine = short_experiment_id(row.id)
        how = f"{row.method}, {row.goal} {row.metric}" if row.metric else row.method
        narrate(
            f"{row.name}: {how}; its trials run in the background, `fabric experiment show {nine}` says how it stands"
        )
    if stays:
        return _follow_search(store, row, follow)
    return _follow_first_trial(store, row, follow) if follow.first_trial else 0


def _follow_search(store: Store, search: ExperimentRow, follow: FollowOptions) -> int:
    """Stay until a search is over, report it, and return its exit code; when its time is over it is paused.

    Raises:
        CannotWrite: a signal asked for its pause or end, which cannot be recorded.
        BackendUnreachable: that is recorded, and a backend does not answer.
    """
    from workbench.cli.follow.report import documents_of, ended_search, finish, search_line
    from workbench.cli.follow.signals import Detached, Interruption
    from workbench.services.control.searches import exit_code_of_search, wait_until_over
    from workbench.store.queries.experiments import short_experiment_id
    from workbench.terminal.errors import warn

    stop = _SearchStopper(store, search)
    nine = short_experiment_id(search.id)
    is_late = False

    def leave() -> None:
        narrate(f"left {search.name}, which is not over. `fabric wait {nine}` waits for it")

    try:
        with Interruption(follow.on_interrupt, stop, leave):
            _, (now,), is_over = wait_until_over(
                store,
                (),
                (search,),
                timeout_seconds=follow.timeout_seconds,
                is_left=lambda: stop.asked is not None,
                warn=warn,
            )
            is_late = not is_over and stop.asked is None
            if is_late:
                narrate(f"--timeout: {duration(follow.timeout_seconds or 0.0)} have passed")
                stop("halt")
            if not is_over:
                now = stop.wait(store, warn)
    except Detached as left:
        narrate(f"left {search.name}; it goes on. `fabric wait {nine}` waits for it")
        return left.exit_code
    if follow.json:
        from workbench.terminal.json_output import print_document

        print_document(documents_of(store, (now,))[0])
    elif not follow.quiet:
        narrate(search_line(store, now))
    if follow.notify:
        from workbench.cli.follow.notifications import notify

        notify("fabric", f"{now.name} {now.state.lower()}")
    code = EXIT_HALTED if now.is_open else exit_code_of_search(now)
    code = EXIT_TIMED_OUT if is_late and code else code
    return finish(store, [(ended_search(store, now, follow), code)], follow) if follow.needs_the_end else code


class _SearchStopper:
    """Asks for a search to be paused or killed, from any thread, and waits until that has happened."""

    def __init__(self, store: Store, row: ExperimentRow) -> None:
        self._home = store.home
        self._row = row
        self.asked: Policy | None = None
        """What was asked for last, once that is recorded, or could not be."""
        self._failure: CannotWrite | None = None

    def __call__(self, kind: Policy) -> None:
        """Ask for it, and say so: to halt a search is to pause it."""
        from workbench.errors import CannotWrite, FabricError
        from workbench.services.submit.experiments import kill_experiment, pause_experiment
        from workbench.store.db.database import Store
        from workbench.store.queries.experiments import short_experiment_id

        steer, what, more = kill_experiment, "kill", ""
        if kind == "halt":
            again = f"`fabric experiment resume {short_experiment_id(self._row.id)}` has it go on"
            steer, what, more = pause_experiment, "pause", f"; {again}, a second signal kills it"
        # Called in a thread of its own; a store belongs to the thread that opened it.
        try:
            with Store.open(self._home) as own:
                if steer(own, self._row):
                    narrate(f"{what} of {self._row.name} requested{more}")
        except CannotWrite as error:
            self._failure = error
        except FabricError as error:
            narrate(f"error: the {what} could not be requested: {error}")
        self.asked = kind

    def wait(self, store: Store, warn: Callable[[str], None]) -> ExperimentRow:
        """Wait until the search has halted, or is over where it is being ended; return its row."""
        from workbench.services.control.searches import search_now, wait_until_ended, wait_until_halted
        from workbench.store.queries.experiments import STOPPING

        now = search_now(store, self._row)
        if self._failure is None and self.asked == "halt":
            now = wait_until_halted(store, now, warn=warn, report=narrate)
        if self._failure is not None:
            raise self._failure
        if now.is_open and (self.asked == "kill" or now.state == STOPPING):
            now = wait_until_ended(store, now, warn=warn, report=narrate)
        return now


def _follow_first_trial(store: Store, search: ExperimentRow, follow: FollowOptions) -> int:
    """Print the output of a search's first trial until that ends, as ``fabric logs --follow`` does; it is 0 then."""
    from workbench.cli.follow.log_output import follow_log
    from workbench.services.control.searches import exit_code_of_search, wait_for_first_trial
    from workbench.services.follow.log_reader import LogQuery, learners_of
    from workbench.store.queries.experiments import short_experiment_id
    from workbench.terminal.errors import warn

    nine = short_experiment_id(search.id)
    again = f"`fabric experiment trials {nine}` lists its trials"
    try:
        now, trial = wait_for_first_trial(store, search, warn=warn)
        if trial is None:
            narrate(f"{search.name} is over without a trial; `fabric experiment show {nine}` says why")
            return exit_code_of_search(now)
        again = f"`fabric logs -f {short_id(trial.id)}` follows it again"
        if not follow.quiet:
            narrate(f"{short_id(trial.id)} {trial.name}: the first trial; its output follows")
        query = LogQuery(learners=learners_of(trial, None), attempt=trial.attempt, prefix=follow.prefix)
        follow_log(store, trial, query)
    except KeyboardInterrupt:
        narrate(f"left {search.name}; it goes on. {again}")
        raise
    return 0


def submit_and_narrate(
    store: Store, submission: JobSubmission, *, keep_manifest: bool = False, quiet: bool
) -> JobRow:
    """Submit a job, and write on stderr what it is; ``quiet`` writes only its warnings.

    With ``keep_manifest`` the manifest, which was generated, is written to a file that is named.
    """
    from workbench.services.submit.submit import submission_lines, submit
    from workbench.terminal.errors import warn

    for warning in submission.warnings:
        warn(warning)
    row = submit(store, submission, origin=ORIGIN, keep_manifest=keep_manifest)
    if not quiet:
        manifest = [f"manifest: {store.home.job(row.id).manifest}"] if keep_manifest else []
        notes = (f"note: {note}" for note in submission.notes)
        for line in (*submission_lines(submission, row), *manifest, *notes):
            narrate(line)
    return row


def print_detached(row: JobRow, *, json: bool, quiet: bool) -> int:
    """Print a job's id, or its document, and on stderr the command that follows it."""
    if json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document(job_document(row))
        return 0
    print(row.id)
    if not quiet:
        narrate(f"it runs in the background; `fabric attach {short_id(row.id)}` follows it")
    return 0


def _finish(store: Store, row: JobRow, code: int, follow: FollowOptions) -> int:
    from workbench.cli.follow.report import finish
    from workbench.store.db.rows import is_over
    from workbench.store.queries.jobs import job

    now = job(store, row.id) or row
    # A command that has left the job does not wait for its end.
    return finish(store, [(now, code)], follow) if follow.needs_the_end and is_over(now) else code


def _submit_all(store: Store, batch: JobBatch, *, quiet: bool) -> list[JobRow]:
    from workbench.terminal.code import terminal_code_options

    submissions = batch.prepare(store.home, launch=True, code_options=terminal_code_options(quiet=quiet))
    rows: list[JobRow] = []
    for options, submission in zip(batch.options, submissions, strict=True):
        rows.append(submit_and_narrate(store, submission, keep_manifest=not options.manifest, quiet=True))
        if not quiet:
            narrate(_line(rows[-1], batch, options, len(rows)))
            for note in submission.notes:
                narrate(f"note: {note}")
    if batch.label and not quiet:
        narrate(f"{count(len(rows), 'job')} with the label {batch.label}")
    return rows


def _warn_of_hang(store: Store) -> None:
    """Say that a controller is there which does not answer: nobody stays here to see that nothing begins."""
    from workbench.services.controller import describe_hang
    from workbench.terminal.errors import warn

    if hang := describe_hang(store.home):
        warn(hang)


def _line(row: JobRow, batch: JobBatch, options: RunOptions, number: int) -> str:
    if batch.label:
        return f"{short_id(row.id)} {row.name}: {' '.join(options.overrides)}"
    total = len(batch.options)
    return f"{short_id(row.id)} {row.name}: {number} of {total}, {row.target.runner} on {row.target.backend}"


def _print_detached(rows: Sequence[JobRow], batch: JobBatch, follow: FollowOptions) -> int:
    if follow.json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document([job_document(row) for row in rows])
        return 0
    for row in rows:
        print(row.id)
    if not follow.quiet:
        narrate(f"they run in the background; `{_come_back(rows, batch)}` waits for them")
    return 0


def _come_back(rows: Sequence[JobRow], batch: JobBatch) -> str:
    chosen = f"--label {batch.label}" if batch.label else " ".join(short_id(row.id) for row in rows)
    return f"fabric wait {chosen}"


def _follow(store: Store, rows: list[JobRow], batch: JobBatch, follow: FollowOptions) -> int:
    from workbench.cli.follow.attach import exit_code_of
    from workbench.cli.follow.many import follow_all, print_ended
    from workbench.cli.follow.report import finish

    ended, code = follow_all(
        store,
        rows,
        policy=follow.on_interrupt,
        json=follow.json,
        quiet=follow.quiet,
        come_back=_come_back(rows, batch),
        timeout_seconds=follow.timeout_seconds,
    )
    if code is not None:
        return code
    codes = [(row, exit_code_of(row)) for row in ended]
    if not (follow.quiet or follow.json):
        print_ended(ended, batch.label)
    if follow.notify:
        from workbench.cli.follow.notifications import notify

        notify("fabric", ", ".join(f"{row.name} {row.state.lower()}" for row in ended))
    if follow.needs_the_end:
        return finish(store, codes, follow)
    return next((each for _, each in codes if each), 0)

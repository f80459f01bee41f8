"""What ``fabric run`` and ``fabric rerun`` do and print: they submit jobs, and follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError
from workbench.formats import count
from workbench.job import short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.cli.follow.attach import Notices
    from workbench.cli.follow.report import Wishes
    from workbench.cli.follow.signals import Policy
    from workbench.services.submit.batch import JobBatch
    from workbench.services.submit.options import RunOptions
    from workbench.services.submit.prepare import JobSubmission
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


ORIGIN: Final = "cli"


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job is followed, and what happens at its end; None leaves it to variables and configuration."""

    detach: bool | None = None
    accept_loss: bool = False
    """Whether results may be lost that nobody fetches in time."""
    on_interrupt: str | None = None
    no_prefix: bool | None = None
    quiet: bool | None = None
    json: bool = False
    timeout: str | None = None
    """A length of time."""
    require: tuple[str, ...] = ()
    junit: str = ""
    summary: str = ""
    notify: bool | None = None
    notify_when: str | tuple[str, ...] | None = None


def settled(ways: Ways) -> Ways:
    """Return the same with what ``FABRIC_*`` variables and the configuration say where the words say nothing."""
    from workbench.config import load_config, resolve_option

    config = load_config()

    def said(name: str, default: Any = None) -> Any:
        return resolve_option(name, getattr(ways, name), config, default=default)[0]

    return replace(
        ways,
        detach=said("detach", False),
        on_interrupt=said("on_interrupt"),
        no_prefix=said("no_prefix", False),
        quiet=said("quiet", False),
        timeout=said("timeout"),
        notify=said("notify", False),
        notify_when=said("notify_when"),
    )


def start(batch: JobBatch, ways: Ways) -> int:
    """Submit the jobs of a batch, follow them unless they are detached, and return the exit code."""
    from workbench.cli.follow.signals import policy_of
    from workbench.services.open_store import open_store
    from workbench.services.submit.submit import ControllerStart

    told, ways = ways, settled(ways)
    plan = Plan.of(ways, told)
    policy = policy_of(ways.on_interrupt)
    with open_store() as store, ControllerStart(store.home):
        if batch.is_single:
            return _start_one(store, batch, ways, plan, policy)
        rows = _submit_all(store, batch, quiet=bool(ways.quiet) or ways.json)
        if ways.detach:
            return _print_detached(rows, batch, ways)
        return _follow(store, rows, batch, ways, plan, policy)


def _start_one(store: Store, batch: JobBatch, ways: Ways, plan: Plan, policy: Policy) -> int:
    from workbench.cli.follow.attach import attach_to
    from workbench.terminal.code import taking_code

    quiet = bool(ways.quiet)
    (submission,) = batch.prepare(store.home, launch=True, taking=taking_code(quiet=quiet))
    if ways.detach and not ways.accept_loss:
        from workbench.services.submit.preview import refuse_loss

        refuse_loss(submission, store.home)
    row = submit_and_narrate(
        store, submission, keep_manifest=not batch.options[0].manifest, quiet=quiet or ways.json
    )
    if ways.detach:
        return print_detached(row, json=ways.json, quiet=quiet)
    code = attach_to(
        store,
        row,
        policy=policy,
        json=ways.json,
        prefix=not ways.no_prefix,
        quiet=quiet,
        fresh=True,
        notices=plan.notices,
        timeout_seconds=plan.timeout_seconds,
    )
    return _finish(store, row, code, plan.wishes)


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
        narrate(f"it runs on by itself; `fabric attach {short_id(row.id)}` follows it")
    return 0


def _finish(store: Store, row: JobRow, code: int, wishes: Wishes) -> int:
    from workbench.cli.follow.report import finish
    from workbench.store.db.rows import is_over
    from workbench.store.jobs import job

    now = job(store, row.id) or row
    # Who has left the job knows nothing of its end.
    return finish(store, [(now, code)], wishes) if wishes and is_over(now) else code


@dataclass(frozen=True, slots=True)
class Plan:
    """What the ways come to, once they are understood; all of it is checked before anything starts."""

    timeout_seconds: float | None
    notices: Notices
    wishes: Wishes

    @classmethod
    def of(cls, ways: Ways, told: Ways) -> Plan:
        """Understand the ways; ``told`` is what the words alone say of them.

        Raises:
            UsageError: one of them cannot be read, or needs somebody who waits.
            CannotWrite: a report cannot be written.
        """
        from workbench.cli.follow.attach import Notices
        from workbench.cli.follow.report import Wishes, check
        from workbench.services.durations import seconds_of
        from workbench.services.filters import read_conditions

        when = (ways.notify_when,) if isinstance(ways.notify_when, str) else ways.notify_when or ()
        plan = cls(
            None if ways.timeout is None else seconds_of(ways.timeout, "--timeout"),
            Notices(bool(ways.notify), read_conditions(when)),
            Wishes(read_conditions(ways.require), ways.junit, ways.summary),
        )
        if ways.detach and plan.wishes:
            raise UsageError(
                "--require, --junit and --summary need somebody who waits for the end",
                hint="leave --detach out, or use them with `fabric wait`",
            )
        if ways.detach and told.timeout is not None:
            raise UsageError(
                "--timeout needs somebody who waits for the end",
                hint=f"--set max_runtime={told.timeout} is kept at the place",
            )
        check(plan.wishes)
        return plan


def _submit_all(store: Store, batch: JobBatch, *, quiet: bool) -> list[JobRow]:
    from workbench.terminal.code import taking_code

    submissions = batch.prepare(store.home, launch=True, taking=taking_code(quiet=quiet))
    rows: list[JobRow] = []
    for options, submission in zip(batch.options, submissions, strict=True):
        rows.append(submit_and_narrate(store, submission, keep_manifest=not options.manifest, quiet=True))
        if not quiet:
            narrate(_line(rows[-1], batch, options, len(rows)))
    if batch.label and not quiet:
        narrate(f"{count(len(rows), 'job')} with the label {batch.label}")
    return rows


def _line(row: JobRow, batch: JobBatch, options: RunOptions, number: int) -> str:
    if batch.label:
        return f"{short_id(row.id)} {row.name}: {' '.join(options.overrides)}"
    total = len(batch.options)
    return f"{short_id(row.id)} {row.name}: {number} of {total}, {row.place.runner} at {row.place.backend}"


def _print_detached(rows: Sequence[JobRow], batch: JobBatch, ways: Ways) -> int:
    if ways.json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document([job_document(row) for row in rows])
        return 0
    for row in rows:
        print(row.id)
    if not ways.quiet:
        narrate(f"they run on by themselves; `{_come_back(rows, batch)}` waits for them")
    return 0


def _come_back(rows: Sequence[JobRow], batch: JobBatch) -> str:
    chosen = f"--label {batch.label}" if batch.label else " ".join(short_id(row.id) for row in rows)
    return f"fabric wait {chosen}"


def _follow(store: Store, rows: list[JobRow], batch: JobBatch, ways: Ways, plan: Plan, policy: Policy) -> int:
    from workbench.cli.follow.attach import exit_code_of
    from workbench.cli.follow.many import follow_all, tell_ended
    from workbench.cli.follow.report import finish

    ended, code = follow_all(
        store,
        rows,
        policy=policy,
        json=ways.json,
        quiet=bool(ways.quiet),
        come_back=_come_back(rows, batch),
        timeout_seconds=plan.timeout_seconds,
    )
    if code is not None:
        return code
    codes = [(row, exit_code_of(row)) for row in ended]
    if not (ways.quiet or ways.json):
        tell_ended(ended, batch.label)
    if plan.notices.at_end:
        from workbench.cli.follow.notifications import notify

        notify("fabric", ", ".join(f"{row.name} {row.state.lower()}" for row in ended))
    if plan.wishes:
        return finish(store, codes, plan.wishes)
    return next((each for _, each in codes if each), 0)

"""``fabric show``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import JobOrSearch, Json
from workbench.formats import ago, count, duration, number, percent, printable, size, stamp
from workbench.job import short_id
from workbench.learner.texts import escaped
from workbench.terminal.console import state_style, width
from workbench.terminal.table import Column, fields, render

if TYPE_CHECKING:
    from workbench.services.inspect.job_overview import AttemptOverview, JobOverview
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow, LearnerRow
    from workbench.store.queries.experiments import ExperimentRow
    from workbench.store.queries.members import NotMade

Origin = Annotated[bool, typer.Option("--origin", help="Show each setting and where its value came from.")]
History = Annotated[bool, typer.Option("--history", help="Show everything that happened, with who and when.")]
ShowManifest = Annotated[bool, typer.Option("--manifest", help="Print the manifest as it was submitted.")]


SHOWN_METRICS = 12
SHOWN_NOTES = 5


@command(
    "show",
    "fabric show @last",
    "fabric show digits --origin",
    "fabric show 'digits[2]'",
    "fabric show @last --json",
)
def show(
    job: JobOrSearch,
    origin: Origin = False,
    history: History = False,
    manifest: ShowManifest = False,
    json: Json = False,
) -> None:
    """Show one job: state, why, times, settings, results.

    Of a search it shows what `fabric experiment show` does. Of a job of an array that is not made yet it shows why, and
    the parameters that it will have.
    """
    from workbench.store.queries.members import NotMade

    try:
        _show(job, origin=origin, history=history, manifest=manifest, json=json)
    except NotMade as found:
        if origin or history or manifest:
            raise
        _show_unmade(found, json=json)


def _show(job: str, *, origin: bool, history: bool, manifest: bool, json: bool) -> None:
    from workbench.services.follow.full_disk import store_trouble
    from workbench.services.open_store import store_with_any
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.jobs import detail
    from workbench.terminal.errors import warn

    with store_with_any(job) as (store, row):
        if not isinstance(row, JobRow):
            _show_search(store, row, is_job_wanted=origin or history, manifest=manifest, json=json)
            return
        if trouble := store_trouble(store.home, [row]):
            warn(trouble)
        if json:
            from workbench.services.inspect.job_document import describe
            from workbench.terminal.json_output import print_document

            print_document(describe(store, row.id))
        elif manifest:
            sys.stdout.write(detail(store, row.id).manifest_text.rstrip("\n") + "\n")
        elif origin:
            _print_origins(detail(store, row.id))
        elif history:
            _print_history(store, row)
        else:
            from workbench.clock import now_us
            from workbench.services.inspect.job_overview import overview

            now = now_us()
            page = overview(store, row.id, now)
            if page.error:
                raise page.error
            sys.stdout.write(_overview(page, now))


def _show_unmade(found: NotMade, *, json: bool) -> None:
    from workbench.services.submit.search_preview import sample_text
    from workbench.store.queries.experiments import short_experiment_id

    job = found.unmade
    if json:
        from workbench.services.inspect.job_document import unmade_document
        from workbench.terminal.json_output import print_document

        print_document(unmade_document(job))
        return
    state = "not made yet" if job.will_be_made else "never made"
    of = f"{short_experiment_id(job.search.id)} {job.search.name}, {job.search.state}"
    pairs = [
        ("why", job.reason),
        *(("what to do", hint) for hint in (found.hint,) if hint),
        (job.kind, f"{of}: job {job.number:,} of {job.count:,}"),
        (
            "params",
            "chosen when its turn comes" if job.hparams is None else printable(sample_text(job.hparams)),
        ),
    ]
    sys.stdout.write(f"{job.id}  {job.name or ''}".rstrip() + f"  {state}\n\n{fields(pairs)}")


def _show_search(
    store: Store, row: ExperimentRow, *, is_job_wanted: bool, manifest: bool, json: bool
) -> None:
    from workbench.cli.follow.report import print_experiment
    from workbench.errors import UsageError
    from workbench.store.queries.experiments import read_experiment_file, short_experiment_id

    if is_job_wanted:
        raise UsageError(
            f"{row.name} is a search: --origin and --history are of a job",
            hint=f"`fabric experiment trials {short_experiment_id(row.id)}` lists its jobs",
        )
    if manifest:
        text = str(read_experiment_file(store.home, row.id)["manifest_text"])
        sys.stdout.write(text.rstrip("\n") + "\n")
    else:
        print_experiment(store, row, json=json)


def _print_origins(detail: JobDetail) -> None:
    from workbench.services.inspect.settings import job_settings, origin_of

    rows = [
        [key, _plain(value), origin_of(detail.origins, key)] for key, value in job_settings(detail).items()
    ]
    columns = [Column("SETTING"), Column("VALUE", stretch=True), Column("FROM")]

    sys.stdout.write(render(columns, rows, width=width(120)))


def _plain(value: Any) -> str:
    if value is None or value == {} or value == []:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _print_history(store: Store, row: JobRow) -> None:
    from workbench.store.queries.jobs import transitions

    rows = [
        [
            stamp(event.time_us),
            str(event.attempt),
            event.state or event.kind,
            event.who,
            event.origin,
            event.text,
        ]
        for event in transitions(store, row.id)
    ]
    columns = [Column("TIME"), Column("ATTEMPT", right=True), Column("WHAT"), Column("WHO"), Column("FROM")]
    columns.append(Column("WHY", stretch=True))
    sys.stdout.write(render(columns, rows, width=width(140)))


def _overview(page: JobOverview, now_us: int) -> str:
    """Return what ``fabric show`` prints."""
    row = page.row
    heading = f"{row.id}  {row.name}  {state_style(row.state, stream=sys.stdout)}\n\n"
    pairs = [
        *_why(page, now_us),
        *(_what(page, page.detail.spec) if page.detail else ()),
        *_code(page),
        *_data(page),
        *_measured(page),
        *_where(page),
    ]
    return heading + fields(pairs) + _attempts(page)


def _why(page: JobOverview, now_us: int) -> Iterator[tuple[str, str]]:
    from workbench.services.inspect.why import why

    row = page.row
    if said := why(row, now_us):
        yield "why", said
    if row.reason.hint:
        yield "what to do", row.reason.hint
    if row.exit_code is not None:
        whose = f" ({row.exit_by})" if row.exit_by not in ("", "job") else ""
        yield "exit code", f"{row.exit_code}{whose}"
    yield "submitted", f"{stamp(row.submitted_us)} ({ago(row.submitted_us, now_us)}) by {row.owner}"


def _what(page: JobOverview, spec: JobSpec) -> Iterator[tuple[str, str]]:
    row = page.row
    yield "backend", f"{row.target.backend}, as {row.target.runner}"
    learners = count(row.learners, "learner")
    yield "asked for", f"{learners}, each {_resources(spec)}" if row.learners > 1 else _resources(spec)
    yield "command", spec.framework.command
    if spec.description:
        yield "description", spec.description
    if spec.params:
        yield "params", printable(" ".join(f"{key}={value}" for key, value in spec.params.items()))
    if row.labels:
        yield "labels", " ".join(f"{key}={value}" for key, value in row.labels.items())
    if spec.ports and row.target.runner == "container":
        yield "ports", " ".join(f"127.0.0.1:{port}" for port in spec.ports)
    if page.port_forward:
        yield "ports", f"forwarded by {page.port_forward}"
    if row.parent:
        yield "belongs to", row.parent


def _resources(spec: JobSpec) -> str:
    parts = [count(spec.gpus, "GPU")]
    cpus = "CPU" if spec.cpus == 1 else "CPUs"
    parts.append(f"{spec.cpus:g} {cpus}" if spec.cpus else "CPUs not reserved")
    parts.append(size(spec.memory_bytes) if spec.memory_bytes else "memory not limited")
    return ", ".join(parts)


def _code(page: JobOverview) -> Iterator[tuple[str, str]]:
    code = page.code
    if code.hash:
        yield "code", f"{code.hash[:12]}{f'  from {code.source}' if code.source else ''}"
    if code.commit:
        branch = f" on {code.branch}" if code.branch else ""
        changes = ", with changes that were not committed" if code.uncommitted else ""
        yield "git", f"{code.commit[:12]}{branch}{changes}"
    if code.python:
        yield "python", f"{code.interpreter} with {count(code.packages, 'package')}"


def _data(page: JobOverview) -> Iterator[tuple[str, str]]:
    for each in page.data:
        amount = f"{count(each.files, 'file')}, {size(each.size_bytes)}"
        yield "data", f"{each.path} of {each.store}: {amount}, fingerprint {each.fingerprint[:12]}"


def _measured(page: JobOverview) -> Iterator[tuple[str, str]]:
    from workbench.metrics.short_names import shared_folder

    values = page.metrics
    if values:
        shared = shared_folder(each.name for each in values)
        shown = [
            f"{escaped(each.name.removeprefix(shared))}={number(each.last)}{page.learner_mark(each)}"
            for each in values[:SHOWN_METRICS]
        ]
        more = f" and {len(values) - SHOWN_METRICS} more" if len(values) > SHOWN_METRICS else ""
        yield "metrics", " ".join(shown) + more
    if page.progress:
        fraction = "" if page.progress.fraction is None else percent(page.progress.fraction)
        yield "progress", f"{fraction} {page.progress.text}".strip()
    described, others = _notes(page)
    for text in described:
        yield "experiment", text
    for text in others[-SHOWN_NOTES:]:
        yield "note", text
    if page.checkpoints:
        newest = page.checkpoints[-1]
        step = f" (step {newest.step})" if newest.step is not None else ""
        yield "checkpoints", f"{len(page.checkpoints)}, the last {newest.path}{step}"


def _notes(page: JobOverview) -> tuple[list[str], list[str]]:
    """Return what the code of an experiment without a file says of it, the newest of each kind, and other notes.

    The former come as the code begins, and what is noted later must not push them out.
    """
    if not page.notes:
        return [], []
    # Most jobs have no notes, and each `fabric show` would wait for it.
    from workbench.learner.determined_jobs import CONFIG_VARIABLE, NOTED, UNMANAGED, json_object, noted_as

    config = page.detail.spec.env.get(CONFIG_VARIABLE) if page.detail else None
    is_unmanaged = json_object(config).get(UNMANAGED) is True
    beginnings = [noted_as(name) for name in NOTED] if is_unmanaged else []
    newest: dict[str, str] = dict.fromkeys(beginnings, "")
    others: list[str] = []
    for text in (note.text for note in page.notes):
        beginning = next(filter(text.startswith, beginnings), None)
        if beginning is None:
            others.append(text)
        else:
            newest[beginning] = text
    return [text.partition(" ")[2] for text in newest.values() if text], others


def _where(page: JobOverview) -> Iterator[tuple[str, str]]:
    yield "results", page.results
    yield "folder", str(page.paths.folder)
    if page.paths.manifest:
        yield "manifest", str(page.paths.manifest)
    yield "logs", f"fabric logs {short_id(page.row.id)}"


def _attempts(page: JobOverview) -> str:
    lines = []
    for attempt in page.attempts:
        are_apart = len({each.node for each in attempt.learners}) > 1
        node = f" on {attempt.row.node}" if attempt.row.node and not are_apart else ""
        lines.append(f"\nattempt {attempt.row.attempt}: {attempt.outcome}{node}")
        lines += [f"  {phase:12} {text}" for phase, text in _phases(attempt)]
        if len(attempt.learners) > 1 or any(each.slots for each in attempt.learners):
            is_one = len(attempt.learners) == 1
            lines += [
                f"  {_learner(each, is_one=is_one, at=each.node if are_apart else '')}"
                for each in attempt.learners
            ]
    return "\n".join(lines) + "\n" if lines else ""


def _phases(attempt: AttemptOverview) -> Iterator[tuple[str, str]]:
    for each in attempt.phases:
        took = "" if each.phase == "ended" else f"  {duration(each.seconds)}"
        yield each.phase, stamp(each.began_us) + took


def _learner(learner: LearnerRow, *, is_one: bool, at: str) -> str:
    end = f" with {learner.exit_code}" if learner.exit_code is not None else ""
    end += f" by signal {learner.signal}" if learner.signal else ""
    slots = f" on {', '.join(learner.slots)}" if learner.slots else ""
    decided = ", which decided how the job ended" if learner.decided and not is_one else ""
    why = f": {learner.reason.text}" if learner.reason and learner.reason.text else ""
    place = f" at {at}" if at else ""
    return f"learner {learner.learner}{place} {learner.phase.value}{end}{slots}{decided}{why}"

"""Reports of jobs and searches that have ended: lines, verdicts on stderr, files, the exit code of the command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.terminal.console import narrate, state_style
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.cli.follow.options import FollowOptions
    from workbench.documents.experiments import ExperimentDocument
    from workbench.documents.jobs import JobDocument
    from workbench.services.inspect.job_report import JobReport
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow


@dataclass(frozen=True, slots=True)
class EndedSearch:
    """A search that is over, as it is reported: by its trials."""

    row: ExperimentRow
    trials: tuple[tuple[JobRow, int], ...]
    """Their jobs with the exit codes; these do not count, as a search goes on where trials fail."""
    best: JobRow | None
    """The job of the best trial, against which requirements hold; None where none has reported the metric."""


def finish(store: Store, ended: Sequence[tuple[JobRow | EndedSearch, int]], options: FollowOptions) -> int:
    """Check the requirements of what has ended, write the reports, and return the exit code.

    It is that of the first that failed; else 1 where a requirement is not met.
    """
    from workbench.services.inspect.job_report import EXIT_NOT_MET, report_job

    reports: list[JobReport] = []
    is_met = True
    for each, code in ended:
        if not isinstance(each, EndedSearch):
            reports.append(report_job(store, each, code, options.require))
            continue
        if options.require and each.best is None:
            is_met = False
            narrate(f"not met: {each.row.name}: no trial has reported {each.row.metric or 'a metric'}")
        for row, trial_code in each.trials:
            is_best = each.best is not None and row.id == each.best.id
            reports.append(report_job(store, row, trial_code, options.require if is_best else ()))
    is_named = len(reports) > 1 or any(isinstance(each, EndedSearch) for each, _ in ended)
    for report in reports:
        for verdict in report.verdicts:
            whose = f"{report.row.name}: " if is_named else ""
            narrate(f"{'met' if verdict.holds else 'not met'}: {whose}{verdict.sentence}")
    options.report_files.write(reports)
    is_met &= all(verdict.holds for report in reports for verdict in report.verdicts)
    failure = next((code for _, code in ended if code), 0)
    return failure or (0 if is_met else EXIT_NOT_MET)


def ended_search(store: Store, row: ExperimentRow, options: FollowOptions) -> EndedSearch:
    """Return a search that is over, or paused, with what its report asks for."""
    from workbench.cli.follow.attach import exit_code_of
    from workbench.cli.follow.options import NO_FILES
    from workbench.store.queries.experiments import best_trial, trial_job_ids, trial_jobs, trials
    from workbench.store.queries.jobs import job

    best: JobRow | None = None
    if options.require:
        there = set(trial_job_ids(store, row.id))
        found = best_trial(row, [one for one in trials(store, row.id) if one.job_id in there])
        best = None if found is None else job(store, found.job_id)
    # Each costs its log and its series: of many thousands only what is asked for is read.
    reported = trial_jobs(store, row.id) if options.report_files != NO_FILES else [best] if best else []
    return EndedSearch(row, tuple((each, exit_code_of(each)) for each in reported), best)


def documents_of(
    store: Store, found: Sequence[JobRow | ExperimentRow]
) -> list[JobDocument | ExperimentDocument]:
    """Return jobs and searches as documents."""
    from workbench.services.inspect.job_document import job_document
    from workbench.services.submit.experiments import experiment_document
    from workbench.store.db.rows import JobRow

    return [
        job_document(each) if isinstance(each, JobRow) else experiment_document(store, each) for each in found
    ]


def print_ends(store: Store, found: Sequence[JobRow | ExperimentRow]) -> None:
    """Print a line for each job and each search: how it ended, or how it stands."""
    from workbench.job import short_id
    from workbench.store.db.rows import JobRow

    for row in found:
        if isinstance(row, JobRow):
            code = "" if row.exit_code is None else f"  exit code {row.exit_code}"
            reason = f"  {row.reason.text}" if row.reason.text else ""
            print(f"{short_id(row.id)}  {row.name}  {state_style(row.state)}{code}{reason}")
        else:
            print(search_line(store, row))


def search_line(store: Store, row: ExperimentRow) -> str:
    """Return how a search stands in a line."""
    from workbench.formats import count
    from workbench.services.submit.experiments import best_text, experiment_document
    from workbench.store.queries.experiments import short_experiment_id

    document = experiment_document(store, row)
    parts = [
        short_experiment_id(row.id),
        row.name,
        state_style(row.state),
        count(document["trials"], "trial"),
    ]
    best = best_text(row.metric, document["best"])
    return "  ".join([*parts, *filter(None, (best and f"best {best}", row.reason))])


def print_experiment(store: Store, row: ExperimentRow, *, json: bool) -> None:
    """Print how a search stands."""
    from workbench.services.submit.experiments import best_text, experiment_document
    from workbench.terminal.table import fields

    document = experiment_document(store, row)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(document)
        return
    goal = f", {row.goal} {row.metric}" if row.metric else ""
    pairs = [
        ("experiment", row.id),
        ("name", row.name),
        *(("description", text) for text in (document["description"],) if text),
        *(("labels", text) for text in (_labels_text(document),) if text),
        *(("tags", text) for text in (" ".join(document["tags"]),) if text),
        *(("note", text) for text in (document["note"],) if text),
        ("state", row.state + (f": {row.reason}" if row.reason else "")),
        ("method", f"{row.method}{goal}"),
        ("trials", _trials_text(document)),
        *(("rungs", text) for text in (_rungs_text(document),) if text),
        *(("ends", text) for text in (_end_text(document),) if text),
        ("best", best_text(row.metric, document["best"]) or "none has reported yet"),
    ]
    print(fields(pairs), end="")


def _labels_text(document: ExperimentDocument) -> str:
    return " ".join(f"{name}={value}" for name, value in document["labels"].items())


def _trials_text(document: ExperimentDocument) -> str:
    begun, expected, running = document["trials"], document["expected_trials"], document["running"]
    of = f"{begun:,}" if expected == begun else f"{begun:,} of {expected:,}"
    waiting = begun - document["ended_trials"] - running
    parts = [f"{of} begun", f"{document['ended_trials']:,} over"]
    parts += [f"{running:,} under way"] if running else []
    parts += [f"{waiting:,} halted"] if waiting else []
    return ", ".join(parts)


def _rungs_text(document: ExperimentDocument) -> str:
    return ", ".join(f"{each['units']:,}: {each['reached']:,}" for each in document["rungs"])


def _end_text(document: ExperimentDocument) -> str:
    """Return when a search probably ends; empty where nobody can tell."""
    from workbench.clock import now_us
    from workbench.formats import clock_time, duration
    from workbench.time_expressions import iso_us

    now = now_us()
    end = None if document["expected_end"] is None else iso_us(document["expected_end"])
    if end is None or end <= now:
        return ""
    return f"in about {duration((end - now) / 1e6)}, at {clock_time(end, now_us=now)}"

"""Describes a followed job: what happens, its latest metrics, how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.formats import MICROSECONDS, duration, number
from workbench.job import PREPARING, State, short_id
from workbench.store.db.rows import run_us

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow, SeriesRow

SHOWN_METRICS = 6
RUNS = "the command runs"
"""The controller's text for a running job without news."""

COMMAND_FAILED = "C201"
"""The reason code of a command that ended with another exit code than 0, or by a signal."""
HINT = "hint: "

VERBS = {
    State.QUEUED: "waits",
    State.PENDING: "starting",
    State.DOWNLOADING: "downloading code and data",
    State.PROCESSING: "runs",
    State.STORING: "stores its results",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.HALTED: "was halted",
}


def state_line(row: JobRow) -> str:
    """Say where a job is: ``abcdefghj digits waits: 1 of 2 GPUs is free``."""
    attempt = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    # The verb says that it runs; what the controller adds to it is news.
    text = row.reason.text.removeprefix(RUNS).removeprefix("; ")
    # One that is prepared ahead of its turn waits before, meanwhile and after in the same words.
    is_waiting = row.state in PREPARING and text.startswith(VERBS[State.QUEUED])
    verb = VERBS[State.QUEUED if is_waiting else row.state]
    if row.state in PREPARING and not is_waiting:
        return f"{short_id(row.id)} {row.name}{attempt}: {text or verb}"
    if text == verb or text.startswith((f"{verb} ", f"{verb}:")):
        reason = text.removeprefix(verb)  # it begins as we do
    else:
        reason = f": {text}" if text else ""
    return f"{short_id(row.id)} {row.name} {verb}{attempt}{reason}"


def is_own_failure(row: JobRow) -> bool:
    """Return whether only a job's command failed: its output and exit code then explain its end."""
    return row.state is State.FAILED and row.reason.code == COMMAND_FAILED


def quiet_lines(row: JobRow) -> list[str]:
    """Return the lines about a job's end that its output cannot have; they are shown where only it is wanted, too."""
    if row.state is State.COMPLETED or is_own_failure(row):
        return []
    first, *rest = ended_lines(row, "")
    return [first, *(line for line in rest if line.startswith(HINT))]


def metrics_line(series: Sequence[SeriesRow]) -> str:
    """Return the latest values in one line, ``step 10 loss=0.3``; empty where there are none."""
    from workbench.metric_names import main_metrics

    values: dict[str, SeriesRow] = {}
    for row in series:
        if row.kind == "value" and row.points and row.name not in values:
            values[row.name] = row
    if not values:
        return ""
    shown = [values[name] for name in main_metrics(values, SHOWN_METRICS)]
    steps = [row.last_step for row in shown if row.last_step is not None]
    parts = [f"step {max(steps)}"] if steps else []
    parts += [f"{row.name}={number(row.last)}" for row in shown]
    return " ".join(parts) + (" ..." if len(values) > SHOWN_METRICS else "")


def ended_lines(row: JobRow, results: str) -> list[str]:
    """Say how a job ended, where its results are, and which command goes on from there."""
    took = ""
    if row.ended_us and (ran_us := run_us(row, row.ended_us)) is not None:
        took = f" after {duration(ran_us / MICROSECONDS)}"
    code = "" if row.exit_code is None else f", exit code {row.exit_code}"
    code += f" ({row.exit_by})" if row.exit_by not in ("", "job") else ""
    reason = f": {row.reason.text}" if row.reason.text and row.state is not State.COMPLETED else ""
    lines = [f"{short_id(row.id)} {row.name} {VERBS[row.state]}{took}{code}{reason}"]
    if row.reason.hint:
        lines.append(f"{HINT}{row.reason.hint}")
    job_name = short_id(row.id)
    if row.started_us is None:
        lines.append(f"nothing was started; `fabric show {job_name}` says more")
    elif row.state is State.COMPLETED:
        lines.append(f"results: {results}   (fabric show {job_name}; fabric download {job_name} results)")
    elif row.state is State.HALTED:
        lines.append(
            f"results so far: {results}   (fabric resume {job_name} continues it; fabric show {job_name})"
        )
    else:
        lines.append(f"results so far: {results}   (fabric show {job_name}; fabric logs {job_name})")
    return lines

"""Describes a followed job: what happens, its latest metrics, how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.formats import duration, number
from workbench.job import State, short_id

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow, SeriesRow

SHOWN_METRICS = 6
MICROSECONDS = 1_000_000
RUNS = "the command runs"
"""The controller's text for a running job without news."""

VERBS = {
    State.QUEUED: "waits",
    State.PENDING: "is being started",
    State.DOWNLOADING: "brings in code and data",
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
    verb = VERBS[row.state]
    if text == verb or text.startswith((f"{verb} ", f"{verb}:")):
        reason = text.removeprefix(verb)  # it begins as we do
    else:
        reason = f": {text}" if text else ""
    return f"{short_id(row.id)} {row.name} {verb}{attempt}{reason}"


def metrics_line(series: Sequence[SeriesRow]) -> str:
    """Return the latest values in one line, ``step 10 loss=0.3``; empty where there are none."""
    values: dict[str, SeriesRow] = {}
    for row in series:
        if row.kind == "value" and row.points and row.name not in values:
            values[row.name] = row
    if not values:
        return ""
    # The metric that moved last leads, so that what trains now is not cut off.
    newest = sorted(values.values(), key=lambda row: row.last_time_us or 0, reverse=True)[:SHOWN_METRICS]
    shown = {row.name for row in newest}
    steps = [row.last_step for row in newest if row.last_step is not None]
    parts = [f"step {max(steps)}"] if steps else []
    parts += [f"{name}={number(row.last)}" for name, row in values.items() if name in shown]
    return " ".join(parts) + (" ..." if len(values) > SHOWN_METRICS else "")


def ended_lines(row: JobRow, results: str) -> list[str]:
    """Say how a job ended, where its results are, and which command goes on from there."""
    took = ""
    if row.ended_us and row.started_us:
        took = f" after {duration((row.ended_us - row.started_us) / MICROSECONDS)}"
    code = "" if row.exit_code is None else f", exit code {row.exit_code}"
    code += f" ({row.exit_by})" if row.exit_by not in ("", "job") else ""
    reason = f": {row.reason.text}" if row.reason.text and row.state is not State.COMPLETED else ""
    lines = [f"{short_id(row.id)} {row.name} {VERBS[row.state]}{took}{code}{reason}"]
    if row.reason.hint:
        lines.append(f"hint: {row.reason.hint}")
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

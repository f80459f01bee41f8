"""The other pages of a job: its usage, its configuration with origins, its files, its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.content import Content

from screens.jobs.queries import JobPage
from screens.style import text
from screens.widgets.markup import bar, facts, heading, page, plain, table
from workbench import formats
from workbench.metrics.queries import UsageRow
from workbench.services.inspect.settings import flatten, origin_of
from workbench.spec import spec_to_json


def config(shown: JobPage, native: Content) -> Content:
    """Return every value that was set with where it came from, the manifest as it was written, and the native plan."""
    if shown.detail is None:
        return plain(str(shown.overview.error), "error")
    rows = [
        (key, _shown(value), plain(origin_of(shown.detail.origins, key), "dim"))
        for key, value in flatten(spec_to_json(shown.detail.spec)).items()
        if origin_of(shown.detail.origins, key) != "default" or value not in (None, "", [], {})
    ]
    return page(
        [heading("Values and their origins"), *table(("key", "value", "from"), rows)],
        [heading("Manifest"), *[plain(f"  {line}") for line in shown.detail.manifest_text.splitlines()]],
        [native],
    )


def _shown(value: Any) -> str:  # any JSON value
    line = str(value).replace("\n", " ")
    return text.shorten(line, 60)


def events(shown: JobPage, now_us: int) -> Content:
    """Return every step, request and intent, the newest first."""
    rows = [
        (
            formats.clock_time(one.time_us, now_us=now_us),
            str(one.attempt),
            plain(one.state.lower() or one.kind, one.state.lower() if one.state else "dim"),
            f"{one.code} {one.text}".strip(),
            plain(one.who if one.who == one.origin else f"{one.who} {one.origin}", "dim"),
        )
        for one in reversed(shown.transitions)
    ]
    asked = [
        (
            formats.clock_time(one.time_us, now_us=now_us),
            one.kind,
            one.outcome or "waits for the backend to confirm",
            plain(f"{one.who} {one.origin}", "dim"),
        )
        for one in reversed(shown.requests)
    ]
    return page(
        [heading("History"), *table(("time", "attempt", "state", "what", "who"), rows)]
        if rows
        else [plain("no events yet", "dim")],
        [heading("Requests"), *table(("time", "request", "outcome", "who"), asked)] if asked else [],
    )


def usage(samples: Sequence[UsageRow], now_us: int) -> Content:
    """Return what each learner's processes use, by their last samples."""
    if not samples:
        return plain("no usage samples yet; learners take one every few seconds", "dim")
    return page(*[_learner_usage(sample, now_us) for sample in samples])


def _learner_usage(sample: UsageRow, now_us: int) -> list[Content]:
    values = sample.values
    cpu, memory = values.get("cpu_percent"), values.get("memory_bytes")
    age = (now_us - sample.time_us) / 1e6
    gpus: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        if name.startswith("gpu/") and name.count("/") == 2:
            _, uuid, field = name.split("/")
            gpus.setdefault(uuid, {})[field] = value
    lines = [
        heading(f"Learner {sample.learner}"),
        *facts(
            (
                ("CPU", "" if cpu is None else f"{cpu:.0f} %"),
                ("memory", "" if memory is None else formats.size(memory)),
                ("processes", f"{values['processes']:.0f}" if "processes" in values else ""),
                ("sampled", plain(f"{formats.duration(age)} ago", "dim" if age > 10 else "text")),
            )
        ),
    ]
    for uuid, fields in gpus.items():
        share = fields.get("utilization_percent", 0.0) / 100
        line = f"{bar(share)} {share:4.0%}  {formats.size(fields.get('memory_bytes', 0.0))}"
        lines += facts([(uuid[:14], line)])
    return lines

"""A job's overview in words: what, where, why, when, and where its results are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.clock import now_us
from workbench.formats import ago, count, duration, number, size, stamp
from workbench.job import TERMINAL, attempt_stem, nine
from workbench.terminal.console import state_style
from workbench.terminal.table import fields

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import AttemptRow, JobDetail, LearnerRow

MICROSECONDS = 1_000_000
SHOWN_METRICS = 12
SHOWN_NOTES = 5
SHOWN_CHECKPOINTS = 3


def overview(store: Store, whole: JobDetail) -> str:
    """Return the page that ``fabric show`` prints."""
    row = whole.row
    heading = f"{row.id}  {row.name}  {state_style(row.state, stream=sys.stdout)}\n\n"
    pairs = [
        *_why(whole),
        *_what(whole),
        *_code(whole),
        *_data(store, whole),
        *_measured(store, whole),
        *_places(store, whole),
    ]
    return heading + fields(pairs) + _attempts(store, whole)


def _why(whole: JobDetail) -> Iterator[tuple[str, str]]:
    row = whole.row
    code = f" ({row.reason.code})" if row.reason.code else ""
    if row.reason.text:
        yield "why", row.reason.text + code
    if row.reason.hint:
        yield "what to do", row.reason.hint
    if row.intent:
        yield "asked for", f"{row.intent}; tried until the place confirms it"
    if row.exit_code is not None:
        whose = f" ({row.exit_by})" if row.exit_by not in ("", "job") else ""
        yield "exit code", f"{row.exit_code}{whose}"
    if row.next_try_us:
        yield "next try", f"in {duration((row.next_try_us - now_us()) / MICROSECONDS)}"
    yield "submitted", f"{stamp(row.submitted_us)} ({ago(row.submitted_us, now_us())}) by {row.owner}"
    if row.seen_us and row.state not in TERMINAL:
        yield "last seen", ago(row.seen_us, now_us())


def _what(whole: JobDetail) -> Iterator[tuple[str, str]]:
    row, spec = whole.row, whole.spec
    yield "place", f"{row.place.backend}, as {row.place.runner}"
    learners = count(row.learners, "learner")
    yield "asked for", f"{learners}, each {_resources(whole)}" if row.learners > 1 else _resources(whole)
    yield "command", spec.framework.command
    if spec.description:
        yield "description", spec.description
    if spec.params:
        yield "params", " ".join(f"{key}={value}" for key, value in spec.params.items())
    if row.labels:
        yield "labels", " ".join(f"{key}={value}" for key, value in row.labels.items())
    if spec.ports and row.place.runner == "container":
        yield "ports", " ".join(f"127.0.0.1:{port}" for port in spec.ports)
    if spec.ports and row.place.runner == "pod":
        yield "ports", f"forwarded by {_forwarding(whole)}"
    if row.parent:
        yield "belongs to", row.parent


def _forwarding(whole: JobDetail) -> str:
    """Return the command that brings the first learner's ports here."""
    row = whole.row
    told = {"kubeconfig": "", "context": "", "namespace": "", **row.place.options}
    words = ["kubectl"]
    words += [f"--{name}={told[name]}" for name in ("kubeconfig", "context", "namespace") if told[name]]
    job = attempt_stem(row.id, row.attempt)
    first = f"job/{job}"
    if row.learners > 1:
        which = f"job-name={job},batch.kubernetes.io/job-completion-index=0"
        first = f"$({' '.join(words)} get pod -l {which} -o name)"
    return " ".join([*words, "port-forward", first, *map(str, whole.spec.ports)])


def _resources(whole: JobDetail) -> str:
    spec = whole.spec
    parts = [count(spec.gpus, "GPU")]
    cpus = "CPU" if spec.cpus == 1 else "CPUs"
    parts.append(f"{spec.cpus:g} {cpus}" if spec.cpus else "CPUs not reserved")
    parts.append(size(spec.memory_bytes) if spec.memory_bytes else "memory not limited")
    return ", ".join(parts)


def _code(whole: JobDetail) -> Iterator[tuple[str, str]]:
    recorded = whole.recorded
    code = recorded.get("code") or {}
    if whole.code_hash:
        source = f"  from {code['source']}" if code.get("source") else ""
        yield "code", f"{whole.code_hash[:12]}{source}"
    git = recorded.get("git") or {}
    if git.get("commit"):
        branch = f" on {git['branch']}" if git.get("branch") else ""
        dirty = ", with changes that were not committed" if git.get("dirty") else ""
        yield "git", f"{git['commit'][:12]}{branch}{dirty}"
    if recorded.get("python"):
        yield "python", f"{recorded['python']} with {count(len(recorded.get('packages') or []), 'package')}"


def _data(store: Store, whole: JobDetail) -> Iterator[tuple[str, str]]:
    from workbench.data.stores.fingerprints import fingerprints

    for each in fingerprints(store.home.job(whole.row.id), whole.row.attempt):
        amount = f"{count(each.files, 'file')}, {size(each.size_bytes)}"
        yield "data", f"{each.path} of {each.store}: {amount}, fingerprint {each.fingerprint[:12]}"


def _measured(store: Store, whole: JobDetail) -> Iterator[tuple[str, str]]:
    from workbench.metrics import checkpoints, latest, notes, progress

    values = latest(store, whole.row.id)
    if values:
        shown = [f"{name}={number(value)}" for name, value in list(values.items())[:SHOWN_METRICS]]
        more = f" and {len(values) - SHOWN_METRICS} more" if len(values) > SHOWN_METRICS else ""
        yield "metrics", " ".join(shown) + more
    for done in progress(store, whole.row.id)[:1]:
        fraction = f"{done.fraction:.0%}" if done.fraction is not None else ""
        yield "progress", f"{fraction} {done.text}".strip()
    for note in [each for each in notes(store, whole.row.id) if each.attempt == whole.row.attempt][
        -SHOWN_NOTES:
    ]:
        yield "note", note.text
    saved = checkpoints(store, whole.row.id)
    if saved:
        newest = [
            f"{each.path}" + (f" (step {each.step})" if each.step is not None else "") for each in saved
        ]
        yield "checkpoints", f"{len(saved)}, the last {newest[-1]}"


def _places(store: Store, whole: JobDetail) -> Iterator[tuple[str, str]]:
    from workbench.services.result_store import result_store

    folder = store.home.job(whole.row.id)
    stored = result_store(whole.spec, whole.row.id)
    yield "results", stored.words if stored else str(folder.results)
    yield "folder", str(folder.path)
    if folder.manifest.exists():
        yield "manifest", str(folder.manifest)
    yield "logs", f"fabric logs {nine(whole.row.id)}"


def _attempts(store: Store, whole: JobDetail) -> str:
    from workbench.store.jobs import attempts
    from workbench.store.queries.learners import learners

    lines = []
    for attempt in attempts(store, whole.row.id):
        lines.append(f"\nattempt {attempt.attempt}: {attempt.state.lower()}{_at(attempt)}")
        lines += [f"  {phase:12} {text}" for phase, text in _phases(attempt)]
        people = learners(store, whole.row.id, attempt.attempt)
        if len(people) > 1 or any(each.slots for each in people):
            lines += [f"  {_learner(each)}" for each in people]
    return "\n".join(lines) + "\n" if lines else ""


def _at(attempt: AttemptRow) -> str:
    return f" on {attempt.node}" if attempt.node else ""


def _phases(attempt: AttemptRow) -> Iterator[tuple[str, str]]:
    """Each phase that was reached, how long it took, and when it began."""
    began = [
        ("queued", attempt.queued_us),
        ("pending", attempt.pending_us),
        ("downloading", attempt.downloading_us),
        ("processing", attempt.processing_us),
        ("storing", attempt.storing_us),
        ("ended", attempt.ended_us),
    ]
    reached = [(phase, time_us) for phase, time_us in began if time_us is not None]
    for (phase, start), (_, end) in zip(reached, [*reached[1:], ("", now_us())], strict=True):
        if phase == "ended":
            yield phase, stamp(start)
        else:
            yield phase, f"{stamp(start)}  {duration((end - start) / MICROSECONDS)}"


def _learner(learner: LearnerRow) -> str:
    end = f" with {learner.exit_code}" if learner.exit_code is not None else ""
    end += f" by signal {learner.signal}" if learner.signal else ""
    slots = f" on {', '.join(learner.slots)}" if learner.slots else ""
    decided = ", decided" if learner.decided else ""
    why = f": {learner.reason.text}" if learner.reason and learner.reason.text else ""
    return f"learner {learner.learner} {learner.phase.value}{end}{slots}{decided}{why}"

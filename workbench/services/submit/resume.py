"""Resumes a job: checks whether it can go on, where and with which params, and asks the controller for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError
from workbench.formats import stamp
from workbench.job import Intent, State, short_id
from workbench.store.db.rows import is_over
from workbench.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.metrics import CheckpointRow
    from workbench.paths import JobFolder
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow, TargetRef

CHANGEABLE: Final = ("params.", "env.")
_DERIVED: Final = ("params", "env", "framework", "setup")
"""Fields of a spec that may differ in the end: a command can name ``${params.epochs}``."""


@dataclass(frozen=True, slots=True)
class JobChanges:
    """What is different from the next attempt on; an empty field keeps what the job has."""

    backend: str = ""
    runner: str = ""
    overrides: tuple[str, ...] = ()
    """``params.NAME=VALUE`` and ``env.NAME=VALUE``."""


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """A request for another attempt, as the store keeps it until the controller has answered."""

    id: int
    notes: tuple[str, ...] = ()
    """How the target was chosen, and what goes there."""


def resume(store: Store, row: JobRow, changes: JobChanges, *, origin: str) -> ResumeRequest:
    """Ask for another attempt of a job.

    Args:
        store: where the job is.
        row: the job.
        changes: what is different from now on.
        origin: which client asks: ``cli``, ``python``, ``tui``.

    Raises:
        UsageError: the job is not halted or failed, or cannot go on with these changes.
        InputMissing: a secret is not set.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.controller.client.requests import ask
    from workbench.store.queries.jobs import detail

    _check_resumable(row)
    _find_secrets(store, row)
    overrides = changes.overrides
    changes_asked = with_overrides(detail(store, row.id), overrides) if overrides else {}
    payload, notes = _moved(store, row, changes.backend, changes.runner)
    if changes_asked:
        changed = {**payload.get("changed", {}), **changes_asked["changed"]}
        payload |= {**changes_asked, "changed": changed}
    request = ask(store, row.id, "resume", origin=origin, payload=payload)
    ensure_controller(store.home)
    return ResumeRequest(request, tuple(notes))


def wait_for_answer(store: Store, row: JobRow, request: ResumeRequest) -> None:
    """Wait until the controller has accepted or refused a request.

    Raises:
        NoSpaceLeft: its answer cannot be recorded.
        TryAgain: it refused; the message says why.
    """
    from workbench.services.follow.wait import wait_for_answers

    wait_for_answers(store, {request.id: row})


def with_overrides(job: JobDetail, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the part of the request that changes a job: the new spec, and the origin of each changed key.

    Raises:
        UsageError: something else would change, which a resumed job keeps.
        ManifestError: a value does not fit its key.
    """
    for text in overrides:
        if not text.startswith(CHANGEABLE):
            raise UsageError(
                f"--set {text}: a resumed job can have other params and another env, nothing else",
                hint=f"fabric run MANIFEST --from {short_id(job.row.id)} begins a new one with its checkpoint",
            )
    before, after = _read(job, ()), _read(job, overrides)
    differing = [
        each.name for each in fields(after) if getattr(before, each.name) != getattr(after, each.name)
    ]
    if fixed := [name for name in differing if name not in _DERIVED]:
        raise UsageError(
            f"--set {' '.join(overrides)} would change {', '.join(fixed)}, which a resumed job keeps",
            hint=f"fabric run MANIFEST --from {short_id(job.row.id)} begins a new one with its checkpoint",
        )
    spec = _changed_spec(job.spec, before, after, differing)
    from workbench.spec import spec_to_json

    keys = {text.partition("=")[0].strip(): "resume --set" for text in overrides}
    return {
        "set": list(overrides),
        "changed": {"spec": spec_to_json(spec), "origins": {**job.origins, **keys}},
    }


def _read(job: JobDetail, overrides: Sequence[str]) -> JobSpec:
    """Read the job's manifest again with its present params and env, and these overrides."""
    from workbench.manifest import load_text

    spec = job.spec
    present = [f"params.{name}={json.dumps(value)}" for name, value in spec.params.items()]
    present += [f"env.{name}={json.dumps(value)}" for name, value in spec.env.items()]
    source = f"the manifest of {short_id(job.row.id)}"
    return load_text(
        job.manifest_text,
        source,
        overrides=[*present, *overrides],
        environ={},
        defaults={},
        known_params=spec.params,
    ).spec


def _changed_spec(spec: JobSpec, before: JobSpec, after: JobSpec, differing: Sequence[str]) -> JobSpec:
    changes: dict[str, Any] = {
        name: {**getattr(spec, name), **getattr(after, name)} for name in ("params", "env")
    }
    if "framework" in differing:
        rest = {key: value for key, value in asdict(after.framework).items() if key != "command"}
        if {key: value for key, value in asdict(before.framework).items() if key != "command"} != rest:
            raise UsageError("a resumed job keeps its framework and its image")
        _check_same("framework.command", spec.framework.command, before.framework.command)
        changes["framework"] = replace(spec.framework, command=after.framework.command)
    if "setup" in differing:
        _check_same("setup", spec.setup, before.setup)
        changes["setup"] = after.setup
    return replace(spec, **changes)


def _check_same(key: str, frozen: str, read: str) -> None:
    """Check that a text is the manifest's own: only there it is known where a parameter stands."""
    if frozen != read:
        raise UsageError(
            f"{key} does not come from the manifest, so its value with other params is not known"
        )


def _check_resumable(row: JobRow) -> None:
    if row.state is State.COMPLETED:
        raise UsageError(
            f"{short_id(row.id)} completed; there is nothing to resume",
            hint=f"`fabric rerun {short_id(row.id)}` runs it again",
        )
    if row.intent is Intent.DELETE:
        raise UsageError(f"{short_id(row.id)} is being deleted")
    if not is_over(row):
        raise UsageError(
            f"{short_id(row.id)} is {row.state.lower()}, not halted or failed",
            hint=f"`fabric attach {short_id(row.id)}` follows it",
        )


def _find_secrets(store: Store, row: JobRow) -> None:
    """Search again for secrets that this home lacks.

    Raises:
        InputMissing: one is not set.
    """
    from workbench.controller.runtime.secrets import refusal_of
    from workbench.services.submit.secrets_refresh import find_again
    from workbench.store.queries.jobs import detail

    if missing := find_again(store.home, row.id, detail(store, row.id).spec):
        raise refusal_of(missing)


def _moved(store: Store, row: JobRow, backend: str, runner: str) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the part of the request that moves a job to another target, and notes; empty where it stays.

    Raises:
        UsageError: its checkpoints exist only where it ran.
    """
    from workbench.services.backends.choice import BackendChoice
    from workbench.store.queries.jobs import detail

    if not backend and not runner:
        return {}, ()
    job = detail(store, row.id)
    has_begun = row.started_us is not None or row.earlier_us > 0
    near = {row.target.backend: "it was"} if has_begun else None
    chosen = BackendChoice(store.home).choose(backend or row.target.backend, runner, job.spec, near=near)
    target = chosen.target
    stays = target.machine == row.target.machine
    if stays or any(each.training_results for each in job.spec.data_stores):
        return {"place": asdict(target)}, chosen.notes
    brought, notes = _brought(store, job, target)
    return {"place": asdict(target), **brought}, (*chosen.notes, *notes)


def _brought(store: Store, job: JobDetail, target: TargetRef) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the part of the request that has files brought to another backend that came home, and notes of them.

    Raises:
        UsageError: there are none here, or the runner there does not take them.
    """
    from runners.registry import capabilities_of
    from workbench.metrics import checkpoints
    from workbench.spec import spec_to_json

    row, folder = job.row, store.home.job(job.row.id)
    can = capabilities_of(target.runner)
    is_here = any(path.is_dir() and any(path.iterdir()) for path in (folder.results, folder.checkpoints))
    may_have_made = row.target.type != "local" and (row.started_us is not None or row.earlier_us > 0)
    if not is_here and not may_have_made and not job.recorded.get("from"):
        return {}, ()
    if not is_here or can is None or not can.moves_in:
        reason = (
            f"the runner {target.runner} does not take what was made elsewhere"
            if is_here
            else f"its results and checkpoints are only on '{row.target.backend}'"
        )
        raise UsageError(
            f"{short_id(row.id)} has no result store: {reason}",
            hint=f"`fabric resume {short_id(row.id)}` without --backend continues it there, and"
            f" `fabric download {short_id(row.id)} checkpoints` copies what is there; for the next job, set"
            " training_results in data_stores",
        )
    found = sorted(checkpoints(store, row.id), key=_order)
    last = max(_versions_here(found, folder), key=_order, default=None)
    text = _newest_file(folder.checkpoints) if last is None else _text_of(last)
    notes = [
        f"what it has made goes to {target.backend}" + (f"; its last checkpoint is {text}" if text else "")
    ]
    if found and last is not found[-1]:
        notes.append(f"a later checkpoint, {_text_of(found[-1])}, did not come home")
    changed = {
        "spec": spec_to_json(job.spec),
        "origins": dict(job.origins),
        "moved_from": row.target.backend,
    }
    return {"changed": changed, "checkpoint": text}, notes


def _versions_here(found: Sequence[CheckpointRow], folder: JobFolder) -> Iterator[CheckpointRow]:
    """Yield of each checkpoint that is here, by its name, as what it was reported when it was written so."""
    by_name: dict[str, list[CheckpointRow]] = {}
    for each in found:
        by_name.setdefault(_name_of(each), []).append(each)
    for name, reports in by_name.items():
        path = next(
            (one for each in (folder.checkpoints, folder.results) if (one := each / name).exists()), None
        )
        if path is not None:
            # One that is written again and again under a name may have come home as it was before.
            written_us = path.stat().st_mtime_ns // 1000 if path.is_file() else reports[-1].time_us
            yield next((each for each in reports if each.time_us >= written_us), reports[-1])


def _newest_file(folder: Path) -> str:
    """Return what was written last in a folder of checkpoints that nobody reported, for people; empty for nothing."""
    files = [
        (path.lstat().st_mtime_ns // 1000, path.relative_to(folder).parts[0])
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    written_us, name = max(files, default=(0, ""))
    return f"{name} of {stamp(written_us)}" if name else ""


def _order(checkpoint: CheckpointRow) -> tuple[int, bool, int]:
    return checkpoint.time_us, checkpoint.step is None, checkpoint.step or 0


def _name_of(checkpoint: CheckpointRow) -> str:
    from workbench.controller.runtime.initial_checkpoint import name_of_checkpoint

    return name_of_checkpoint(checkpoint.path, checkpoint.job_id)


def _text_of(checkpoint: CheckpointRow) -> str:
    """Return a checkpoint's name, step and time, for people."""
    step = "" if checkpoint.step is None else f" (step {checkpoint.step})"
    return f"{_name_of(checkpoint)}{step} of {stamp(checkpoint.time_us)}"

"""How a job goes on: looked at whether it can, where, with which params, then asked of the controller."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.job import nine
from workbench.services.follow.job_text import is_over
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow

CHANGEABLE = ("params.", "env.")
_FOLLOWS = ("params", "env", "framework", "setup")
"""What may differ in the end: a command says ``${params.epochs}``."""


def respecified(whole: JobDetail, sets: Sequence[str]) -> dict[str, Any]:
    """Return what is asked of the controller: the spec with these ``params.NAME=VALUE``, and where they come from.

    Raises:
        UsageError: something else would change, which a job that goes on keeps.
        ManifestError: a value cannot be one of that key.
    """
    if not sets:
        return {}
    for text in sets:
        if not text.startswith(CHANGEABLE):
            raise UsageError(
                f"--set {text}: a job that goes on can have other params and another env, nothing else",
                hint=f"fabric run MANIFEST --from {nine(whole.row.id)} begins a new one with its checkpoint",
            )
    before, after = _read(whole, ()), _read(whole, sets)
    differing = [
        each.name for each in fields(after) if getattr(before, each.name) != getattr(after, each.name)
    ]
    if kept := [name for name in differing if name not in _FOLLOWS]:
        raise UsageError(
            f"--set {' '.join(sets)} would change {', '.join(kept)}, which a job that goes on keeps",
            hint=f"fabric run MANIFEST --from {nine(whole.row.id)} begins a new one with its checkpoint",
        )
    spec = _laid_over(whole.spec, before, after, differing)
    from workbench.spec import spec_to_json

    keys = {text.partition("=")[0].strip(): "resume --set" for text in sets}
    return {"set": list(sets), "changed": {"spec": spec_to_json(spec), "origins": {**whole.origins, **keys}}}


def _read(whole: JobDetail, sets: Sequence[str]) -> JobSpec:
    """Read the job's manifest once more, with the params and the env that it has, and these over them."""
    from workbench.manifest import load_text

    spec = whole.spec
    has = [f"params.{name}={json.dumps(value)}" for name, value in spec.params.items()]
    has += [f"env.{name}={json.dumps(value)}" for name, value in spec.env.items()]
    source = f"the manifest of {nine(whole.row.id)}"
    return load_text(whole.manifest_text, source, overrides=[*has, *sets], environ={}, defaults={}).spec


def _laid_over(spec: JobSpec, before: JobSpec, after: JobSpec, differing: Sequence[str]) -> JobSpec:
    changes: dict[str, Any] = {
        name: _joined(getattr(spec, name), getattr(after, name)) for name in ("params", "env")
    }
    if "framework" in differing:
        plain = {key: value for key, value in asdict(after.framework).items() if key != "command"}
        if {key: value for key, value in asdict(before.framework).items() if key != "command"} != plain:
            raise UsageError("a job that goes on keeps its framework, its image and where that is")
        _see_same("framework.command", spec.framework.command, before.framework.command)
        changes["framework"] = replace(spec.framework, command=after.framework.command)
    if "setup" in differing:
        _see_same("setup", spec.setup, before.setup)
        changes["setup"] = after.setup
    return replace(spec, **changes)


def _joined(has: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {**has, **wanted}


def _see_same(key: str, frozen: str, read: str) -> None:
    """See that a text is the manifest's own: in another one nobody knows where the parameter stands."""
    if frozen != read:
        raise UsageError(
            f"{key} was given beside the manifest, so what it would be with other params is not known"
        )


def ask_to_resume(
    store: Store, row: JobRow, *, backend: str = "", runner: str = "", sets: Sequence[str] = (), origin: str
) -> int:
    """Ask for another attempt of a job, and return the request's number.

    Args:
        store: where the job is.
        row: the job.
        backend: where it goes on; empty for where it ran.
        runner: another way to start it.
        sets: ``params.NAME=VALUE`` and ``env.NAME=VALUE`` that are others from now on.
        origin: who asks.

    Raises:
        UsageError: it is not halted or failed, or cannot go on like that.
        InputMissing: a secret is nowhere to be found.
    """
    from workbench.controller.runtime.client import ask, ensure_controller
    from workbench.store.queries.jobs import detail

    _check_resumable(row)
    _find_secrets(store, row)
    changes = respecified(detail(store, row.id), sets) if sets else {}
    payload = {**_moved(store, row, backend, runner), **changes}
    request = ask(store, row.id, "resume", origin=origin, payload=payload)
    ensure_controller(store.home)
    return request


def wait_for_answer(store: Store, row: JobRow, request: int) -> None:
    """Wait until the controller has taken or refused a request.

    Raises:
        TryAgain: it refused; the message says why.
    """
    from workbench.errors import TryAgain
    from workbench.services.follow.wait import wait_until
    from workbench.store.queries.requests import request as current

    def answered(rows: list[JobRow]) -> bool:
        found = current(store, request)
        return found is None or bool(found.outcome)

    wait_until(store, [row], answered)
    found = current(store, request)
    if found is not None and found.outcome not in ("", "done"):
        raise TryAgain(f"{nine(row.id)}: {found.outcome}")


def _check_resumable(row: JobRow) -> None:
    from workbench.job import State

    if row.state is State.COMPLETED:
        raise UsageError(
            f"{nine(row.id)} completed; there is nothing to resume",
            hint=f"`fabric rerun {nine(row.id)}` runs it again",
        )
    if not is_over(row):
        raise UsageError(
            f"{nine(row.id)} is {row.state.lower()}, not halted or failed",
            hint=f"`fabric attach {nine(row.id)}` follows it",
        )


def _find_secrets(store: Store, row: JobRow) -> None:
    """Look anew for secrets that are not here.

    Raises:
        InputMissing: one is nowhere.
    """
    from workbench.controller.runtime.secrets import refusal_of
    from workbench.services.submit.secrets_refresh import find_again
    from workbench.store.queries.jobs import detail

    if missing := find_again(store.home, row.id, detail(store, row.id).spec):
        raise refusal_of(missing)


def _moved(store: Store, row: JobRow, backend: str, runner: str) -> dict[str, Any]:
    """Return what says where a job goes on, nothing where it stays.

    Raises:
        UsageError: what it has made so far is only where it ran.
    """
    from workbench.services.backends.placement import find_place
    from workbench.store.queries.jobs import detail

    if not backend and not runner:
        return {}
    spec = detail(store, row.id).spec
    place, notes = find_place(backend or row.place.backend, runner, spec)
    there = (place.type, place.address) == (row.place.type, row.place.address)
    if not there and not any(each.training_results for each in spec.data_stores):
        raise UsageError(
            f"{nine(row.id)} has no result store: what it has made so far is only at '{row.place.backend}'",
            hint="`fabric resume` goes on there; give the next one training_results in its data_stores",
        )
    for note in notes:
        narrate(f"note: {note}")
    return {"place": asdict(place)}

"""``fabric resume --set``: what a job goes on with instead of what it was given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.job import nine

if TYPE_CHECKING:
    from workbench.spec import JobSpec
    from workbench.store.db.rows import JobDetail

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

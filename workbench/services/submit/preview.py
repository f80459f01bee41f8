"""Shows a runner's plan: exactly what a run would send, before anything is made."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.formats import count, size

if TYPE_CHECKING:
    from runners.interface import Plan, Runner
    from workbench.services.submit.options import Words
    from workbench.services.submit.prepare import Prepared

PREVIEW_JOB = "training-previewed"
"""Stands for the id that a real run is given."""


def show_plan(words: Words, *, json: bool) -> int:
    """Print what these words would start, as text or as one document."""
    from workbench.paths import Home, default_home
    from workbench.services.submit.prepare import prepare

    prepared = prepare(words, Home(default_home()))
    plan = plan_of(prepared)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(plan_document(prepared, plan))
    else:
        sys.stdout.write(_plan_text(prepared, plan))
    return 0


def show_prepared(prepared: Prepared) -> None:
    """Print what one job that is prepared would start."""
    sys.stdout.write(_plan_text(prepared, plan_of(prepared)))


def plan_of(prepared: Prepared) -> Plan:
    """Ask the runner for its plan at the place that was chosen; raises LaunchRefused for what never works."""
    from contextlib import closing

    from backends.contract.host import BackendOptions
    from runners.interface import AttemptRef, LaunchRequest
    from runners.registry import load_runner
    from workbench.paths import Home, default_home
    from workbench.services.backends.placement import open_backend
    from workbench.store.db.database import home_uuid
    from workbench.store.jobs import who_am_i

    place = prepared.place
    home = Home(default_home())
    request = LaunchRequest(
        attempt=AttemptRef(home_uuid(home), PREVIEW_JOB, 1, prepared.loaded.spec.learners),
        spec=prepared.loaded.spec,
        owner=who_am_i(),
        code_hash=prepared.snapshot.code_hash if prepared.snapshot else "",
        code_file=str(home.snapshot(prepared.snapshot.code_hash)) if prepared.snapshot else "",
        recorded=prepared.recorded,
    )
    options = BackendOptions(place.backend, place.type, place.address, place.options)
    with closing(open_backend(options).open()) as reached:
        runner: Runner = load_runner(place.runner)(reached, home_uuid=home_uuid(home))
        with closing(runner):
            return runner.plan(request)


def refuse_loss(prepared: Prepared) -> None:
    """Refuse a job that nobody follows where its results would be lost a while after its end.

    Raises:
        UsageError: they would.
    """
    from runners.registry import load_runner
    from workbench.errors import PlaceUnreachable, UsageError

    if load_runner(prepared.place.runner).capabilities.needs != "cluster":
        return
    try:
        seconds = plan_of(prepared).results_lost_after_seconds
    except PlaceUnreachable:
        return  # its launch comes later, and so may the place
    if seconds:
        raise UsageError(
            f"the job's results are lost {seconds / 60:g} minutes after its end unless they are fetched by then,"
            " and with --detach nobody may be there",
            hint="--accept-loss starts it all the same; claim or storage_class of the backend, or --results,"
            " keeps them",
        )


def plan_document(prepared: Prepared, plan: Plan) -> dict[str, Any]:
    """Return a plan as ``--json`` gives it."""
    from workbench.spec import spec_to_json

    snapshot = prepared.snapshot
    return {
        "schema": "fabric.plan/1",
        "name": prepared.loaded.spec.name,
        "backend": prepared.place.backend,
        "runner": plan.runner,
        "spec": spec_to_json(prepared.loaded.spec),
        "origins": dict(prepared.loaded.origins),
        "code": None
        if snapshot is None
        else {"hash": snapshot.code_hash, "files": snapshot.files, "size_bytes": snapshot.size_bytes},
        "slots_per_learner": plan.slots_per_learner,
        "cpus_per_learner": plan.cpus_per_learner,
        "learners": [
            {"learner": each.learner, "name": each.name, "native": each.native} for each in plan.learners
        ],
        **({"objects": list(plan.objects)} if plan.objects else {}),
        "warnings": [*prepared.warnings, *plan.warnings],
        "notes": _notes(prepared, plan),
    }


def _notes(prepared: Prepared, plan: Plan) -> list[str]:
    return list(dict.fromkeys((*prepared.notes, *plan.notes)))


def _plan_text(prepared: Prepared, plan: Plan) -> str:
    from workbench.terminal.table import fields

    spec = prepared.loaded.spec
    snapshot = prepared.snapshot
    pairs = [
        ("job", spec.name),
        ("place", f"{prepared.place.backend}, as {plan.runner}"),
        ("learners", str(spec.learners)),
        ("GPUs", f"{plan.slots_per_learner} for each learner"),
        ("CPUs", f"{plan.cpus_per_learner:g} for each learner" if plan.cpus_per_learner else "not reserved"),
        ("memory", f"{size(spec.memory_bytes)} for each learner" if spec.memory_bytes else "not limited"),
        ("command", spec.framework.command),
        (
            "code",
            "none" if snapshot is None else f"{count(snapshot.files, 'file')}, {size(snapshot.size_bytes)}",
        ),
        *(("warning", text) for text in (*prepared.warnings, *plan.warnings)),
        *(("note", text) for text in _notes(prepared, plan)),
    ]
    if plan.objects:
        return fields(pairs) + "\n" + _yaml(plan.objects)
    learners = (f"\n{learner.name}\n{_native(learner.native)}" for learner in plan.learners)
    return fields(pairs) + "".join(learners)


def _yaml(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return objects as a cluster's own tools write them."""
    import yaml

    # By way of JSON, so that no value is written as a reference to another.
    plain = json_text.loads(json_text.dumps(list(objects)))
    return "".join("---\n" + yaml.safe_dump(one, sort_keys=False, allow_unicode=True) for one in plain)


def _native(document: Mapping[str, Any]) -> str:
    text = json_text.dumps(document, indent=2, ensure_ascii=False, sort_keys=True)
    return "".join(f"  {line}\n" for line in text.splitlines())

"""Searches: how one is started and ended, and how it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import BackendError, InputMissing, UnknownName, UsageError

if TYPE_CHECKING:
    from workbench.documents.experiments import (
        ExperimentDocument,
        TrialDocument,
    )
    from workbench.services.submit.prepare import JobSubmission
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import TargetRef
    from workbench.store.queries.experiments import ExperimentRow, TrialRow

CHANGEABLE: Final = ("search.", "name=", "seed=")
"""How the overrides of a fork begin."""
LIMITS: Final = {
    "search.max_trials": "max_trials",
    "search.max_concurrent": "max_concurrent",
    "searcher.max_trials": "max_trials",
    "searcher.max_concurrent_trials": "max_concurrent",
}
"""What may differ in a search that is continued, by its key of a manifest, or of an experiment of Determined."""


def best_text(metric: str, best: TrialDocument | None) -> str:
    """Return the best value so far with its trial; empty where none has reported one."""
    from workbench.services.submit.search_preview import sample_text

    if best is None:
        return ""
    return f"{metric}={best['best']:.6g} of trial {best['number']}: {sample_text(best['hparams'])}"


def start_experiment(store: Store, submission: JobSubmission) -> ExperimentRow:
    """Write a search down and wake the controller, which begins its trials.

    Raises:
        CannotWrite: the home takes no more.
        HomeNotBound: the home is a copy.
        UsageError: its trials could not begin with checkpoints of others.
        BackendError: none of them could ever get its GPUs.
    """
    document = {
        "manifest_text": submission.loaded.text,
        "origins": dict(submission.loaded.origins),
        "code_hash": submission.code.code_hash if submission.code else "",
        "recorded": dict(submission.recorded),
        "places": [
            {"target": asdict(each.target), "recorded": dict(each.recorded)}
            for each in submission.search_targets
        ],
    }
    return _begin(store, submission.loaded.spec, submission.target, document, submission.secrets)


def fork_experiment(store: Store, row: ExperimentRow, overrides: Sequence[str]) -> ExperimentRow:
    """Begin a new search like another one: its job, code and place, with what is different in the search.

    Args:
        store: where the other one is.
        row: the other one; it may be under way.
        overrides: ``search.KEY=VALUE``, ``name=VALUE`` and ``seed=VALUE``.

    Raises:
        UsageError: something else would change.
        ManifestError: a value does not fit its key.
        InputMissing: its code or a secret no longer exists.
        BackendError: none of its trials could ever get its GPUs.
    """
    from workbench.store.db.rows import TargetRef
    from workbench.store.queries.experiments import read_experiment_file

    document = read_experiment_file(store.home, row.id)
    for text in overrides:
        if not text.startswith(CHANGEABLE):
            raise UsageError(
                f"--set {text}: a fork can have another search, name and seed, nothing else",
                hint="`fabric run` of the manifest with --set begins a search that differs in more",
            )
    _check_code(store, row, document)
    spec = _spec_now(store, row, document)
    if overrides:
        spec = _changed(spec, document["manifest_text"], overrides)
    secrets = _secrets_again(store, row, spec, "fork")
    target = TargetRef(**document["place"])
    if (spec.search or {}).get("backends") != (document["spec"]["search"] or {}).get("backends"):
        raise UsageError(
            "--set search.backends: a fork runs where the other one does",
            hint="`fabric run` of the manifest begins a search elsewhere",
        )
    kept = {name: document[name] for name in ("manifest_text", "origins", "code_hash")}
    kept["places"] = document.get("places") or []
    changed = {text.partition("=")[0].strip(): "fork --set" for text in overrides}
    kept["origins"] = {**kept["origins"], **changed}
    recorded = {**document["recorded"], "fork_of": row.id}
    return _begin(store, spec, target, {**kept, "recorded": recorded}, secrets)


def continue_experiment(store: Store, row: ExperimentRow, overrides: Sequence[str]) -> int:
    """Have a search that is over go on: trials that failed or were ended from their checkpoints, and further ones.

    Args:
        store: where it is.
        row: the search.
        overrides: ``KEY=VALUE`` of :data:`LIMITS`.

    Returns:
        How many trials go on.

    Raises:
        UsageError: it is not over, its method cannot go on, something else would change, or there is nothing to do.
        ManifestError: a value does not fit its key.
        InputMissing: its code or a secret no longer exists.
        UnknownName: it was deleted meanwhile.
        CannotWrite: the home takes no more.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.controller.runtime.secrets import replace_secrets
    from workbench.services.submit.trials_ahead import continued_search
    from workbench.store.db.home_folder import require_home
    from workbench.store.queries.experiments import (
        RUNNING,
        deleted_experiments,
        experiment,
        read_experiment_file,
    )
    from workbench.store.updates.experiments import catch_up_experiment, record_event
    from workbench.store.updates.jobs import who_am_i

    require_home(store.home)
    _check_over(row)
    document = read_experiment_file(store.home, row.id)
    spec = _spec_now(store, row, document)
    limits = _limits(row, overrides)
    if limits:
        spec = _changed(spec, document["manifest_text"], limits)
    _check_code(store, row, document)
    secrets = _secrets_again(store, row, spec, "continue")
    who = who_am_i()
    with store.atomic():
        catch_up_experiment(store, row.id)
        now = experiment(store, row.id)
        if now is None or row.id in deleted_experiments(store):
            raise UnknownName(
                f"{row.name} is deleted, or is just being deleted",
                hint="`fabric experiment list` shows those there are",
            )
        _check_over(now)
        count = _count_going_on(store, now, spec)
        # The controller reads them as soon as the event is there.
        replace_secrets(store.home, row.id, secrets)
        event = {"do": "continue", "who": who, "state": RUNNING, "reason": ""}
        record_event(store, row.id, event | continued_search(document, spec))
    ensure_controller(store.home)
    return count


def _spec_now(store: Store, row: ExperimentRow, document: Mapping[str, Any]) -> JobSpec:
    """Return the job of a search as a person has it, with the search as it is now."""
    from workbench.spec import spec_from_json
    from workbench.store.queries.experiments import TRIALS_AHEAD, newest_search

    spec = replace(spec_from_json(document["spec"]), search=newest_search(store.home, row.id, document))
    return replace(spec, at_most=None) if document.get(TRIALS_AHEAD) else spec


def _check_over(row: ExperimentRow) -> None:
    """Refuse to continue a search that is not over."""
    from workbench.store.queries.experiments import PAUSED

    if not row.is_open:
        return
    raise UsageError(
        f"{row.name} is {row.state}, and only a search that is over can be continued",
        hint=f"`fabric experiment resume {row.id.rpartition('-')[2]}` has it go on"
        if row.state == PAUSED
        else "",
    )


def _limits(row: ExperimentRow, overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a search that is continued by the keys of a manifest, or refuse them."""
    from workbench.search.config import CONTINUED

    short = row.id.rpartition("-")[2]
    if row.method not in CONTINUED:
        raise UsageError(
            f"{row.name} is over, and {row.method} cannot go on then: it has compared its trials as they ended;"
            f" {' and '.join(CONTINUED)} can",
            hint=f"`fabric experiment fork {short} --set seed=N` begins another search like it",
        )
    found = []
    for text in overrides:
        key, separator, value = text.partition("=")
        limit = LIMITS.get(key.strip())
        if limit is None or not separator:
            raise UsageError(
                f"--set {text}: a search that goes on can have another search.max_trials and"
                " search.max_concurrent, nothing else",
                hint=f"`fabric experiment fork {short} --set ...` begins one that differs in more",
            )
        if limit == "max_trials" and row.method == "grid":
            raise UsageError(
                f"--set {text}: a grid has as many trials as points",
                hint=f"`fabric experiment fork {short} --set 'search.params.NAME=...'` begins a wider one",
            )
        found.append(f"search.{limit}={value}")
    return found


def _count_going_on(store: Store, row: ExperimentRow, spec: JobSpec) -> int:
    """Return how many trials of a search go on when it is continued.

    Raises:
        UsageError: none does, and none would begin.
    """
    from workbench.search.config import SearchConfig
    from workbench.store.queries.experiments import may_go_on, trials
    from workbench.store.queries.jobs import job

    found = trials(store, row.id)
    count = sum(may_go_on(one.state, job(store, one.job_id)) for one in found)
    config = SearchConfig.from_json(spec.search or {})
    if config.method == "grid":
        left, hint = (
            config.space().size() - len(found),
            "`fabric experiment fork` begins one with other values",
        )
    else:
        left = config.max_trials - sum(one.state != "INVALID" for one in found)
        hint = f"--set search.max_trials={len(found) + 10} begins further ones"
    if count == 0 and left <= 0:
        raise UsageError(
            f"no trial of {row.name} failed or was ended: there is nothing to continue", hint=hint
        )
    return count


def _check_code(store: Store, row: ExperimentRow, document: Mapping[str, Any]) -> None:
    """Refuse to begin trials whose code is gone."""
    if document["code_hash"] and not store.home.snapshot(document["code_hash"]).exists():
        raise InputMissing(f"the code of {row.name} no longer exists: {document['code_hash']}")


def _changed(spec: JobSpec, manifest_text: str, overrides: Sequence[str]) -> JobSpec:
    """Read the manifest again with the search as it is now, and what is different; all else stays as it was."""
    import json

    from workbench.manifest import load_text

    present = [f"search={json.dumps(spec.search)}", f"name={json.dumps(spec.name)}"]
    if not any(isinstance(value, (Mapping, list, tuple)) for value in spec.params.values()):
        # Those of the manifest may be others: ``--set`` gives more, and an array searches for some.
        present.append(f"params={json.dumps(dict(spec.params))}")
    if spec.seed is not None:
        present.append(f"seed={spec.seed}")
    read = load_text(
        manifest_text, "the manifest", overrides=[*present, *overrides], environ={}, defaults={}
    ).spec
    return replace(spec, search=read.search, name=read.name, seed=read.seed)


def _secrets_again(store: Store, row: ExperimentRow, spec: JobSpec, verb: str) -> dict[str, str]:
    """Return the secrets of a search, looked for again where it is over and has forgotten them.

    Raises:
        InputMissing: some are not found; it names them.
    """
    from contextlib import suppress

    from workbench.config.secrets import find_secrets
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.manifest.keys.credentials import needed_by
    from workbench.services.submit import submit_environment

    found = {**submit_environment.passed_environment()[1], **read_secrets(store.home, row.id)}
    lost = []
    for name in needed_by(spec):
        if name not in found:
            with suppress(UsageError):
                found |= find_secrets([name]) if name in spec.secrets else {}
            if name not in found:
                lost.append(name)
    if not lost:
        return found
    named = [name for name in lost if name in spec.secrets]
    raise InputMissing(
        f"{row.name} is over and has forgotten its secrets; these are not found again: {', '.join(lost)}",
        hint=f"export {named[0]}=... and {verb} it again"
        if named
        else "`fabric run` of its manifest supplies them again",
    )


def _begin(
    store: Store,
    spec: JobSpec,
    target: TargetRef,
    document: Mapping[str, Any],
    secrets: Mapping[str, str],
) -> ExperimentRow:
    """Write a search down and wake the controller."""
    import os

    from workbench.controller.client.connect import ensure_controller
    from workbench.controller.runtime.secrets import forget_secrets, write_secrets
    from workbench.search.stream import SEED_LIMIT
    from workbench.services.submit.search_preview import check_copies, check_searcher
    from workbench.services.submit.trials_ahead import with_trials_ahead
    from workbench.spec import spec_to_json
    from workbench.store.db.home_folder import require_home
    from workbench.store.db.rows import TargetRef
    from workbench.store.queries.experiments import REPLACES_EARLY_ENDS
    from workbench.store.updates.experiments import insert_experiment, new_experiment_id
    from workbench.store.updates.jobs import who_am_i

    require_home(store.home)
    code_hash = str(document["code_hash"])
    check_searcher(spec, store.home.snapshot(code_hash) if code_hash else None)
    targets = [TargetRef(**each["target"]) for each in document["places"]] or [target]
    for each in targets:
        check_copies(spec, each)
        _check_gpus(spec, each)
    ahead, ahead_key = with_trials_ahead(spec, targets)
    drawn = int.from_bytes(os.urandom(8), "little") % SEED_LIMIT
    experiment_id = new_experiment_id()
    document = {
        "seed": drawn if spec.seed is None else spec.seed,
        "who": who_am_i(),
        "place": asdict(target),
        "spec": spec_to_json(ahead),
        **ahead_key,
        REPLACES_EARLY_ENDS: True,
        **document,
    }
    try:
        write_secrets(store.home, experiment_id, dict(secrets))
        row = insert_experiment(store, experiment_id, document)
    except BaseException:
        forget_secrets(store.home, experiment_id)
        raise
    ensure_controller(store.home)
    return row


def _check_gpus(spec: JobSpec, target: TargetRef) -> None:
    """Refuse a search for GPUs that this machine does not have: each trial would fail for it in the background."""
    from workbench.services.backends.placement import backend_options, open_backend
    from workbench.services.submit.preview import gpu_shortage

    if not spec.gpus or target.type != "local":
        return
    if shortage := gpu_shortage(spec, target, open_backend(backend_options(target.backend))):
        raise BackendError(
            shortage, hint="Ask for fewer with --gpus, or run it on another backend with --backend."
        )


def kill_experiment(store: Store, row: ExperimentRow) -> bool:
    """Have a search and its trials ended; return whether there was anything to end."""
    from workbench.store.queries.experiments import OPEN, STOPPING

    return _steer(store, row, "kill", OPEN, STOPPING, "was killed")


def delete_experiment(store: Store, row: ExperimentRow) -> bool:
    """Have a search deleted with its trials' jobs and all that they left; one that is open is ended first.

    The controller does that, and goes on with it whatever is killed meanwhile. Return whether there was one.
    """
    from workbench.store.queries.experiments import COMPLETED, FAILED, KILLED, OPEN, STOPPING

    states = (*OPEN, COMPLETED, FAILED, KILLED)
    return _steer(store, row, "delete", states, STOPPING, "is being deleted")


def pause_experiment(store: Store, row: ExperimentRow) -> bool:
    """Have the trials of a search halted and begin no others; return whether it was running."""
    from workbench.store.queries.experiments import PAUSED, RUNNING

    return _steer(store, row, "pause", (RUNNING,), PAUSED, "was paused")


def resume_experiment(store: Store, row: ExperimentRow) -> bool:
    """Have a paused search go on, its halted trials from their checkpoints; return whether it was paused."""
    from workbench.store.queries.experiments import PAUSED, RUNNING

    return _steer(store, row, "resume", (PAUSED,), RUNNING, "")


def _steer(store: Store, row: ExperimentRow, do: str, states: Sequence[str], state: str, what: str) -> bool:
    """Write down what a person wants of a search that is in one of some states, and wake the controller."""
    from workbench.controller.client.connect import ensure_controller, ensure_heard
    from workbench.store.db.home_folder import require_home
    from workbench.store.db.reserve import with_reserve
    from workbench.store.queries.experiments import deleted_experiments, experiment
    from workbench.store.updates.experiments import catch_up_experiment, record_event
    from workbench.store.updates.jobs import who_am_i

    require_home(store.home)
    if do != "delete":
        _check_readable(store, row)
    who = who_am_i()

    def write() -> bool:
        with store.atomic():
            # It may have ended since it was looked at, and would be open again.
            catch_up_experiment(store, row.id)
            now = experiment(store, row.id)
            if now is None or now.state not in states:
                return False
            if row.id in deleted_experiments(store):
                return do == "delete"  # that is under way
            reason = f"{what} by {who}" if what else ""
            record_event(store, row.id, {"do": do, "who": who, "state": state, "reason": reason})
            return True

    # What ends a search or makes room is possible on a full disk.
    if not (with_reserve(store.home, write) if do in ("kill", "delete") else write()):
        return False
    if do == "resume":
        ensure_controller(store.home)
    else:
        ensure_heard(store.home, store.note)
    return True


def _check_readable(store: Store, row: ExperimentRow) -> None:
    """Refuse to steer a search that no controller can read: nothing would come of it."""
    from workbench.store.queries.experiments import read_experiment_file

    try:
        read_experiment_file(store.home, row.id)
    except InputMissing as error:
        short = row.id.rpartition("-")[2]
        raise InputMissing(
            error.message, hint=f"`fabric experiment delete {short}` ends its trials and removes it"
        ) from error


def archive_experiment(store: Store, row: ExperimentRow, *, undo: bool = False) -> bool:
    """Archive a search that is over, or take it back; return whether that changed anything.

    Raises:
        UsageError: it is not over.
        HomeNotBound: the home is a copy, or was moved.
    """
    from workbench.store.db.home_folder import require_home
    from workbench.store.queries.experiments import archived_experiments
    from workbench.store.updates.experiments import record_event
    from workbench.store.updates.jobs import who_am_i

    if row.is_open and not undo:
        raise UsageError(
            f"{row.name} is {row.state}, and only what is over can be archived",
            hint=f"`fabric experiment kill {row.id.rpartition('-')[2]}` ends it",
        )
    if (row.id in archived_experiments(store)) is not undo:
        return False
    require_home(store.home)
    record_event(store, row.id, {"do": "unarchive" if undo else "archive", "who": who_am_i()})
    return True


def experiment_documents(store: Store) -> list[ExperimentDocument]:
    """Return all searches as documents, the newest first."""
    from workbench.store.queries.experiments import archived_experiments, experiments

    archived = archived_experiments(store)
    return [_document(store, row, is_archived=row.id in archived) for row in experiments(store)]


def experiment_document(store: Store, row: ExperimentRow) -> ExperimentDocument:
    """Return a search as a document."""
    from workbench.store.queries.experiments import archived_experiments

    return _document(store, row, is_archived=row.id in archived_experiments(store))


def _document(store: Store, row: ExperimentRow, *, is_archived: bool) -> ExperimentDocument:
    from workbench.formats import iso
    from workbench.services.inspect.search_standing import read_progress
    from workbench.store.queries.experiments import annotations_of, find_best_trial

    spec, annotations = _submitted_spec(store, row), annotations_of(store, row.id)
    best = find_best_trial(store, row)
    progress = read_progress(store, row)
    return {
        "schema": "fabric.experiment/1",
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "reason": row.reason,
        "method": row.method,
        "metric": row.metric,
        "goal": row.goal,
        "created": iso(row.created_us),
        "ended": None if row.ended_us is None else iso(row.ended_us),
        "description": spec.get("description") or "",
        "labels": dict(spec.get("labels") or {}),
        "tags": list(annotations.tags),
        "note": annotations.note,
        "archived": is_archived,
        "trials": progress.totals.begun,
        "running": progress.totals.running,
        "expected_trials": progress.expected_trials,
        "ended_trials": progress.totals.ended,
        "progress": progress.share,
        "expected_end": iso(progress.ends_us),
        "rungs": [
            {"units": units, "reached": reached}
            for units, reached in zip(progress.rungs, progress.totals.reached, strict=True)
        ],
        "best": None if best is None else _trial_document(best, progress.rungs),
    }


def _submitted_spec(store: Store, row: ExperimentRow) -> Mapping[str, Any]:
    """Return the job that was submitted; nothing where its file is gone or damaged."""
    from workbench.store.queries.experiments import read_experiment_file

    try:
        spec = read_experiment_file(store.home, row.id).get("spec")
    except InputMissing:
        return {}
    return spec if isinstance(spec, dict) else {}


def trial_documents(store: Store, row: ExperimentRow) -> list[TrialDocument]:
    """Return the trials of a search as documents, in the order of their creation."""
    from workbench.services.inspect.search_standing import read_rungs
    from workbench.store.queries.experiments import trials

    rungs = read_rungs(store, row)
    return [_trial_document(each, rungs) for each in trials(store, row.id)]


def _trial_document(row: TrialRow, rungs: Sequence[int]) -> TrialDocument:
    from workbench.services.inspect.search_standing import rung_of
    from workbench.store.queries.experiments import QUEUED, RUNNING

    return {
        "schema": "fabric.trial/1",
        "experiment": row.experiment,
        "number": row.number,
        "trial": row.trial,
        "id": row.job_id,
        "backend": row.backend,
        "state": RUNNING if row.state == QUEUED else row.state,
        "begun": row.has_begun,
        "hparams": dict(row.hparams),
        "seed": row.seed,
        "units": row.units,
        "last": row.last,
        "best": row.best,
        "rung": rung_of(row, rungs),
    }

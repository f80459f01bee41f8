"""Searches: what one would try and cost, how it is started and ended, and how it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import BackendError, InputMissing, UsageError
from workbench.services.submit.options import RunOptions, read_manifest, resolve_arguments

if TYPE_CHECKING:
    import yaml

    from workbench.documents.experiments import (
        ExperimentDocument,
        PreviewDocument,
        PreviewedTrials,
        TrialDocument,
    )
    from workbench.services.submit.prepare import JobSubmission
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, SeriesRow, TargetRef
    from workbench.store.queries.experiments import ExperimentRow, TrialRow

SINGLE: Final = "single"
CHANGEABLE: Final = ("search.", "name=", "seed=")
"""How the overrides of a fork begin."""
LIMITS: Final = {
    "search.max_trials": "max_trials",
    "search.max_concurrent": "max_concurrent",
    "searcher.max_trials": "max_trials",
    "searcher.max_concurrent_trials": "max_concurrent",
}
"""What may differ in a search that is continued, by its key of a manifest, or of an experiment of Determined."""

DRAFT_TRIALS: Final = 16
DRAFT_CONCURRENT: Final = 4
DRAFT_FACTOR: Final = 10.0
"""By so much the bounds of a positive number are below and above it."""
DRAFT_DIVISOR: Final = 4
"""A job that came less far has no rungs to be compared at."""
TIME_NAMES: Final = ("epoch", "epochs", "step", "steps", "iteration", "batch", "batches")
"""How metrics are called that say how long a job has been trained, the best first."""
_POINTS_LOOKED_AT: Final = 200


def preview_search(options: RunOptions, *, samples: int, seed: int | None = None) -> PreviewDocument:
    """Return how many trials of a manifest's search get how far, and the first of them.

    Args:
        options: the manifest and what overrides its keys.
        samples: how many trials are drawn, at most as many as there are.
        seed: what they are drawn with; None takes the manifest's ``seed``, or 0.

    Raises:
        ManifestError: the manifest is invalid.
        InputMissing: it does not exist.
    """
    return preview_of_spec(read_manifest(resolve_arguments(options)).spec, samples=samples, seed=seed)


def preview_of_spec(spec: JobSpec, *, samples: int, seed: int | None = None) -> PreviewDocument:
    """Return the same of a manifest that was read."""
    from workbench.search.config import SearchConfig
    from workbench.search.method import ALL_THE_WAY

    config = SearchConfig.from_json(spec.search or {"method": SINGLE, "params": spec.params})
    drawn_with = seed if seed is not None else spec.seed or 0
    outlook = config.make_method().outlook(drawn_with)
    trials: list[PreviewedTrials] = [
        {"max_length": True, "count": count} if units == ALL_THE_WAY else {"units": units, "count": count}
        for units, count in outlook.items()
    ]
    drawn = config.first_trials(min(samples, sum(outlook.values())), drawn_with)
    return {
        "schema": "fabric.preview/1",
        "method": config.method,
        "seed": drawn_with,
        "trials": trials,
        "samples": [{"hparams": each.hparams, "id": each.trial, "seed": each.seed} for each in drawn],
        "gpu_hours": _gpu_hours(spec, outlook),
    }


def _gpu_hours(spec: JobSpec, outlook: Mapping[int, int]) -> float | None:
    """Return the most that it costs: a trial that goes all the way takes ``max_runtime``, the others their share."""
    if not spec.gpus or spec.max_runtime_seconds is None:
        return None
    longest = max(outlook, default=0)
    whole = sum(count * (units / longest if longest else 1.0) for units, count in outlook.items())
    return whole * spec.gpus * spec.learners * spec.max_runtime_seconds / 3600


def sample_text(hparams: Mapping[str, Any], prefix: str = "") -> str:
    """Return hyper-parameters in one line, those within a map with dots in their names."""
    parts = []
    for name, value in hparams.items():
        if isinstance(value, Mapping):
            parts.append(sample_text(value, f"{prefix}{name}."))
        else:
            parts.append(
                f"{prefix}{name}={value:.4g}" if isinstance(value, float) else f"{prefix}{name}={value}"
            )
    return " ".join(part for part in parts if part)


def search_manifest(store: Store, found: JobDetail, manifest_text: str) -> str:
    """Return a job's manifest with a search around its ``params`` in place of these, as something to begin with.

    A positive number may be ten times smaller or larger, but one below 1 stays below it: most of those are shares or
    rates. A positive whole number may be half or twice as large. Anything else is a choice of the one value that the
    job has, to which others are added by hand. The rest of the manifest stays as it is written, with its comments.

    Args:
        store: where its metrics are.
        found: the job.
        manifest_text: what was submitted, with what the command line had laid over it.

    Raises:
        UsageError: the job has no ``params``, or its manifest has another form.
    """
    import yaml

    try:
        document = yaml.safe_load(manifest_text)
        root = yaml.compose(manifest_text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"the manifest of {found.row.name} cannot be read again: {error}") from None
    if not isinstance(document, dict) or ("searcher" in document and "framework" not in document):
        raise UsageError(
            f"the manifest of {found.row.name} is an experiment of Determined",
            hint="it has a search of its own: change its searcher: and hyperparameters:",
        )
    params = _nested(found.spec.params)
    if not params:
        raise UsageError(
            f"the manifest of {found.row.name} has no params: there is nothing to search",
            hint="write params: {lr: 0.1} into it, and ${params.lr} where its command takes the value",
        )
    kept = {key: value for key, value in document.items() if key not in ("params", "search")}
    block = "\n".join(["search:", *_goal_lines(store, found), "  params:", *_range_lines(params, "    ")])
    written = f"{_without(manifest_text, root, ('params', 'search')).rstrip()}\n\n{block}\n".lstrip()
    try:
        again = yaml.safe_load(written)
    except yaml.YAMLError:
        again = None
    if isinstance(again, dict) and {key: value for key, value in again.items() if key != "search"} == kept:
        return written
    # It is no block of lines, as JSON, or an alias below params is used elsewhere.
    plain = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True) if kept else ""
    return f"{plain}\n{block}\n".lstrip()


def _nested(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyper-parameters with dots in their names as maps."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        *above, last = name.split(".")
        below = found
        for part in above:
            below = below.setdefault(part, {})
        below[last] = value
    return found


def _without(text: str, root: yaml.Node | None, names: Sequence[str]) -> str:
    """Return a manifest without the lines of some of its keys."""
    import yaml

    lines = text.splitlines(keepends=True)
    for key, value in reversed(root.value if isinstance(root, yaml.MappingNode) else ()):
        if getattr(key, "value", None) in names:
            end = value.end_mark
            del lines[key.start_mark.line : end.line + (end.column > 0)]
    return "".join(lines)


def _goal_lines(store: Store, found: JobDetail) -> list[str]:
    """Return how the search goes on: by the metric that the job reports, stopping bad trials early where it can."""
    from workbench.metrics.direction import goal_metric, smaller_is_better
    from workbench.metrics.queries import series

    rows = series(store, found.row.id, kinds=("value", "etime"))
    reported = {row.name: row for row in reversed(rows) if row.points}
    # What says how long a job was trained is of the kind etime where fabric knows it as such.
    names = [
        name
        for name, row in reported.items()
        if row.kind == "value" and name.rpartition("/")[2] not in TIME_NAMES
    ]
    limits = [f"  max_trials: {DRAFT_TRIALS}", f"  max_concurrent: {DRAFT_CONCURRENT}"]
    metric = goal_metric(names)
    if metric is None:
        lines = ["  method: random  # the job has reported no metric: nothing says which trial is the best"]
        return [*lines, *limits, "  # metric: val_loss", "  # goal: minimize"]
    smaller = smaller_is_better(metric)
    goal = "maximize" if smaller is False else "minimize"
    unsure = "  # check this: the name does not say it" if smaller is None else ""
    by = [f"  metric: {_text(metric)}", f"  goal: {goal}{unsure}"]
    time = _time_metric(store, reported[metric], reported)
    if time is None:
        return ["  method: random", *by, *limits]
    name, longest = time
    return [
        f"  method: asha  # stops the worse trials early, by {name}; random trains all to their end",
        *by,
        f"  time_metric: {_text(name)}",
        f"  max_time: {longest}  # so far the job came",
        *limits,
    ]


def _time_metric(
    store: Store, metric: SeriesRow, reported: Mapping[str, SeriesRow]
) -> tuple[str, int] | None:
    """Return what a job reports with each value of a metric of how long it was trained, and how far it came."""
    from workbench.metrics.queries import points

    def last_points(row: SeriesRow) -> dict[tuple[Any, ...], float | None]:
        found = points(store, row.id, since_seq=max(0, row.points - _POINTS_LOOKED_AT))
        return {(each.attempt, each.step, each.time_us): each.value for each in found}

    wanted = last_points(metric)
    for time_name in TIME_NAMES:
        for name, row in reported.items():
            if name.rpartition("/")[2] != time_name or row.maximum is None or row.maximum < DRAFT_DIVISOR:
                continue
            times = last_points(row)
            if all(times.get(each) is not None for each in wanted):
                return name, int(row.maximum)
    if all(step is not None for _, step, _ in wanted) and (metric.last_step or 0) >= DRAFT_DIVISOR:
        return "step", int(metric.last_step or 0)
    return None


def _range_lines(params: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}:", *_range_lines(value, indent + "  ")]
        else:
            tried, comment = _range_around(value)
            lines.append(f"{indent}{name}: {tried}  # {comment}")
    return lines


def _range_around(value: Any) -> tuple[str, str]:
    """Return a distribution around a value, and what to know of it."""
    import math

    shown = _text(value)
    if isinstance(value, float) and math.isfinite(value) and 1e-300 < value < 1e300:
        low, high = value / DRAFT_FACTOR, value * DRAFT_FACTOR
        high = min(high, 1.0) if value < 1 else high
        return f"{{loguniform: [{_short(low)}, {_short(high)}]}}", f"the job has {shown}"
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 60:
        return f"{{int: [{max(1, value // 2)}, {value * 2}]}}", f"the job has {shown}"
    return f"{{choice: [{shown}]}}", "add what else to try"


def _text(value: Any) -> str:
    """Return a value as YAML in one line; texts are quoted, so that none is taken for a number."""
    import json
    import math

    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value, ensure_ascii=False)


def _short(number: float) -> str:
    shown = f"{number:.6g}"
    return shown if "." in shown or "e" in shown else f"{shown}.0"


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
    from workbench.spec import spec_from_json
    from workbench.store.db.rows import TargetRef
    from workbench.store.queries.experiments import newest_search, read_experiment_file

    document = read_experiment_file(store.home, row.id)
    for text in overrides:
        if not text.startswith(CHANGEABLE):
            raise UsageError(
                f"--set {text}: a fork can have another search, name and seed, nothing else",
                hint="`fabric run` of the manifest with --set begins a search that differs in more",
            )
    _check_code(store, row, document)
    spec = replace(spec_from_json(document["spec"]), search=newest_search(store.home, row.id))
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
        CannotWrite: the home takes no more.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.controller.runtime.secrets import replace_secrets
    from workbench.spec import spec_from_json
    from workbench.store.db.home_folder import require_home
    from workbench.store.queries.experiments import RUNNING, experiment, newest_search, read_experiment_file
    from workbench.store.updates.experiments import catch_up_experiment, record_event
    from workbench.store.updates.jobs import who_am_i

    require_home(store.home)
    _check_over(row)
    document = read_experiment_file(store.home, row.id)
    spec = replace(spec_from_json(document["spec"]), search=newest_search(store.home, row.id))
    limits = _limits(row, overrides)
    if limits:
        spec = _changed(spec, document["manifest_text"], limits)
    assert spec.search is not None
    _check_code(store, row, document)
    secrets = _secrets_again(store, row, spec, "continue")
    who = who_am_i()
    with store.atomic():
        catch_up_experiment(store, row.id)
        now = experiment(store, row.id) or row
        _check_over(now)
        count = _count_going_on(store, now, spec)
        # The controller reads them as soon as the event is there.
        replace_secrets(store.home, row.id, secrets)
        event = {"do": "continue", "who": who, "state": RUNNING, "reason": "", "search": dict(spec.search)}
        record_event(store, row.id, event)
    ensure_controller(store.home)
    return count


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
    from workbench.spec import spec_to_json
    from workbench.store.db.home_folder import require_home
    from workbench.store.db.rows import TargetRef
    from workbench.store.updates.experiments import insert_experiment, new_experiment_id
    from workbench.store.updates.jobs import who_am_i

    require_home(store.home)
    _check_searcher(spec, str(document["code_hash"]))
    targets = [TargetRef(**each["target"]) for each in document["places"]] or [target]
    for each in targets:
        check_copies(spec, each)
        _check_gpus(spec, each)
    drawn = int.from_bytes(os.urandom(8), "little") % SEED_LIMIT
    experiment_id = new_experiment_id()
    document = {
        "seed": drawn if spec.seed is None else spec.seed,
        "who": who_am_i(),
        "place": asdict(target),
        "spec": spec_to_json(spec),
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


def check_copies(spec: JobSpec, target: TargetRef) -> None:
    """Refuse population based training where a trial cannot get at the checkpoint of another one."""
    is_stored = any(each.training_results for each in spec.data_stores)
    if (spec.search or {}).get("method") != "pbt" or is_stored or target.type == "local":
        return
    raise UsageError(
        f"pbt copies checkpoints from trial to trial, and those of '{target.backend}' are in no result store",
        hint="set training_results in data_stores, or run it on this machine",
    )


def _check_searcher(spec: JobSpec, code_hash: str) -> None:
    """Refuse a search whose samples nothing could choose."""
    import importlib.util

    method = (spec.search or {}).get("method")
    if method == "python" and not code_hash:
        raise UsageError(
            "method python takes a class of the job's code, and this job has none", hint="name it by code:"
        )
    if method == "optuna" and importlib.util.find_spec("optuna") is None:
        raise UsageError(
            "method optuna needs Optuna, which is not installed beside fabric",
            hint="pip install 'fabric-workbench[optuna]'",
        )


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
    from workbench.store.queries.experiments import experiment
    from workbench.store.updates.experiments import catch_up_experiment, record_event
    from workbench.store.updates.jobs import who_am_i

    require_home(store.home)
    who = who_am_i()
    with store.atomic():
        # It may have ended since it was looked at, and would be open again.
        catch_up_experiment(store, row.id)
        now = experiment(store, row.id)
        if now is None or now.state not in states:
            return False
        reason = f"{what} by {who}" if what else ""
        record_event(store, row.id, {"do": do, "who": who, "state": state, "reason": reason})
    if do == "resume":
        ensure_controller(store.home)
    else:
        ensure_heard(store.home, store.note)
    return True


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
    from workbench.store.queries.experiments import RUNNING, best_trial, trials

    found = trials(store, row.id)
    best = best_trial(row, found)
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
        "archived": is_archived,
        "trials": len(found),
        "running": sum(one.state == RUNNING for one in found),
        "best": None if best is None else trial_document(best),
    }


def trial_document(row: TrialRow) -> TrialDocument:
    """Return a trial as a document."""
    return {
        "schema": "fabric.trial/1",
        "experiment": row.experiment,
        "number": row.number,
        "trial": row.trial,
        "id": row.job_id,
        "backend": row.backend,
        "state": row.state,
        "hparams": dict(row.hparams),
        "seed": row.seed,
        "units": row.units,
        "last": row.last,
        "best": row.best,
    }

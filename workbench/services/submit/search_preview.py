"""What a search would try and cost: how many trials get how far, and the first of them; and what forbids it.

Nothing is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError
from workbench.services.submit.options import RunOptions, read_manifest, resolve_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.documents.experiments import PreviewDocument, PreviewedTrials
    from workbench.spec import JobSpec
    from workbench.store.db.rows import TargetRef

SINGLE: Final = "single"


def preview_search(options: RunOptions, *, samples: int, seed: int | None = None) -> PreviewDocument:
    """Return how many trials of a manifest's search get how far, and the first of them.

    The jobs that lists in ``--set`` start are shown as the grid that they are.

    Args:
        options: the manifest and what overrides its keys.
        samples: how many trials are drawn, at most as many as there are.
        seed: what they are drawn with; None takes the manifest's ``seed``, or 0.

    Raises:
        ManifestError: the manifest is invalid.
        UsageError: a list has an empty item, or a search is in a sweep.
        InputMissing: it does not exist.
    """
    from workbench.services.submit.batch import read_batch
    from workbench.services.submit.sweeps import array_of, expanded

    options = resolve_arguments(options)
    if array_of(options.overrides, options.at_most) is not None:
        (options,) = read_batch(options).options
    elif len(expanded(options.overrides)) > 1:
        return _preview_sweep(options, samples, seed)
    return search_preview(read_manifest(options).spec, samples=samples, seed=seed)


def search_preview(spec: JobSpec, *, samples: int, seed: int | None = None) -> PreviewDocument:
    """Return how many trials of a job's search get how far, as :func:`preview_search` does."""
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


def _preview_sweep(options: RunOptions, samples: int, seed: int | None) -> PreviewDocument:
    """Return the jobs of a sweep as trials, in the order in which they are started; nothing of them is drawn."""
    from workbench.services.submit.batch import read_batch, refuse_search
    from workbench.services.submit.sweeps import swept

    batch = read_batch(options)
    specs = [read_manifest(each).spec for each in batch.options]
    refuse_search(batch, specs)
    hours = [_gpu_hours(spec, {0: 1}) for spec in specs]
    drawn_with = next((each for each in (seed, specs[0].seed) if each is not None), 0)
    known = [each for each in hours if each is not None]
    return {
        "schema": "fabric.preview/1",
        "method": "grid",
        "seed": drawn_with,
        "trials": [{"max_length": True, "count": len(specs)}],
        "samples": [
            {
                "hparams": {**spec.params, **swept(options.overrides, job.overrides)},
                "id": "",
                "seed": drawn_with if spec.seed is None else spec.seed,
            }
            for spec, job in zip(specs[:samples], batch.options, strict=False)
        ],
        "gpu_hours": sum(known) if len(known) == len(hours) else None,
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


def check_copies(spec: JobSpec, target: TargetRef) -> None:
    """Refuse population based training where a trial cannot get at the checkpoint of another one."""
    is_stored = any(each.training_results for each in spec.data_stores)
    if (spec.search or {}).get("method") != "pbt" or is_stored or target.type == "local":
        return
    raise UsageError(
        f"pbt copies checkpoints from trial to trial, and those of '{target.backend}' are in no result store",
        hint="set training_results in data_stores, or run it on this machine",
    )


def check_searcher(spec: JobSpec, code: Path | None) -> None:
    """Refuse a search whose samples nothing could choose; ``code`` is the snapshot of its code, None without any."""
    import importlib.util

    search = spec.search or {}
    method = search.get("method")
    if method == "python" and code is None:
        raise UsageError(
            "method python takes a class of the job's code, and this job has none", hint="name it by code:"
        )
    if method == "python" and code is not None:
        from workbench.data.code.archives import has_file

        file = str(search["searcher"]).rpartition(":")[0]
        if file.endswith(".py") and not has_file(code, file):
            raise UsageError(
                f"search.searcher: there is no file {file} in the job's code",
                hint="name it by its path in the folder of the code",
            )
    if method == "optuna" and importlib.util.find_spec("optuna") is None:
        raise UsageError(
            "method optuna needs Optuna, which is not installed beside fabric",
            hint="pip install 'fabric-workbench[optuna]'",
        )

"""Several documents of one manifest as a chain: who comes after whom, and in which order they are submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.errors import UsageError
from workbench.job import JobId, new_job_id
from workbench.services.submit.dependencies import JOB_STORE, split_reference
from workbench.services.submit.options import RunOptions, read_manifest
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.manifest import Loaded


@dataclass(frozen=True, slots=True)
class Link:
    """One document of a chain."""

    options: RunOptions
    name: str
    job_id: JobId


def documents_of(options: RunOptions) -> list[RunOptions]:
    """Return the options of each document of the manifest; a command line counts as one document."""
    if not options.manifest or options.manifest_text:
        return [options]
    from workbench.manifest.yaml.compose import documents
    from workbench.manifest.yaml.source import read_manifest as text_of

    texts = documents(text_of(options.manifest, None))
    return [replace(options, manifest_text=text) for text in texts]


def in_order(parts: Sequence[RunOptions]) -> list[Link]:
    """Return the documents in an order in which each comes after those that it names.

    A document that names no other comes after the one above it.

    Raises:
        UsageError: two have the same name, or they wait for each other.
        ManifestError: a document is at fault.
    """
    # --after on the command line is for the first job of the chain; in the others it would hide that they name none.
    parts = [*parts[:1], *(replace(part, after=()) for part in parts[1:])]
    loaded = [read_manifest(part) for part in parts]
    names = [each.spec.name for each in loaded]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"two documents are called {name!r}", hint="jobs of a chain need different names"
            )
    links = {
        name: Link(_after_the_last(parts, loaded, at), name, new_job_id()) for at, name in enumerate(names)
    }
    before = {
        name: [other for other in _references(each) if other in links]
        + ([names[at - 1]] if at and _names_no_job(each) else [])
        for at, (name, each) in enumerate(zip(names, loaded, strict=True))
    }
    return [links[name] for name in _sorted(before)]


def _names_no_job(loaded: Loaded) -> bool:
    origins = [origin for key, origin in loaded.origins.items() if key.partition(".")[0] == "after"]
    return all(origin == "default" for origin in origins) and not _stores(loaded)


def _stores(loaded: Loaded) -> list[str]:
    return [store.training_data for store in loaded.spec.data_stores if store.type == JOB_STORE]


def _references(loaded: Loaded) -> list[str]:
    return [split_reference(text)[0] for text in loaded.spec.after] + _stores(loaded)


def _after_the_last(parts: Sequence[RunOptions], loaded: Sequence[Loaded], at: int) -> RunOptions:
    """Make a document that names no other come after the one above it."""
    if at and _names_no_job(loaded[at]):
        return replace(parts[at], after=(f"{loaded[at - 1].spec.name}:completed",))
    return parts[at]


def _sorted(before: dict[str, list[str]]) -> list[str]:
    import graphlib

    try:
        return list(graphlib.TopologicalSorter(before).static_order())
    except graphlib.CycleError as error:
        circle = " comes after ".join(reversed(error.args[1]))
        raise UsageError(
            f"the documents wait for each other: {circle}", hint="take one `after:` out"
        ) from None

"""The jobs that one command starts: a single one, a chain of documents, a sweep over lists of values, or an array.

An array is a sweep with more values than jobs are made at once. It is a search, which makes them when their turn comes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.errors import UsageError
from workbench.spec import SWEEP_LABEL
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.data.code.snapshot import SnapshotOptions
    from workbench.job import JobId
    from workbench.manifest.builder.overrides import ArrayValues
    from workbench.paths import Home
    from workbench.services.submit.dependencies import Parent
    from workbench.services.submit.options import RunOptions
    from workbench.services.submit.prepare import JobSubmission
    from workbench.spec import JobSpec


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Jobs that are submitted together; the sequences run side by side, one item a job."""

    options: tuple[RunOptions, ...]
    ids: tuple[JobId | None, ...]
    """Chosen beforehand in a chain, where one job names another; else None."""
    names: tuple[str, ...] = ()
    """The names by which the jobs of a chain know each other; empty without a chain."""
    label: str = ""
    """The label of a sweep, ``sweep=VALUE``; empty without one."""

    @property
    def is_single(self) -> bool:
        """Whether it is one job on its own, neither a chain nor a sweep."""
        return len(self.options) == 1 and not self.label

    def prepare(
        self,
        home: Home,
        *,
        launch: bool,
        code_options: SnapshotOptions | None = None,
        cancel: threading.Event | None = None,
    ) -> list[JobSubmission]:
        """Prepare all jobs before any is submitted: a mistake in the last one starts none.

        With ``launch`` the jobs of a sweep get a number in their name, and only the first one keeps the notes
        and warnings, which are the same for all. ``code_options`` is how their code is taken. Once ``cancel`` is set,
        the call ends within a second.

        Raises:
            FabricError: as :func:`workbench.services.submit.prepare.prepare`.
        """
        submissions = list(self._prepared(home, launch, code_options, cancel))
        if launch:
            refuse_search(self, [one.loaded.spec for one in submissions])
        if not self.label or not launch:
            return submissions
        total = len(submissions)
        return [
            _numbered(submission, number, total) if total > 1 else submission
            for number, submission in enumerate(submissions, 1)
        ]

    def _prepared(
        self,
        home: Home,
        launch: bool,
        code_options: SnapshotOptions | None,
        cancel: threading.Event | None,
    ) -> Iterator[JobSubmission]:
        from workbench.services.backends.choice import BackendChoice
        from workbench.services.submit.dependencies import Parent
        from workbench.services.submit.prepare import prepare

        chain: dict[str, Parent] = {}
        choice = BackendChoice(home, cancel)
        for number, (options, job_id) in enumerate(zip(self.options, self.ids, strict=True)):
            submission = prepare(
                options,
                home,
                launch=launch,
                chain=chain,
                job_id=job_id,
                code_options=code_options,
                choice=choice,
                cancel=cancel,
            )
            if job_id is not None:
                chain[self.names[number]] = Parent(
                    job_id, submission.loaded.spec, submission.target, submission.secrets
                )
            yield submission


def read_batch(options: RunOptions) -> JobBatch:
    """Return the jobs that these options start; a manifest on standard input is read here, once.

    Raises:
        UsageError: the options contradict each other, or a list of values cannot be read.
        ManifestError: a document of a chain is invalid.
        InputMissing: the manifest does not exist.
    """
    from workbench.services.submit.chains import documents_of
    from workbench.services.submit.options import resolve_arguments
    from workbench.services.submit.sweeps import array_of, expanded

    options = resolve_arguments(options)
    documents = documents_of(options)
    # Standard input cannot be read again, so the text that was read replaces the name.
    options = documents[0] if len(documents) == 1 else options
    array = array_of(options.overrides, options.at_most)
    variants = [] if array else expanded(options.overrides)
    if len(documents) > 1 and len(variants) != 1:
        raise UsageError(
            "lists in --set start many jobs, and so do the documents of one file; not both at once",
            hint="give the parts of the chain files of their own, or --set one value",
        )
    if len(documents) > 1:
        return read_chain(documents)
    if array:
        return _array(options, array)
    if len(variants) > 1 or options.at_most is not None:
        return _sweep(options, variants)
    return JobBatch((options,), (None,))


def read_chain(documents: Sequence[RunOptions]) -> JobBatch:
    """Return the jobs of several documents, each after those that it names, else after the one above it.

    Raises:
        UsageError: two have the same name, or they wait for each other.
        ManifestError: a document is invalid.
    """
    from workbench.services.submit.chains import in_order

    links = in_order(documents)
    return JobBatch(
        tuple(link.options for link in links),
        tuple(link.job_id for link in links),
        tuple(link.name for link in links),
    )


def refuse_search(batch: JobBatch, specs: Sequence[JobSpec]) -> None:
    """Refuse a search that is not a batch of its own.

    Raises:
        UsageError: one of these jobs of the batch is a search, and there are others.
    """
    if not batch.is_single and any(spec.search for spec in specs):
        raise _not_alone()


def _not_alone() -> UsageError:
    return UsageError(
        "a search is started alone, neither in a sweep nor in a chain",
        hint="what --set lists goes below search.params as {choice: [...]}",
    )


def _array(options: RunOptions, array: ArrayValues) -> JobBatch:
    """Return the search that an array is; its jobs get their label from it."""
    from workbench.services.submit.options import read_manifest
    from workbench.services.submit.sweeps import first_of

    if any(text.partition("=")[0].strip().partition(".")[0] == "search" for text in options.overrides):
        raise _not_alone()
    options = replace(options, at_most=None)
    spec = read_manifest(replace(options, overrides=first_of(options.overrides))).spec
    if spec.search:
        raise _not_alone()
    if SWEEP_LABEL in spec.labels:
        raise UsageError(
            f"so many jobs are an array, which gives them the label `{SWEEP_LABEL}` itself",
            hint="--name NAME names the array",
        )
    return JobBatch((replace(options, overrides=first_of(options.overrides), array=array),), (None,))


def _sweep(options: RunOptions, variants: Sequence[tuple[str, ...]]) -> JobBatch:
    from workbench.services.submit.options import labels_of
    from workbench.services.submit.sweeps import new_label

    value = labels_of(options.labels).get(SWEEP_LABEL, "")
    if options.at_most is not None and len(variants) == 1 and not value:
        raise UsageError(
            f"--at-most counts the jobs with the same label `{SWEEP_LABEL}`, and this one has none",
            hint=f"--label {SWEEP_LABEL}=NAME gives it one, lists in --set do it by themselves",
        )
    label = f"{SWEEP_LABEL}={value or new_label()}"
    labels = (*(each for each in options.labels if not each.startswith(f"{SWEEP_LABEL}=")), label)
    jobs = tuple(replace(options, overrides=overrides, labels=labels) for overrides in variants)
    return JobBatch(jobs, (None,) * len(jobs), label=label)


def _numbered(submission: JobSubmission, number: int, total: int) -> JobSubmission:
    """Give a job of a sweep its number as part of its name, so that each can be named."""
    spec = submission.loaded.spec
    name = f"{spec.name[:190]}-{number:0{len(str(total))}}"
    numbered = replace(submission, loaded=replace(submission.loaded, spec=replace(spec, name=name)))
    return numbered if number == 1 else replace(numbered, warnings=(), notes=())

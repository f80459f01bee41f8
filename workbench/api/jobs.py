"""What ``import fabric_workbench`` gives: the same jobs, by the same code as the command line.

Every call opens the store for itself, so a :class:`Job` may be kept, copied and used from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from workbench.errors import FabricError, TryAgain, UnknownName, UsageError
from workbench.job import EXIT_LOST, JobId, State, short_id
from workbench.services.inspect.data_frame import data_frame
from workbench.services.inspect.job_series import JobMetrics as JobMetrics
from workbench.services.inspect.job_series import Series as Series
from workbench.services.inspect.job_series import SeriesQuery, series
from workbench.services.transfer.checkpoints import Checkpoint as Checkpoint
from workbench.services.transfer.checkpoints import checkpoints_of_steps, list_checkpoints

if TYPE_CHECKING:
    from backends.contract.prompts import LoginPrompt
    from workbench.services.control.requests import StopKind
    from workbench.services.submit.batch import JobBatch
    from workbench.services.submit.options import RunOptions
    from workbench.services.submit.prepare import JobSubmission
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

ORIGIN: Final = "python"
SOURCE: Final = "dictionary"
"""What faults call a manifest that was given as one."""


Ask = Callable[[str], str | None]
"""Gets the text of a question, such as ``Password of me@gpubox``; returns the answer, or None for none."""

_ask: Ask | None = None


def answer_by(ask: Ask | None) -> None:
    """Let a function answer what backends ask from now on, such as a password or a one-time code.

    Args:
        ask: the function; None asks at the terminal, if there is one.
    """
    global _ask
    _ask = ask


class JobFailed(FabricError):
    """A job that was to complete did not; the message is its reason, ``exit_code`` what ``fabric run`` ends with."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"{short_id(job.id)} {job.name} {job.state.lower()}: {job.reason}", hint=job.hint)
        self.job = job
        self.exit_code = job.exit_code or EXIT_LOST


class Job:
    """A job: what is known of it now, and what can be asked of it.

    ``state``, ``reason`` and the like are read again each time.
    """

    def __init__(self, job_id: str) -> None:
        self.id = job_id

    @property
    def name(self) -> str:
        """What it is called."""
        return self._row().name

    @property
    def state(self) -> str:
        """One of FfDL's: ``QUEUED``, ``PENDING``, ``PROCESSING``, ``COMPLETED``, ``FAILED``, ``HALTED``, ..."""
        return self._row().state.value

    @property
    def reason(self) -> str:
        """Why it is in that state."""
        return self._row().reason.text

    @property
    def hint(self) -> str:
        """What to do about it; empty where nothing is to be done."""
        return self._row().reason.hint

    @property
    def exit_code(self) -> int | None:
        """What ``fabric run`` ends with; None while the job is open."""
        return self._row().exit_code

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        from workbench.store.db.rows import is_over

        return is_over(self._row())

    @property
    def params(self) -> dict[str, Any]:
        """Its parameters."""
        from workbench.store.queries.jobs import detail

        with _store() as store:
            return dict(detail(store, self.id).spec.params)

    def describe(self) -> dict[str, Any]:
        """Return everything that is known of it, as ``fabric show --json``."""
        from workbench.services.inspect.job_document import describe

        with _store() as store:
            return dict(describe(store, JobId(self.id)))

    def wait(self, timeout: float | None = None, *, show: bool = True, check: bool = False) -> Job:
        """Wait until it has ended, and return it.

        Args:
            timeout: seconds; None waits as long as it takes.
            show: whether its progress is shown: in a notebook in a box, else as lines on stderr.
            check: whether a job that does not complete raises.

        Raises:
            TimeoutError: the time is over; the job goes on.
            JobFailed: it did not complete, and ``check`` was asked for.
        """
        from workbench.api.progress import wait_for

        with _store() as store:
            in_time = wait_for(store, self._row(), timeout=timeout, show=show)
        if not in_time:
            raise TimeoutError(f"{short_id(self.id)} is still {self.state.lower()} after {timeout:g} s")
        if check and self.state != State.COMPLETED:
            raise JobFailed(self)
        return self

    def logs(self, *, learner: int = 1, attempt: int | None = None, tail: int | None = None) -> str:
        """Return what a learner printed so far, ``tail`` of its last lines."""
        return "\n".join(self.lines(learner=learner, attempt=attempt, tail=tail))

    def lines(
        self, *, learner: int = 1, attempt: int | None = None, tail: int | None = None, follow: bool = False
    ) -> Iterator[str]:
        """Yield the lines that a learner printed; with ``follow`` those to come, until the job has ended."""
        from workbench.services.follow.log_reader import learner_lines

        row = self._row()
        if not 1 <= learner <= row.learners:
            raise UnknownName(f"there is no learner {learner}", hint=f"learners are 1 to {row.learners}")
        return learner_lines(row, learner=learner, attempt=attempt or row.attempt, tail=tail, follow=follow)

    def metrics(
        self, *, learner: int | None = 1, attempt: int | None = None, superseded: bool | None = None
    ) -> JobMetrics:
        """Return every metric with all its points, by its name or the last part of it.

        Args:
            learner: whose points; None takes of each metric those of the first learner that reported it.
            attempt: only this attempt's.
            superseded: whether points are among them that a later attempt went over again; by default only where an
                attempt is asked for.
        """
        with _store() as store:
            return series(store, self.id, SeriesQuery(learner, attempt, superseded))

    def results(self) -> Path:
        """Return the folder of this machine that its results are in; nothing is copied.

        Raises:
            InputMissing: they are in a store or at another backend; :meth:`download` copies them here.
        """
        from workbench.services.transfer.download import results_folder

        with _store() as store:
            return results_folder(store, self._row())

    def checkpoints(self) -> list[Checkpoint]:
        """Return its checkpoints in the order of their time, with step, metrics, and where each is."""
        with _store() as store:
            return list_checkpoints(store, self._row())

    def download(
        self,
        what: str = "results",
        into: str | Path = "",
        *,
        include: Sequence[str] = (),
        steps: Sequence[int] = (),
        force: bool = False,
    ) -> Path:
        """Copy files of the job here, from its backend or store, also while it runs; whole or not at all.

        Args:
            what: ``results``, ``checkpoints``, ``logs`` or ``code``.
            into: where a folder of that name is made; by default a new folder named after the job.
            include: patterns of the files; by default all.
            steps: of checkpoints only those of these steps.
            force: whether files that are there already are replaced.

        Returns:
            The folder with the files.

        Raises:
            InputMissing: the job has none.
            CannotWrite: something is there already, or the disk takes no more.
        """
        from workbench.services.transfer.download import DownloadOptions, download

        if steps and what != "checkpoints":
            raise UsageError(f"{what} have no steps", hint='download("checkpoints", steps=[...])')
        patterns = [include] if isinstance(include, str) else list(include)
        with _store() as store:
            row = self._row()
            if steps:
                picked = checkpoints_of_steps(list_checkpoints(store, row), steps, row)
                patterns += [pattern for each in picked for pattern in each.patterns]
            target = Path(into or row.id) / what
            return download(store, row, what, target, DownloadOptions(tuple(patterns), force))

    def delete(self, *, wait: bool = True) -> None:
        """Stop it and delete it with results, checkpoints and logs.

        Args:
            wait: whether to return only when all is deleted.

        Raises:
            TryAgain: its folder is still being removed after a while.
        """
        from workbench.services.control.requests import request, wait_until_deleted

        with _store() as store:
            row = self._row()
            request(store, [row], "delete", origin=ORIGIN)
            left = wait_until_deleted(store, [row]) if wait else []
        if left:
            raise TryAgain(f"{left[0]} is still being removed", hint="it will be gone in a while")

    def halt(self, *, wait: bool = True) -> Job:
        """Ask it to checkpoint and stop; it can be resumed."""
        return self._stop("halt", wait=wait)

    def kill(self, *, wait: bool = True) -> Job:
        """Stop it at once; it can be resumed."""
        return self._stop("kill", wait=wait)

    def resume(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        backend: str = "",
        runner: str = "",
    ) -> Job:
        """Start it again from its checkpoints.

        Args:
            params: parameters that are others from now on.
            env: variables that are others from now on.
            backend: another backend, to continue there; that needs a result store.
            runner: another way to start it.

        Raises:
            UsageError: it is not halted or failed, or cannot go on like that.
            TryAgain: the controller refused.
        """
        from workbench.services.submit.resume import JobChanges, resume, wait_for_answer
        from workbench.terminal.console import narrate

        sets = _overrides(params, {f"env.{name}": value for name, value in (env or {}).items()})
        with _store() as store:
            row = self._row()
            request = resume(store, row, JobChanges(backend, runner, sets), origin=ORIGIN)
            for note in request.notes:
                narrate(f"note: {note}")
            wait_for_answer(store, row, request)
        return self

    def tag(self, *tags: str) -> Job:
        """Add tags to it."""
        from workbench.services.control.annotate import Annotations, annotate

        with _store() as store:
            row = self._row()
            tags = tuple(dict.fromkeys((*row.tags, *tags)))
            annotate(store, row, Annotations(tags=tags), origin=ORIGIN)
        return self

    def _stop(self, kind: StopKind, *, wait: bool) -> Job:
        from workbench.services.control.requests import request_stop, wait_until_stopped

        with _store() as store:
            row = self._row()
            request_stop(store, [row], kind, origin=ORIGIN)
            if wait:
                wait_until_stopped(store, [row], kind)
        return self

    def _row(self) -> JobRow:
        from workbench.store.queries.jobs import job as stored

        with _store() as store:
            row = stored(store, self.id)
        if row is None or row.deleted_us is not None:
            raise UnknownName(f"there is no job {self.id} any more")
        return row

    def __repr__(self) -> str:
        try:
            row = self._row()
        except FabricError:
            return f"<Job {short_id(self.id)}, deleted>"
        return f"<Job {short_id(self.id)} {row.name}: {row.state.lower()}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def run(
    manifest: str | Path | Mapping[str, Any] | Sequence[str],
    code: str | Path = "",
    *,
    backend: str = "",
    runner: str = "",
    code_anyway: bool = False,
    name: str = "",
    params: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    gpus: int | None = None,
    image: str = "",
    data: str | Sequence[str] = (),
    results: str = "",
    after: Sequence[Job | str] = (),
    templates: Sequence[str] = (),
    profile: str = "",
    wait: bool = False,
    show: bool = True,
) -> Job:
    """Start a job.

    Args:
        manifest: a file, a manifest as a dictionary, or a command line as a list of arguments.
        code: folder, zip or tar with the code; else the manifest's folder, or the working one.
        backend: its name or address.
        runner: the way to start it: process, container, pod.
        code_anyway: whether the code is taken though it is a home folder, a file system's root, or very large.
        name: the job's name.
        params: its parameters, over those of the manifest.
        set: other keys by their dotted path, over those of the manifest.
        env: variables.
        secrets: names of variables whose values here are handed on as secrets.
        labels: names and texts to find it by.
        gpus: GPUs for each learner.
        image: the image that learners run in.
        data: what ``DATA_DIR`` holds, as for ``fabric run --data``: a folder, ``STORE:CONTAINER``, ``s3://...``.
        results: where results go, written in the same way.
        after: jobs that have to complete before; ``"ID:ended"`` lets one fail.
        templates: what the manifest lies over.
        profile: a part of the configuration that then counts.
        wait: whether to return only when it has ended.
        show: whether it says what it does; what waits shows its progress.

    Raises:
        FabricError: it cannot be started; the subclass says why, ``hint`` what to do.
    """
    from workbench.config import profile as chosen
    from workbench.services.submit.prepare import prepare
    from workbench.services.submit.submit import ControllerStart
    from workbench.terminal.code import terminal_code_options

    options = _read_options(
        manifest,
        code,
        _overrides(params, set),
        backend=backend,
        runner=runner,
        code_anyway=code_anyway,
        name=name,
        env=env,
        secrets=secrets,
        labels=labels,
        gpus=gpus,
        image=image,
        data=data,
        results=results,
        after=after,
        templates=templates,
    )
    with chosen(profile), _store() as store, ControllerStart(store.home):
        code_options = terminal_code_options(quiet=not show, asks=False)
        submission = prepare(options, store.home, launch=True, code_options=code_options)
        row = _submit(store, submission, show=show)
    started = Job(row.id)
    return started.wait(show=show) if wait else started


class JobOptions(TypedDict, total=False):
    """What is chosen of a job besides its manifest, code and parameters, as :func:`run` describes it."""

    backend: str
    runner: str
    code_anyway: bool
    name: str
    env: Mapping[str, str] | None
    secrets: Sequence[str]
    labels: Mapping[str, str] | None
    gpus: int | None
    image: str
    data: str | Sequence[str]
    results: str
    after: Sequence[Job | str]
    templates: Sequence[str]


class BatchOptions(JobOptions, total=False):
    """What :func:`sweep` and :func:`chain` take as :func:`run` does."""

    set: Mapping[str, Any] | None
    profile: str


def sweep(
    manifest: str | Path | Mapping[str, Any] | Sequence[str],
    code: str | Path = "",
    *,
    params: Mapping[str, Any],
    at_most: int | None = None,
    wait: bool = False,
    show: bool = True,
    **options: Unpack[BatchOptions],
) -> list[Job]:
    """Start a job for each combination of params; they have the label ``sweep`` in common.

    Args:
        manifest: a file, a manifest as a dictionary, or a command line as a list of arguments.
        code: folder, zip or tar with the code; else the manifest's folder, or the working one.
        params: by name the values to try, a list, a range or an array; anything else is one value for all jobs.
        at_most: so many of them run at once.
        wait: whether to return only when all have ended.
        show: whether it says what it does; what waits shows its progress.
        options: as for :func:`run`.

    Raises:
        FabricError: one of them cannot be started, then none is; the subclass says why, ``hint`` what to do.
    """
    from workbench.services.submit.batch import read_batch
    from workbench.services.submit.sweeps import expanded, new_label
    from workbench.spec import SWEEP_LABEL

    given: dict[str, Any] = dict(options)
    overrides = (*_overrides(None, given.pop("set", None)), *_alternatives(params))
    expanded(overrides)  # an array would not be a list of jobs
    labels = {SWEEP_LABEL: new_label(), **(given.pop("labels", None) or {})}
    profile = given.pop("profile", "")
    read = _read_options(manifest, code, overrides, at_most=at_most, labels=labels, **given)
    return _start(lambda: read_batch(read), profile, wait=wait, show=show)


def chain(
    manifest: str | Path | Sequence[Mapping[str, Any]],
    code: str | Path = "",
    *,
    wait: bool = False,
    show: bool = True,
    **options: Unpack[BatchOptions],
) -> list[Job]:
    """Start jobs one after another: each after those that its manifest names, else after the one above it.

    Args:
        manifest: a file of several documents, or the manifests as dictionaries.
        code: folder, zip or tar with the code of all; else the manifest's folder, or the working one.
        wait: whether to return only when all have ended.
        show: whether it says what it does; what waits shows its progress.
        options: as for :func:`run`; they count for all of the jobs, ``after`` for the first one.

    Returns:
        The jobs in the order in which they may start.

    Raises:
        FabricError: one of them cannot be started, then none is; the subclass says why, ``hint`` what to do.
    """
    from workbench.services.submit.batch import read_batch, read_chain

    given: dict[str, Any] = dict(options)
    keys = _overrides(None, given.pop("set", None))
    profile = given.pop("profile", "")
    if isinstance(manifest, (str, Path)):
        read = _read_options(manifest, code, keys, **given)
        return _start(lambda: read_batch(read), profile, wait=wait, show=show)
    documents = [_read_options(each, code, keys, **given) for each in manifest]
    if not documents:
        raise UsageError("the chain has no manifests", hint="give it one dictionary for each job")
    return _start(lambda: read_chain(documents), profile, wait=wait, show=show)


def job(text: str = "@last") -> Job:
    """Return the job that a text stands for: an id, a unique part of one, a name, or ``@last``.

    Raises:
        UnknownName: there is none; the hint names the nearest.
        AmbiguousName: there are several.
    """
    from workbench.store.queries.resolve import resolve

    with _store() as store:
        return Job(resolve(store, text).id)


def jobs(where: str = "", *, sort: str = "", limit: int | None = None) -> list[Job]:
    """List jobs, newest first.

    Args:
        where: a filter, as ``fabric list --where`` takes it.
        sort: a field, ``params.NAME`` or a metric, the least first; ``-loss`` turns it round.
        limit: at most so many.

    Raises:
        UsageError: the filter or the order cannot be read, or names a metric that no job has.
    """
    from workbench.services.inspect.job_query import JobQuery, find

    with _store() as store:
        query = JobQuery(where=(where,) if where else (), sort=sort or "-submitted", limit=limit)
        return [Job(row.id) for row in find(store, query).rows]


def records(jobs: Sequence[Job] | str = "") -> list[dict[str, Any]]:
    """Return a flat dictionary for each job: state, times, ``params.NAME``, ``label.NAME``, the last of each metric.

    Args:
        jobs: the jobs, or a filter of them; by default all.
    """
    from workbench.services.inspect.job_document import flat_documents
    from workbench.services.inspect.job_query import JobQuery, find
    from workbench.store.queries.jobs import jobs_by_id

    with _store() as store:
        if isinstance(jobs, str):
            return flat_documents(store, find(store, JobQuery(where=(jobs,) if jobs else ())).rows)
        found = {row.id: row for row in jobs_by_id(store, [each.id for each in jobs])}
        return flat_documents(store, [found.get(JobId(each.id)) or each._row() for each in jobs])


def frame(jobs: Sequence[Job] | str = "") -> Any:
    """Return :func:`records` as a ``pandas.DataFrame``, one row a job.

    Args:
        jobs: the jobs, or a filter of them; by default all.

    Raises:
        ConfigError: pandas is not installed.
    """
    return data_frame(records(jobs))


def _start(read: Callable[[], JobBatch], profile: str, *, wait: bool, show: bool) -> list[Job]:
    """Start the jobs of a batch that is read with this profile, all or none of them."""
    from workbench.config import profile as chosen
    from workbench.services.submit.submit import ControllerStart
    from workbench.terminal.code import terminal_code_options

    with chosen(profile), _store() as store, ControllerStart(store.home):
        code_options = terminal_code_options(quiet=not show, asks=False)
        submissions = read().prepare(store.home, launch=True, code_options=code_options)
        started = [Job(_submit(store, each, show=show).id) for each in submissions]
    return [each.wait(show=show) for each in started] if wait else started


def _submit(store: Store, submission: JobSubmission, *, show: bool) -> JobRow:
    from workbench.services.submit.submit import submission_lines, submit
    from workbench.terminal.console import narrate
    from workbench.terminal.errors import warn

    for warning in submission.warnings:
        warn(warning)
    row = submit(store, submission, origin=ORIGIN)
    if show:
        for line in (*submission_lines(submission, row), *(f"note: {note}" for note in submission.notes)):
            narrate(line)
    return row


def _answer(prompt: LoginPrompt) -> str | None:
    if _ask is not None:
        return _ask(prompt.text)
    from workbench.terminal.prompts import type_answer

    return type_answer(prompt)


@contextmanager
def _store() -> Iterator[Store]:
    from workbench.services.backends import prompts
    from workbench.services.open_store import open_store

    prompts.answer_by(_answer)
    with open_store() as store:
        yield store


def _overrides(params: Mapping[str, Any] | None, keys: Mapping[str, Any] | None) -> tuple[str, ...]:
    values = {**{f"params.{name}": value for name, value in (params or {}).items()}, **(keys or {})}
    return tuple(f"{path}={_json(value)}" for path, value in values.items())


def _alternatives(params: Mapping[str, Any]) -> Iterator[str]:
    """Write the values of a sweep as ``--set`` has them, with commas between."""
    for name, values in params.items():
        several = isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping))
        texts = [_json(value) for value in values] if several else [_json(values)]
        if not texts:
            raise UsageError(f"params.{name} has no values", hint="give it one at least")
        yield f"params.{name}={','.join(texts)}"


def _json(value: Any) -> str:
    """Write a value as JSON, which is YAML and leaves no doubt what is a text; NumPy's numbers and arrays, too."""
    import json

    def plain(other: Any) -> Any:
        if hasattr(other, "tolist"):
            return other.tolist()
        raise UsageError(
            f"{other!r} is not a value that a manifest can have", hint="numbers, texts, lists, dictionaries"
        )

    return json.dumps(value, default=plain, ensure_ascii=False)


def _read_options(
    manifest: str | Path | Mapping[str, Any] | Sequence[str],
    code: str | Path,
    overrides: tuple[str, ...],
    *,
    at_most: int | None = None,
    **given: Unpack[JobOptions],
) -> RunOptions:
    env, secrets, labels = given.pop("env", None), given.pop("secrets", ()), given.pop("labels", None)
    data, after, templates = given.pop("data", ()), given.pop("after", ()), given.pop("templates", ())
    return _options(
        manifest,
        code=str(code),
        overrides=overrides,
        at_most=at_most,
        environment=(*(f"{key}={value}" for key, value in (env or {}).items()), *secrets),
        labels=tuple(f"{key}={value}" for key, value in (labels or {}).items()),
        data=tuple(filter(None, [data] if isinstance(data, str) else data)),
        after=tuple(each.id if isinstance(each, Job) else each for each in after),
        templates=tuple(templates),
        **given,
    )


def _options(manifest: str | Path | Mapping[str, Any] | Sequence[str], **options: Any) -> RunOptions:
    from workbench.services.submit.options import RunOptions

    if isinstance(manifest, Mapping):
        import yaml

        text = yaml.safe_dump(dict(manifest), allow_unicode=True, sort_keys=False)
        options["code"] = options["code"] or _working_folder(manifest)
        return RunOptions(manifest=SOURCE, manifest_text=text, argv=("fabric_workbench.run",), **options)
    if isinstance(manifest, (str, Path)):
        return RunOptions(manifest=str(manifest), argv=("fabric_workbench.run",), **options)
    command = tuple(str(word) for word in manifest)
    if not command:
        raise UsageError("the command line is empty")
    return RunOptions(command=command, argv=("fabric_workbench.run",), **options)


def _working_folder(manifest: Mapping[str, Any]) -> str:
    return str(Path.cwd() / str(manifest.get("code") or ""))

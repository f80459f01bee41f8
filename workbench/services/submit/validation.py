"""Checks manifests: what is wrong in them, and what ``fabric run`` of them would refuse at once on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.config.secrets import find_secrets
from workbench.errors import (
    BackendError,
    BackendUnreachable,
    FabricError,
    InputMissing,
    ManifestError,
    ManifestFault,
    UnknownName,
)
from workbench.manifest.keys.store_keys import BOUND_STORES
from workbench.services.submit.options import RunOptions, read_manifest, unbuilt
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.manifest import Loaded
    from workbench.paths import Home
    from workbench.services.submit.chains import Link
    from workbench.services.submit.dependencies import Parent
    from workbench.store.db.rows import TargetRef

STDIN: Final = "-"
LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found in one file."""

    file: str
    faults: tuple[ManifestFault, ...] = ()
    """What keeps it from being run."""
    warnings: tuple[ManifestFault, ...] = ()
    """What is doubtful, and what only this machine lacks: a secret, GPUs."""
    is_missing: bool = False
    """Whether there is no such file."""


def validate(sources: Sequence[str], home: Home) -> list[Validation]:
    """Check manifests, each as a chain where it has several documents; nothing is written or started.

    A file that cannot be read is a fault like any other, so that the others are checked too.

    Args:
        sources: files; ``-`` is standard input.
        home: where other jobs are known.

    Raises:
        InputMissing: the only file cannot be read.
    """
    found = [_validate(source, home) for source in sources]
    if len(found) == 1 and found[0].is_missing:
        (fault,) = found[0].faults
        raise InputMissing(fault.problem, hint=fault.hint)
    return found


def _validate(source: str, home: Home) -> Validation:
    from workbench.manifest.builder.load import as_fault, validate_text
    from workbench.manifest.yaml.source import STDIN_NAME
    from workbench.manifest.yaml.source import read_manifest as text_of

    shown = STDIN_NAME if source == STDIN else source
    try:
        text = text_of(source, None)
    except ManifestError as error:
        return Validation(shown, error.faults, error.warnings)
    except InputMissing as error:
        return Validation(shown, (as_fault(shown, error),), is_missing=True)
    faults, warnings = validate_text(text, shown, None if source == STDIN else Path(source).absolute().parent)
    if faults:
        return Validation(shown, tuple(faults), tuple(warnings))
    check = _LaunchCheck(shown, home)
    check.check(source, text)
    # Both readings of the manifest find what is doubtful in it.
    doubtful = dict.fromkeys((*warnings, *check.warnings))
    return Validation(shown, tuple(check.faults), tuple(doubtful))


class _LaunchCheck:
    """Goes through the steps of a launch as far as they reach no backend, and collects every refusal."""

    def __init__(self, source: str, home: Home) -> None:
        self._source = source
        self._home = home
        self._chain: dict[str, Parent] = {}
        self.faults: list[ManifestFault] = []
        self.warnings: list[ManifestFault] = []

    def check(self, source: str, text: str) -> None:
        """Check all documents of a manifest."""
        from workbench.manifest.yaml.compose import documents

        parts = [RunOptions(manifest=source, manifest_text=part) for part in documents(text)]
        with self._collecting():
            if len(parts) == 1:
                self._check_document(parts[0])
                return
            from workbench.services.submit.chains import in_order

            for link in in_order(parts):
                self._check_link(link)

    def _check_link(self, link: Link) -> None:
        from workbench.services.submit.dependencies import Parent

        target, loaded = self._check_document(link.options)
        self._chain[link.name] = Parent(link.job_id, loaded.spec, target, {})

    def _check_document(self, options: RunOptions) -> tuple[TargetRef, Loaded]:
        """Check one document; every step is tried, whatever an earlier one refused."""
        from workbench.services.submit.dependencies import check_target
        from workbench.services.submit.prepare import code_of
        from workbench.services.submit.store_checks import check_stores, ready_stores

        manifest = loaded = read_manifest(options)
        self.warnings += loaded.warnings
        target = self._target(manifest)
        with self._collecting():
            loaded = self._with_parents(manifest)
            check_target(manifest, target, self._home, self._chain)
        with self._collecting():
            loaded, _ = ready_stores(loaded, self._home)
            check_stores(loaded.spec, target, self._home, launch=True)
        if target.type == LOCAL:
            self._check_folders(loaded)
        for sentence in unbuilt(loaded.spec, target):
            self._fault(sentence)
        self._check_image(loaded, target)
        code = code_of(options, loaded, self._home)
        if code is not None and not code.exists():
            self._fault(f"the code {code} is not there", "name a folder, a zip or a tar")
        with self._collecting(FabricError):
            find_secrets([name for name in loaded.spec.secrets if name not in loaded.credentials])
        return target, loaded

    def _check_image(self, loaded: Loaded, target: TargetRef) -> None:
        from runners.registry import load_runner, runner_names

        spec = loaded.spec
        if target.runner not in runner_names() or spec.image or spec.build:
            return
        if load_runner(target.runner).capabilities.uses_image:
            self._fault(
                f"the job has no image; the runner {target.runner} needs one",
                "framework: {name: custom, version: IMAGE}, or --image",
            )

    def _with_parents(self, manifest: Loaded) -> Loaded:
        from workbench.services.submit.dependencies import split_reference, with_parents

        names = [split_reference(reference)[0] for reference in manifest.spec.after]
        unknown = [name for name in names if name not in self._chain]
        if unknown and not self._home.database.exists():  # reading makes none
            raise UnknownName(f"there is no job {unknown[0]!r}", hint="`fabric run` starts one")
        return with_parents(manifest, self._home, self._chain, launch=False)[0]

    def _target(self, manifest: Loaded) -> TargetRef:
        """Return where the job would run, the first of several; of others only the name is checked."""
        from backends.contract.host_group import member_options, too_few_learners
        from workbench.services.backends.choice import split_names
        from workbench.services.backends.placement import backend_options, choose_target
        from workbench.store.db.rows import TargetRef

        spec = manifest.spec
        target = TargetRef(backend=LOCAL, type=LOCAL, runner=spec.runner)
        # What this machine has too little of, another backend or a day later may have.
        with self._collecting(BackendError, BackendUnreachable):
            options, *_ = [backend_options(name) for name in split_names(spec.backend)]
            target = TargetRef(
                backend=options.name,
                type=options.type,
                runner=spec.runner,
                address=options.address,
                options=options.options,
            )
            if options.type == LOCAL:
                return choose_target(LOCAL, "", spec).target
            hosts = len(member_options(options))
            if spec.learners < hosts:
                raise too_few_learners(options.name, spec.learners, hosts)
        return target

    def _check_folders(self, loaded: Loaded) -> None:
        """Check that the folders of data are there; a job that comes first may make them."""
        note = self._warn if loaded.spec.after or self._chain else self._fault
        for store in loaded.spec.data_stores:
            folder = Path(store.connection.get("path", ""), store.training_data)
            if store.type in BOUND_STORES and store.training_data and not folder.exists():
                problem = f"the data store {store.id} is the folder {folder}, which does not exist"
                note(problem, "check connection.path and training_data.container")

    @contextmanager
    def _collecting(self, *doubtful: type[FabricError]) -> Iterator[None]:
        """Collect what the block raises: as faults, or as warnings where it is ``doubtful``."""
        try:
            yield
        except ManifestError as error:
            self.faults += error.faults
            self.warnings += error.warnings
        except FabricError as error:
            note = self._warn if isinstance(error, doubtful) else self._fault
            note(error.message, error.hint)

    def _fault(self, problem: str, hint: str = "") -> None:
        self.faults.append(ManifestFault(self._source, 0, 0, "", problem, hint))

    def _warn(self, problem: str, hint: str = "") -> None:
        self.warnings.append(ManifestFault(self._source, 0, 0, "", problem, hint))

"""The parts of Determined that its own wheel brings, where the user's Python has it: Trial classes and callbacks.

They run on the core that is here. What they need of the wheel besides is taken from it, too; whatever talks to a master
is not.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import os
import sys

from . import _absent

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any

VERSION = "0.38.1"
"""The version of Determined whose names and checks these are."""

OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))

PARTS = frozenset(
    (
        "_env_context", "_execution", "_experiment_config", "_import", "_trial", "_trial_context", "_trial_controller",
        "common", "constants", "errors", "gpu", "horovod", "ipc", "keras", "layers", "lightning", "load", "pytorch",
        "tensorboard", "transformers", "util", "workload",
    )
)  # fmt: skip
"""Modules and packages right below ``determined`` that are the wheel's."""

NAMES = {
    "EnvContext": "_env_context",
    "ExperimentConfig": "_experiment_config",
    "LegacyTrial": "_trial",
    "TrialContext": "_trial_context",
    "TrialController": "_trial_controller",
    "_DistributedBackend": "_trial_controller",
    "_get_gpus": "_execution",
    "import_from_path": "_import",
}
"""Names of ``determined`` itself that the wheel defines, by the module that does."""

NEEDED = (
    "Trial classes need Determined's own wheel: name determined==%s and torch in requirements:, or an image that"
    " has them; or write the loop with det.core"
) % VERSION
"""What is said where there is none."""

_MARK = "_trial_controller.py"
"""A file of each version that knows ``det.LegacyTrial``; a folder of that name alone is no wheel."""


def folder() -> str | None:
    """Return the wheel's package on Python's path; None where there is none."""
    for entry in sys.path:
        found = os.path.join(os.path.abspath(entry or os.curdir), "determined")
        if os.path.realpath(found) != os.path.realpath(OWN_FOLDER) and os.path.isfile(
            os.path.join(found, _MARK)
        ):
            return found
    return None


def find_part(name: str) -> ModuleSpec | None:
    """Return where the wheel has a module right below ``determined``; None where it has none or is not there."""
    if name not in PARTS:
        return None
    wheel = folder()
    if wheel is None:
        return None
    found = importlib.machinery.PathFinder.find_spec("determined." + name, [wheel])
    if found is not None and found.origin and isinstance(found.loader, importlib.machinery.SourceFileLoader):
        found.loader = _Part(found.name, found.origin)
    return found


class OtherVersion(ImportError):
    """A part of the wheel needs a core of another version than the one that is here."""


class _Part(importlib.machinery.SourceFileLoader):
    """Loads a part of the wheel as it needs to be here, and names the wheel's version where that is why it fails."""

    def exec_module(self, module: Any) -> None:
        """Run the module.

        Raises:
            OtherVersion: it fails on the core that is here, and is of another version.
        """
        if self.name == "determined.pytorch":
            # Its checkpoints hold more than weights: from 2.6 on PyTorch loads them only where that is said.
            os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
        try:
            super().exec_module(module)
        except OtherVersion:
            raise
        except (ImportError, AttributeError) as error:
            of_others = (
                isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "determined"
            )
            found = _version_at(os.path.dirname(folder() or ""))
            if of_others or not found or _series(found) == _series(VERSION):
                raise
            raise OtherVersion(
                "%s of Determined %s does not run on fabric's determined, which is that of %s (%s):"
                " name determined==%s in requirements:, or an image that has it"
                % (self.name, found, _series(VERSION), error, VERSION)
            ) from error
        if self.name == "determined.constants":
            # The folder of this job's code: checkpoints get a copy of it.
            module.MANAGED_TRAINING_MODEL_COPY = os.environ.get("DET_WORKDIR") or os.getcwd()


def _version_at(packages: str) -> str:
    """Return the version of the wheel that is installed in a folder; empty where nothing tells it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(packages):
            package, _, rest = name.partition("-")
            version, suffix = os.path.splitext(rest)
            if package == "determined" and suffix == ".dist-info":
                return version
    return ""


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def find_name(name: str) -> Any:
    """Return what the wheel defines as ``determined.NAME``.

    Raises:
        AttributeError: it is not known, or there is no wheel.
    """
    if name in ("errors", "util") and folder() is not None:
        return importlib.import_module("determined." + name)
    if name in NAMES and folder() is not None:
        return getattr(importlib.import_module("determined." + NAMES[name]), name)
    instead = NEEDED if name in NAMES else _absent.instead_of(name)
    if name in PARTS:
        instead = _absent.instead_of_internal(name)
    raise AttributeError("module 'determined' has no attribute %r%s" % (name, instead and ": " + instead))

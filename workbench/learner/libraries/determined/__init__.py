"""Determined's package as far as training code of an experiment needs it: the Core API, on the job's own agent.

It imports the standard library alone and runs on Python 3.8. What it does not have is refused by its own name.
"""

import importlib.abc
import sys

from . import core
from ._info import ClusterInfo, InvalidHP, TrialInfo, get_cluster_info

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LOG_FORMAT", "ClusterInfo", "InvalidHP", "TrialInfo", "core", "get_cluster_info"]

__version__ = "0.38.1"
"""The version of Determined whose names and checks these are."""

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"

_ABSENT = {
    "launch.tensorflow": "set TF_CONFIG in the command itself",
    "exec": "the Trial classes do not run here; write the loop with det.core",
    "pytorch": "the Trial classes do not run here; write the loop with det.core",
    "keras": "write the loop with det.core, or call det.core from a callback",
    "tensorflow": "write the loop with det.core",
    "transformers": "report from a TrainerCallback by det.core",
    "lightning": "report from a callback by det.core",
    "experimental.client": "use the command fabric, or import fabric_workbench",
    "cli": "use the command fabric",
    "deploy": "use fabric backend add",
}


class _Absent(importlib.abc.MetaPathFinder):
    """Comes after all other finders, and says what to do about a part of Determined that is not here."""

    def find_spec(self, fullname: str, path: "Any", target: "Any" = None) -> None:
        """Raise for the parts that are known not to be here."""
        package, _, name = fullname.partition(".")
        if package == "determined" and name in _ABSENT:
            raise ModuleNotFoundError(
                # Without its name: `from determined.launch import horovod` would swallow the error.
                "%s is not a part of fabric's package determined: %s" % (fullname, _ABSENT[name])
            )
        return None


sys.meta_path.append(_Absent())

"""Determined's package as far as training code of an experiment needs it: the Core API, on the job's own agent.

It imports the standard library alone and runs on Python 3.8. Trial classes and callbacks are those of Determined's own
wheel, where the user's Python has it (see :mod:`._wheel`); what nobody has is refused by its own name.
"""

import importlib.abc
import sys

from . import _wheel, core
from ._info import ClusterInfo, InvalidHP, TrialInfo, get_cluster_info

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LOG_FORMAT", "ClusterInfo", "InvalidHP", "TrialInfo", "core", "get_cluster_info"]

__version__ = _wheel.VERSION

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"

_NO_WHEEL = (
    "Determined's own wheel has it: name determined==0.38.1 in requirements:, or an image that has it; or "
)

_ABSENT = {
    "pytorch": _NO_WHEEL + "write the loop with det.core",
    "keras": _NO_WHEEL + "call det.core from a callback",
    "tensorflow": "write the loop with det.core",
    "transformers": _NO_WHEEL + "report from a TrainerCallback by det.core",
    "lightning": _NO_WHEEL + "report from a callback by det.core",
    "experimental.client": "use the command fabric, or import fabric_workbench",
    "cli": "use the command fabric",
    "deploy": "use fabric backend add",
}


def __getattr__(name: str) -> "Any":
    return _wheel.find_name(name)


class _OtherParts(importlib.abc.MetaPathFinder):
    """Comes after all other finders: finds what the wheel has, and says what to do about what is not here."""

    def find_spec(self, fullname: str, path: "Any", target: "Any" = None) -> "Any":
        """Return where the wheel has a module; raise for the parts that are known not to be here."""
        package, _, name = fullname.partition(".")
        if package != "determined":
            return None
        found = _wheel.find_part(name)
        if found is not None:
            return found
        if name in _ABSENT:
            raise ModuleNotFoundError(
                # Without its name: `from determined.launch import horovod` would swallow the error.
                "%s is not a part of fabric's package determined: %s" % (fullname, _ABSENT[name])
            )
        return None


sys.meta_path.append(_OtherParts())

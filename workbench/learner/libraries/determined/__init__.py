"""Determined's package as far as training code of an experiment needs it: the Core API, on the job's own agent.

It imports the standard library alone and runs on Python 3.8. Trial classes and callbacks are those of Determined's own
wheel, where the user's Python has it (see :mod:`._wheel`); what nobody has is refused by its own name.
"""

import importlib.abc
import sys

from . import _absent, _wheel, core
from ._info import ClusterInfo, InvalidHP, TrialInfo, get_cluster_info

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LOG_FORMAT", "ClusterInfo", "InvalidHP", "TrialInfo", "core", "get_cluster_info"]

__version__ = _wheel.VERSION

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"


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
        is_of_wheel = name in _wheel.PARTS
        instead = _absent.instead_of_internal(name) if is_of_wheel else _absent.instead_of(name)
        if instead:
            raise ModuleNotFoundError(
                # Without its name: `from determined.launch import horovod` would swallow the error.
                "%s is not a part of fabric's package determined: %s" % (fullname, instead)
            )
        return None


sys.meta_path.append(_OtherParts())

"""Imports paramiko at less than its price: ``invoke``, two fifths of it, is for ``Match exec`` alone."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

_HIDDEN: Final = "invoke"
_importing = threading.Lock()


def load_paramiko(*, with_commands: bool = False) -> Any:  # the package has no types
    """Import and return the package.

    Args:
        with_commands: whether its configuration parser has to run commands.
    """
    with _importing:
        hidden = _HIDDEN not in sys.modules and "paramiko" not in sys.modules
        if hidden:
            sys.modules[_HIDDEN] = None  # type: ignore[assignment] # makes importing it fail, which paramiko expects
        try:
            import paramiko
            import paramiko.config
        finally:
            if hidden:
                sys.modules.pop(_HIDDEN, None)
        if with_commands and paramiko.config.invoke is None:
            import invoke

            paramiko.config.invoke = invoke
        return paramiko

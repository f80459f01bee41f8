"""How many files a process may have open: the controller takes all it may have, its learners get what it was given."""

from __future__ import annotations

import os
import resource
from typing import Dict

VARIABLE = "FABRIC_NOFILE"
"""Tells an agent the limit that its command is to have."""

MOST = 65536
"""More than this is of no use, and some programs close as many descriptors as they might have."""

_given: Dict[str, str] = {}


def raise_limit() -> None:
    """Raise the soft limit to the hard one, and remember it for what is started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        return  # macOS names a hard limit that it does not grant
    _given[VARIABLE] = str(soft)


def given() -> Dict[str, str]:
    """Return the variable that tells an agent which limit to restore; nothing where none was raised."""
    return dict(_given)


def restore_limit() -> None:
    """Take back for this process, and what it starts, a limit that whoever started it had raised for itself."""
    inherited = os.environ.pop(VARIABLE, "")
    if inherited.isdigit():
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (int(inherited), hard))
        except (OSError, ValueError):
            return

"""The one process of a TensorFlow trial on each machine: ``python3 -m determined.launch.tensorflow SCRIPT``.

TensorFlow uses several GPUs of a machine from one process, so this becomes the script. Where there are several machines
``TF_CONFIG`` says who is who.
"""

from __future__ import annotations

import json
import os
import sys

# Relative: this package is imported by its last name.
from .._info import get_cluster_info  # noqa: TID252
from . import _launcher

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Sequence

USAGE = "usage: python3 -m determined.launch.tensorflow [--port PORT] [--] SCRIPT..."


def parsed(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the port for processes on other machines, empty where none is named, and the command of the process.

    Raises:
        Refused: there is no command, or an option is not known.
    """
    options, script, port = list(words), [], ""
    if "--" in options:
        at = options.index("--")
        options, script = options[:at], options[at + 1 :]
    while options and options[0].startswith("-"):
        name, equals, value = options.pop(0).partition("=")
        if name in ("-h", "--help"):
            raise _launcher.Refused(USAGE, 0)
        if name != "--port":
            raise _launcher.Refused("unrecognized arguments: %s\n%s" % (name, USAGE))
        port = value if equals else options.pop(0) if options else ""
        if not port.isdigit():
            raise _launcher.Refused("argument --port: invalid int value: %r\n%s" % (port, USAGE))
    found = [*options, *script]
    if not found:
        raise _launcher.Refused("empty script is not allowed\n%s" % USAGE, 1)
    return port, found


def cluster_of(port: str) -> str:
    """Return ``TF_CONFIG`` of this machine's process; empty where it is the only one.

    Raises:
        Refused: several machines have one address, where only one process can have the port.
    """
    info = get_cluster_info()
    addresses = info.container_addrs if info else []
    if info is None or len(addresses) == 1:
        return ""
    if len(set(addresses)) < len(addresses):
        raise _launcher.Refused(
            "the trial's %d learners are processes of one host and would have one port: name an image, so that they"
            " are containers, or let it be one learner: resources.is_single_node: true" % len(addresses),
            1,
        )
    workers = ["%s:%s" % (address, port or _launcher.port()) for address in addresses]
    return json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": info.container_rank}}
    )


def main(words: Sequence[str]) -> int:
    """Become the script; return an exit code where that cannot be."""
    try:
        port, script = parsed(words)
        cluster = cluster_of(port)
    except _launcher.Refused as error:
        return _launcher.refused("tensorflow", error)
    if cluster:
        os.environ["TF_CONFIG"] = cluster
    return _launcher.become("tensorflow", script)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The one process of a TensorFlow trial: ``python3 -m determined.launch.tensorflow SCRIPT``.

On one machine TensorFlow uses several GPUs from one process (``MirroredStrategy``), so this becomes the script.
"""

from __future__ import annotations

import sys

from . import _launcher

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Sequence

USAGE = "usage: python3 -m determined.launch.tensorflow [--port PORT] [--] SCRIPT..."


def script_of(words: Sequence[str]) -> list[str]:
    """Return the command of the process. A port is for processes on other machines, of which there are none.

    Raises:
        Refused: there is no command, or an option is not known.
    """
    options, script = list(words), []
    if "--" in options:
        at = options.index("--")
        options, script = options[:at], options[at + 1 :]
    while options and options[0].startswith("-"):
        name, equals, value = options.pop(0).partition("=")
        if name in ("-h", "--help"):
            raise _launcher.Refused(USAGE, 0)
        if name != "--port":
            raise _launcher.Refused("unrecognized arguments: %s\n%s" % (name, USAGE))
        value = value if equals else options.pop(0) if options else ""
        if not value.isdigit():
            raise _launcher.Refused("argument --port: invalid int value: %r\n%s" % (value, USAGE))
    found = [*options, *script]
    if not found:
        raise _launcher.Refused("empty script is not allowed\n%s" % USAGE, 1)
    return found


def main(words: Sequence[str]) -> int:
    """Become the script; return an exit code where that cannot be."""
    try:
        script = script_of(words)
    except _launcher.Refused as error:
        return _launcher.refused("tensorflow", error)
    return _launcher.become("tensorflow", script)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

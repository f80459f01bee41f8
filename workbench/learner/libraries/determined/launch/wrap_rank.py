"""Runs a command and prefixes its lines: ``python3 -m determined.launch.wrap_rank RANK -- COMMAND``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading

from workbench.learner.report import should_stop

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, BinaryIO

USAGE = "usage: python3 -m determined.launch.wrap_rank [--no-redirect-stdio] RANK -- COMMAND"
NOT_FOUND = 127
READ_BYTES = 1 << 16
LINE_BYTES = 8191


def main(words: list[str]) -> int:
    """Run the command behind the rank and return its exit code.

    The rank is a number, or the names of variables with commas between them: the first that is set counts.
    """
    redirects = "--no-redirect-stdio" not in words[:2]
    words = words if redirects else [word for word in words if word != "--no-redirect-stdio"]
    if len(words) < 2:
        print(USAGE, file=sys.stderr)
        return 2
    rank, command = words[0], words[1:]
    if command[0] == "--":
        command = command[1:]
    if not rank.isdigit():
        found = [os.environ[name] for name in rank.split(",") if os.environ.get(name, "").isdigit()]
        if not found:
            print("wrap_rank: none of the variables %s is a number" % rank, file=sys.stderr)
            return 2
        rank = found[0]
    # What a launcher ignores, its processes would ignore, too.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        if not redirects:
            os.execvp(command[0], command)
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe)
    except (OSError, IndexError) as error:
        print("wrap_rank: %s: %s" % (" ".join(command) or "no command", error), file=sys.stderr)
        return NOT_FOUND

    def on_sigterm(number: int, frame: Any) -> None:
        if not should_stop():
            process.terminate()

    signal.signal(signal.SIGTERM, on_sigterm)
    assert process.stdout is not None and process.stderr is not None
    prefix = b"[rank=%s] " % rank.encode()
    streams = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
    threads = [threading.Thread(target=_copy, args=(*each, prefix), daemon=True) for each in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    code = process.wait()
    return code if code >= 0 else 128 - code


def _copy(source: BinaryIO, target: BinaryIO, prefix: bytes) -> None:
    """Copy line by line; each is one write, so those of several processes do not mix.

    A line ends with a line feed or a carriage return, as a progress bar's does. One that is very long is cut.
    """
    descriptor, rest, is_after_return = source.fileno(), b"", False
    for part in iter(lambda: os.read(descriptor, READ_BYTES), b""):
        text = part[1:] if is_after_return and part[:1] == b"\n" else part
        is_after_return = part.endswith(b"\r")
        *lines, rest = re.split(rb"\r\n|[\r\n]", rest + text)
        while len(rest) >= LINE_BYTES:
            lines.append(rest[:LINE_BYTES])
            rest = rest[LINE_BYTES:]
        for line in lines:
            target.write(prefix + line + b"\n")
            target.flush()
    if rest:
        target.write(prefix + rest + b"\n")
        target.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

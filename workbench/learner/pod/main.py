"""The agent's roles in the containers of a pod: ``pod prepare | learner | journal | host | exec ARGV...``."""

from __future__ import annotations

import os
import signal
import sys

EXIT_USAGE = 64


def main(arguments: list[str]) -> int:
    """Run a role and return its exit code."""
    role, rest = arguments[0] if arguments else "", arguments[1:]
    if role in ("prepare", "learner", "journal"):
        # The first process of a container gets only the signals that it handles, and the imports take a while.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    if role == "prepare":
        from workbench.learner.pod.init_container import prepare

        return prepare()
    if role == "learner":
        from workbench.learner.pod.entrypoint import run_learner

        return run_learner()
    if role == "journal":
        from workbench.learner.pod.sidecar import serve

        return serve()
    if role == "host":
        from workbench.learner.host.server import serve as serve_frames
        from workbench.learner.pod.reader import write_read_offsets

        return serve_frames(sys.stdin.buffer, sys.stdout.buffer, write_read_offsets)
    if role == "exec" and rest:
        return execute(rest)
    sys.stderr.write("usage: agent pod prepare | learner | journal | host | exec ARGV...\n")
    return EXIT_USAGE


def execute(argv: list[str]) -> int:
    """Replace this process by a command with the learner's folder and environment (``fabric exec``)."""
    from workbench.learner.pod import config

    pod = config.read()
    environment = {**os.environ, **config.own_variables(pod)}
    # Python ignores them, and what is ignored stays so through exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(config.MODEL)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (argv[0], error.strerror))
        return 127 if isinstance(error, FileNotFoundError) else 126

"""Writes the input of the ``sh`` agent: ``launch.sh``, the launch document as shell text, and its secrets.

``launch.sh`` lies next to ``launch.json`` in the learner's folder and is sourced by ``agent.sh``. It always defines:

* ``launch_identity``: home, job, attempt and learner as members of a JSON object;
* ``launch_marker``: what ``FABRIC_LEARNER`` is;
* ``launch_learner``, ``launch_learners``: its number from 1, and how many there are;
* ``launch_command``, ``launch_setup``: scripts; an empty setup is none;
* ``launch_shell``: the shell to run them with, where it is there;
* ``launch_cwd``: the working folder, and ``launch_cwd_json``: the same inside of JSON quotes;
* ``launch_attempt_dir``: where ``decision.json`` appears;
* ``launch_grace_seconds``, ``launch_settle_seconds``, ``launch_max_runtime_seconds``: decimal numbers, the last
  one empty for no limit;
* ``launch_decides_after``: with how many learners ended by themselves an end decides;
* ``launch_cpus``: numbers with commas between, or empty for all;
* ``launch_secrets_file``: a file as :func:`render_secrets` gives it, or empty; and ``launch_secrets_json``;
* ``launch_export``: a function that exports what the command sees;
* ``launch_exec``: a function that executes its arguments, with variables that no shell can name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import Any, Dict, Iterable, List, Mapping, Tuple, Union

from workbench.learner.journal.launch_document import LaunchDocument, is_variable

PARTS = ("begin", "tools", "state", "processes", "requests", "output", "command", "end", "lock", "main")
"""The agent's source files, in the order of the one script that they become."""

ASK_TO_STOP = r"""umask 077
new=$0.new-$$
if printf '%s\n' "$1" >"$new"; then mv -f "$new" "$0" && exit 0; fi
rm -f "$new"
[ -f "$0.spare" ] && printf '%-4095s\n' "$1" | dd of="$0.spare" conv=notrunc || exit 1
[ ! -e "$0" ] || ln -f "$0" "$0.old"
mv -f "$0.spare" "$0" || exit 1
mv -f "$0.old" "$0.spare"
exit 0
"""
"""A script that writes a request to stop, as ``state.ask_to_stop`` does: ``$0`` is the path, ``$1`` the text."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def agent_script() -> str:
    """Return the ``sh`` agent: one script, which runs on the host as ``agent.sh``."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sh_agent")
    texts = []
    for part in PARTS:
        with open(os.path.join(folder, part + ".sh"), encoding="utf-8") as file:
            texts.append(file.read())
    return "\n".join(texts)


def guard_argv(agent: str, learner_dir: str, shell: str = "sh") -> List[str]:
    """Return the command that keeps a learner with the ``sh`` agent."""
    return [shell, agent, "guard", learner_dir]


def render(document: Mapping[str, Any], *, learner_dir: str, secrets_file: str = "") -> str:
    """Return ``launch.sh`` for a launch document.

    Args:
        document: the launch document (``launch.json``).
        learner_dir: the learner's folder on the host.
        secrets_file: where the text of :func:`render_secrets` lies on the host, mode 0600; empty without secrets.

    Raises:
        ValueError: a value holds a NUL byte, which no shell can hold.
    """
    launch = LaunchDocument(document)
    identity = {"home": launch.home, "job": launch.job, "attempt": launch.attempt, "learner": launch.learner}
    limit = launch.max_runtime_seconds
    values = {
        "launch_identity": json.dumps(identity)[1:-1],
        "launch_marker": launch.marker,
        "launch_learner": str(launch.learner),
        "launch_learners": str(launch.learners),
        "launch_command": launch.command,
        "launch_setup": launch.setup,
        "launch_shell": launch.shell,
        "launch_cwd": launch.cwd,
        "launch_cwd_json": json.dumps(launch.cwd)[1:-1],
        "launch_attempt_dir": launch.attempt_dir,
        "launch_grace_seconds": _decimal(launch.grace_seconds),
        "launch_settle_seconds": _decimal(launch.settle_seconds),
        "launch_max_runtime_seconds": "" if limit is None else _decimal(limit),
        "launch_decides_after": str(_decides_after(launch.ends_when, launch.learners)),
        "launch_cpus": ",".join(str(int(cpu)) for cpu in launch.cpus),
        "launch_secrets_file": secrets_file,
        "launch_secrets_json": json.dumps(secrets_file)[1:-1],
    }
    lines = ["%s=%s" % (name, _quoted(value)) for name, value in values.items()]
    environment = {
        "FABRIC_REPORT": os.path.join(learner_dir, "report.jsonl"),
        "FABRIC_STOP_FILE": os.path.join(learner_dir, "stop.json"),
        **{str(name): str(value) for name, value in launch.env.items()},
    }
    named, unnamed = _split(environment)
    lines += ["launch_export() {", *_exports(named), ":", "}"]
    odd = "".join("%s " % _quoted("%s=%s" % item) for item in unnamed.items())
    lines += ["launch_exec() {", 'exec %s"$@"' % ("env %s" % odd if odd else ""), "}"]
    return "\n".join(lines) + "\n"


def render_secrets(secrets: Mapping[str, str]) -> str:
    """Return secrets as shell text to be sourced, so that no value is ever an argument; those of stores are left out.

    Raises:
        ValueError: a name is none that a shell can export, or a value holds a NUL byte.
    """
    named, unnamed = _split({name: value for name, value in secrets.items() if is_variable(name)})
    if unnamed:
        raise ValueError("a secret cannot be named %s here" % ", ".join(sorted(unnamed)))
    return "\n".join([*_exports(named), ":", ""])


def _exports(variables: Mapping[str, str]) -> Iterable[str]:
    return ["export %s=%s" % (name, _quoted(value)) for name, value in variables.items()]


def _split(variables: Mapping[str, str]) -> Tuple[Dict[str, str], Dict[str, str]]:
    named = {name: value for name, value in variables.items() if _NAME.match(name)}
    return named, {name: value for name, value in variables.items() if name not in named}


def _quoted(text: str) -> str:
    if "\0" in text:
        raise ValueError("a shell cannot hold a NUL byte: %.60r" % text)
    return shlex.quote(text)


def _decimal(seconds: float) -> str:
    return ("%.2f" % max(0.0, float(seconds))).rstrip("0").rstrip(".")


def _decides_after(ends_when: Union[str, int], learners: int) -> int:
    needed = {"first": 1, "all": learners}.get(str(ends_when)) or int(ends_when)
    return min(needed, learners)

"""Reasons for a learner's end: a sentence with the last line of output, FfDL's code, and a hint."""

from __future__ import annotations

import json
import os
import re
import signal

from workbench.learner.journal import output

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

NOT_EXECUTABLE = 126
NOT_FOUND = 127
LINE_CHARACTERS = 200
"""How much of the last line of output goes into a reason."""

UNSAVED = "its agent was killed before all output was saved: what was printed last may be missing"
UNSAVED_CODE = "S206"
PREEMPTED_CODE = "S106"

_GPU_LOST = ("Failed to initialize NVML", "Can't initialize NVML")
"""What NVIDIA's tools and PyTorch say when the devices are there no more."""

_GPU_IS_FULL = ("CUDA out of memory", "OutOfMemoryError", "RESOURCE_EXHAUSTED", "ALLOC_FAILED")
"""What PyTorch, JAX, TensorFlow, cuBLAS and cuDNN say when a GPU's memory does not suffice."""

_TORCHRUN = re.compile(r"torch[./]distributed[./]elastic[./]multiprocessing[./]api")
"""What torchrun's own lines have, as it stops workers and says which one failed; a table follows them."""

_ESCAPES = re.compile(
    r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


_UNSTORED = re.compile(r"(?:^|; )\d+ of its files (?:is|are) not stored(?:: .*)?$", re.DOTALL)


def unstored(count: int) -> str:
    """Say that files of a learner are not in the result store."""
    return "%d of its files %s not stored" % (count, "is" if count == 1 else "are")


def without_unstored(text: str) -> str:
    """Return a reason's text without what was not stored, and why: it has been since."""
    return _UNSTORED.sub("", text)


def reason(text: str, code: str = "", hint: str = "") -> dict[str, Any]:
    """Return a reason as the state file has it."""
    return {"text": text, "code": code, "hint": hint}


def of_command(exit_code: int | None, number: int | None) -> dict[str, Any] | None:
    """Say why a command that ended by itself has failed; None when it has not."""
    if exit_code == 0:
        return None
    if exit_code == NOT_FOUND:
        return reason("a command was not found (exit code 127)", "C202", "check its spelling and PATH")
    if exit_code == NOT_EXECUTABLE:
        return reason("a command cannot be executed (exit code 126)", "C202", "check its mode: chmod +x")
    return reason("the command " + _ended(exit_code, number), "C201", _hint(exit_code, number))


def of_setup(exit_code: int | None, number: int | None) -> dict[str, Any]:
    """Say why the setup has failed."""
    return reason("setup " + _ended(exit_code, number), "C206", "see setup.log")


def of_failed_start(text: str) -> dict[str, Any]:
    """Say that there could be no process for the command."""
    return reason("the command could not be started: " + text, "S101")


def of_stop(kind: str, by: str) -> dict[str, Any]:
    """Say who halted or killed a learner."""
    done = "killed" if kind == "kill" else "halted"
    return reason("%s by %s" % (done, by) if by else done)


def of_settling(decision: dict[str, Any]) -> dict[str, Any]:
    """Say which learner's end ended this one."""
    what = "has failed" if decision.get("failed") else "has ended"
    return reason("stopped, since learner %s %s" % (decision.get("learner", "?"), what))


def of_time_limit(seconds: float) -> dict[str, Any]:
    """Say that the time was over."""
    return reason(
        "ran longer than max_runtime, %g s" % seconds, "C204", "raise max_runtime, or resume the job"
    )


def of_preemption(why: str) -> dict[str, Any]:
    """Say for what a learner ends that may be preempted."""
    return reason("preempted: " + why, PREEMPTED_CODE)


def of_memory(used_bytes: int, limit_bytes: int) -> dict[str, Any]:
    """Say that the learner's processes used more memory than it asked for."""
    text = "used %s of memory, more than its limit of %s" % (_size(used_bytes), _size(limit_bytes))
    return reason(text, "C203", "raise memory, or let the job use less")


def of_lost_output(count: int) -> dict[str, Any]:
    """Say that output was given up on a full disk."""
    return reason("the disk is full: the last %d bytes of output could not be kept" % count, "S204")


def lost_with_mount(count: int) -> str:
    """Say that a file system took output and did not keep it."""
    return (
        "the mount of the home ended, and %d bytes of output are missing: zeros stand in their place" % count
    )


def of_unsaved_output(why: dict[str, Any] | None) -> dict[str, Any]:
    """Say of a command whose end is known that no agent was left to save what it printed last.

    Args:
        why: why it ended, None for a success, which it stays.
    """
    if why is None:
        return reason(UNSAVED, UNSAVED_CODE)
    # An agent before may have added it and been killed before it recorded the end.
    return why if UNSAVED in why["text"] else {**why, "text": "%s; %s" % (why["text"], UNSAVED)}


def of_lost_gpu(folder: str, name: str) -> dict[str, Any] | None:
    """Say that GPUs were lost to a learner while it ran, if what it printed last tells so."""
    for line in reversed(_last_lines(folder, name)):
        if any(phrase in line for phrase in _GPU_LOST):
            hint = (
                "a container loses its GPUs when systemd reloads its units: let the engine use the cgroup driver"
                " cgroupfs, and see nvidia-ctk system create-dev-char-symlinks"
            )
            return reason("it lost its GPUs while it ran: %s" % line[:LINE_CHARACTERS], "S105", hint)
    return None


def read_reason(folder: str) -> dict[str, Any]:
    """Return ``reason`` and ``stopped`` of the command's end, as the container proxy wrote them; empty without."""
    try:
        with open(os.path.join(folder, "reason.json"), "rb") as file:
            document = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    why = reason(str(document.get("text")), str(document.get("code")), str(document.get("hint") or ""))
    return {"reason": why, "stopped": str(document.get("stopped") or "")}


def with_last_line(why: dict[str, Any], folder: str, name: str, *, has_gpus: bool = False) -> dict[str, Any]:
    """Add what was printed last, as far as it is published: secrets are overwritten in it."""
    line = _telling_line(_last_lines(folder, name))
    if not line:
        return why
    hint = why["hint"]
    if has_gpus and any(phrase in line for phrase in _GPU_IS_FULL):
        hint = "its GPU has too little memory for it: a smaller batch, gradient checkpointing, or more or larger GPUs"
    return {**why, "text": "%s: %s" % (why["text"], _cut(line)), "hint": hint}


def _telling_line(lines: list[str]) -> str:
    """Return the last line that is no rule; where torchrun says that a worker failed, the last before that."""
    ends = (at for at, line in enumerate(lines) if _TORCHRUN.search(line) and "failed (exitcode" in line)
    for line in reversed(lines[: next(ends, len(lines))] or lines):
        if line.strip("=-_~#+|\u2500\u2501\u2550 ") and not _TORCHRUN.search(line):
            return line
    return ""


def _cut(line: str) -> str:
    """Cut a line to size at the end of a word."""
    if len(line) <= LINE_CHARACTERS:
        return line
    cut = line[:LINE_CHARACTERS].rpartition(" ")[0] or line[: LINE_CHARACTERS - 1]
    return cut + "\u2026"


def _last_lines(folder: str, name: str) -> list[str]:
    """Return the last lines that say anything, made harmless for a terminal."""
    end = output.published_end(os.path.join(folder, name + ".idx"))
    start = max(0, end - 8192)
    try:
        with open(os.path.join(folder, name + ".log"), "rb") as file:
            file.seek(start)
            data = file.read(end - start)
    except OSError:
        return []
    texts = (_ESCAPES.sub("", line).strip() for line in re.split(r"[\r\n]+", data.decode("utf-8", "replace")))
    return [text for text in texts if text]


def signal_name(number: int) -> str:
    """Return a signal as people know it."""
    try:
        return "signal %d (%s)" % (number, signal.Signals(number).name)
    except ValueError:
        return "signal %d" % number


def _ended(exit_code: int | None, number: int | None) -> str:
    if number is not None:
        return "was ended by " + signal_name(number)
    return "failed with exit code %s" % exit_code


def _hint(exit_code: int | None, number: int | None) -> str:
    if number == signal.SIGKILL or exit_code == 128 + signal.SIGKILL:
        return "fabric did not kill it: the machine may have run out of memory"
    return ""


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return "%.2f %s" % (count / size, unit)
    return "%d bytes" % count

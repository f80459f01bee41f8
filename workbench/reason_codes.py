"""What the codes of reasons mean: the one table of them, for help, documentation and tests.

The codes are FfDL's, with more of its kind: C for a fault of the job, S for one of the platform. The first digit
groups them: C1 keeps a job from starting, C2 ends its learner; S1 is a machine's, S2 of what runs learners there,
S3 of stores. What gives a code to a reason is where the reason is found: ``workbench.learner.journal.reasons`` for
the agent, ``controller.decide`` and the runners for what happens outside it.
"""

from __future__ import annotations

from typing import Final, Literal

from workbench.values import dataclass

Allowance = Literal["", "max_restarts", "max_platform_restarts"]


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """One code."""

    code: str
    meaning: str
    allowance: Allowance
    """The key of the manifest that says how often another attempt begins by itself; empty where none does."""


REASON_CODES: Final = (
    ReasonCode("C101", "the manifest, a setting or a file name cannot be used there", ""),
    ReasonCode("C103", "a right, key or credential is missing or wrong", ""),
    ReasonCode("C104", "the backend does not have what the job asks for", ""),
    ReasonCode("C105", "a job that this one comes after did not complete", ""),
    ReasonCode("C201", "the command failed, or a signal ended it", "max_restarts"),
    ReasonCode("C202", "the command was not found, or cannot be executed", "max_restarts"),
    ReasonCode("C203", "the job used more memory than it asked for", "max_restarts"),
    ReasonCode("C204", "the job ran longer than max_runtime", ""),
    ReasonCode("C205", "the environment of the job could not be made: Python, packages, image", ""),
    ReasonCode("C206", "setup: failed", "max_restarts"),
    ReasonCode("S100", "the machine or cluster ran out of memory, disk or places", "max_platform_restarts"),
    ReasonCode("S101", "the command could not be started, or fabric failed", "max_platform_restarts"),
    ReasonCode("S103", "the image could not be pulled", "max_platform_restarts"),
    ReasonCode("S104", "the learner is gone and left no exit code", "max_platform_restarts"),
    ReasonCode("S105", "the learner lost its GPUs while it ran", "max_platform_restarts"),
    ReasonCode(
        "S200", "the host, engine or cluster does not answer, or ended the learner", "max_platform_restarts"
    ),
    ReasonCode("S202", "the agent that runs the learner was killed", "max_platform_restarts"),
    ReasonCode("S203", "the machine was restarted", "max_platform_restarts"),
    ReasonCode("S204", "a disk is full, or cannot be written", "max_platform_restarts"),
    ReasonCode(
        "S205", "the controller has too little memory, threads or descriptors", "max_platform_restarts"
    ),
    ReasonCode("S206", "the last output may be missing; how the command ended is known", ""),
    ReasonCode("S301", "a file that the job needs is not there", ""),
    ReasonCode("S302", "data could not be fetched from a store", "max_platform_restarts"),
    ReasonCode("S303", "results could not be stored: `fabric store retry JOB`", ""),
)
"""In the order of their codes."""


def table_of_codes() -> str:
    """Return the codes as a plain table for a terminal, a line each."""
    width = max(len(each.meaning) for each in REASON_CODES)
    lines = (f"  {each.code}   {each.meaning:{width}}   {each.allowance}" for each in REASON_CODES)
    return "".join(line.rstrip() + "\n" for line in lines)

"""Log policies: lines of a failed attempt's output that say something about another attempt. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from workbench.controller.decide.outcome import Outcome
from workbench.errors import FabricError
from workbench.job import PREEMPTED, FaultOwner
from workbench.learner.journal.output_search import SEARCHED_BYTES, whole_blocks
from workbench.logs.grep import Pattern
from workbench.values import dataclass

LINE_LONGEST: Final = 200
"""Characters of a line that a reason and the history show."""


@dataclass(frozen=True, slots=True)
class LogMatch:
    """The first line of a learner's output that a policy's pattern matched."""

    policy: str
    """Its name, or its pattern where it has none."""
    action: str
    """``cancel_retries``, ``exclude_node``, or empty for a name in the history alone."""
    line: str
    learner: int
    node: str = ""
    """The machine that the learner ran on."""
    has_other_nodes: bool = False
    """Whether the job's backend has more machines than that one."""

    @property
    def note(self) -> str:
        """What the job's history says of it."""
        text = f"log policy {self.policy}: learner {self.learner}: {self.line}"
        if self.action == "exclude_node" and self.has_other_nodes:
            return f"{text}; a restart may get {self.node or 'its node'} again: kubernetes: node_selector keeps it off"
        return text


def matches_of(
    policies: Sequence[Mapping[str, Any]],
    learner: int,
    node: str,
    read: Callable[[int, int], bytes],
    size: int,
) -> Iterator[LogMatch]:
    """Yield for each policy the first line of a learner's output that it matches.

    Args:
        policies: those of the job, as its spec has them.
        learner: the number of the learner.
        node: the machine that it ran on.
        read: gives at most so many bytes from an offset on, none at the end.
        size: of the output in bytes.

    Raises:
        FabricError: a pattern takes too long; those before it are yielded.
    """
    left = [(policy, Pattern(policy["pattern"])) for policy in policies]
    for _, block in whole_blocks(read, max(0, size - SEARCHED_BYTES)):
        for policy, pattern in list(left):
            if span := next(iter(pattern.spans(block)), None):
                left.remove((policy, pattern))
                line = shown_line(block[slice(*span)])
                name = policy.get("name") or policy["pattern"]
                yield LogMatch(name, policy.get("action", ""), line, learner, node)
        if not left:
            return


def shown_line(line: bytes) -> str:
    """Return a line of output as a reason shows it: short, and without what would drive a terminal."""
    text = line[: 4 * LINE_LONGEST].decode("utf-8", "replace")
    text = "".join(each for each in text if each.isprintable()).strip()
    return text if len(text) <= LINE_LONGEST else f"{text[:LINE_LONGEST]}..."


def bar_to_restart(outcome: Outcome, matches: Sequence[LogMatch]) -> str:
    """Return why a job that would be started again is not, empty where no policy bars it.

    A fault of the platform is not the command's: only a machine that is to be avoided bars a restart after one. Who was
    preempted has not failed.
    """
    if outcome.reason.code == PREEMPTED:
        return ""
    for match in matches:
        if match.action == "cancel_retries" and outcome.reason.fault is not FaultOwner.PLATFORM:
            return f"the log policy {match.policy} allows no restart, for the line: {match.line}"
        if match.action == "exclude_node" and not match.has_other_nodes:
            machine = match.node or "its machine"
            return (
                f"the log policy {match.policy} excludes {machine}, and the backend has no other, for the line:"
                f" {match.line}"
            )
    return ""


def search_outputs(
    policies: Sequence[Mapping[str, Any]],
    outputs: Sequence[tuple[int, str, Callable[[int, int], bytes], int]],
) -> tuple[list[LogMatch], str]:
    """Return the first match of each policy and action, and why the search ended early, if it did.

    Args:
        policies: those of the job.
        outputs: number, machine, reader and size in bytes of each learner's output.
    """
    found: dict[tuple[str, str], LogMatch] = {}
    try:
        for learner, node, read, size in outputs:
            for match in matches_of(policies, learner, node, read, size):
                found.setdefault((match.policy, match.action), match)
    except (FabricError, OSError) as error:
        return list(found.values()), f"log policies were not all looked at: {error}"
    return list(found.values()), ""

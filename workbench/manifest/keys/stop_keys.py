"""The keys of ``stop_when`` and ``log_policies``: when a job is stopped for what it reports, or not started again."""

from __future__ import annotations

import re
from typing import Any, Final

from workbench.manifest.keys.containers import Key, KeyTable
from workbench.manifest.keys.kinds import MultilineText, NameChoice, Text
from workbench.manifest.keys.scalars import Number, WholeNumber
from workbench.manifest.keys.search_keys import GOALS
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import Node, ScalarNode, child

CONDITIONS: Final = ("is", "above", "below", "no_better_for", "worse_than")
ACTIONS: Final = ("halt", "kill", "tell")
BOUND: Final = 1e300
VALUES_MAX: Final = 1 << 53
_NUMBER: Final = Number(-BOUND, BOUND)
_COUNT: Final = WholeNumber(1, VALUES_MAX)
_SHARE: Final = r"\s*(?:100|[1-9]?[0-9](?:\.[0-9]+)?)\s*%\s*"


class CountOrShare(WholeNumber):
    """So many values, or a share of them in percent."""

    def __init__(self) -> None:
        super().__init__(1, VALUES_MAX)
        self.expected += ", or a share such as 20%"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        """Return the number, or the share as a text."""
        if isinstance(node, ScalarNode) and re.fullmatch(_SHARE, node.text):
            return node.text.replace(" ", "")
        return super().read(node, path, findings)

    def schema(self) -> dict[str, Any]:
        """An integer, or a text with a percent sign."""
        return {"anyOf": [super().schema(), {"type": "string", "pattern": f"^{_SHARE}$"}]}


class StopRuleTable(KeyTable):
    """One rule, with exactly one condition: a rule that means something else stops the wrong job, or none."""

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the rule; None when it is at fault."""
        before = len(findings.faults)
        values = super().read(node, path, findings)
        if values is None or len(findings.faults) > before:
            return None
        found = [name for name in CONDITIONS if name in values]
        if not found:
            problem = f"says not when; write one of {', '.join(f'{name}:' for name in CONDITIONS)}"
            findings.fault(node.location, path, problem, "such as {metric: loss, is: nan}")
        elif len(found) > 1:
            problem = f"has {' and '.join(f'{name}:' for name in found)}; a rule has one of them"
            findings.fault(node.location, path, problem, "write a rule for each")
        elif found[0] != "worse_than" and isinstance(values.get("after"), str):
            problem = "a share is for worse_than:, which compares with jobs that have come to their end"
            findings.fault(
                (child(node, "after") or node).location, f"{path}.after", problem, "write a number"
            )
        elif "of" in values and found[0] != "worse_than":
            problem = f"has no effect beside {found[0]}:; it is for worse_than:"
            findings.warn((child(node, "of") or node).location, f"{path}.of", problem)
        elif "goal" in values and found[0] not in ("no_better_for", "worse_than"):
            problem = f"has no effect beside {found[0]}:; it is for no_better_for: and worse_than:"
            findings.warn((child(node, "goal") or node).location, f"{path}.goal", problem)
        return None if len(findings.faults) > before else values


STOP_RULE: Final = StopRuleTable(
    Key(
        "metric",
        Text("the name of a metric"),
        "What is watched, named whole or by its last part; of several learners the first one's counts.",
        required=True,
        hint="such as {metric: loss, is: nan}",
        example="loss",
    ),
    Key(
        "is",
        NameChoice(("nan",)),
        "The rule holds when a value is not a number.",
        default="none",
        example="nan",
    ),
    Key("above", _NUMBER, "It holds when a value is above this.", default="none", example="10"),
    Key("below", _NUMBER, "It holds when a value is below this.", default="none", example="0.1"),
    Key(
        "no_better_for",
        _COUNT,
        "It holds when so many values in a row were no better than the best before them.",
        default="none",
        example="20",
    ),
    Key(
        "worse_than",
        NameChoice(("median",)),
        "It holds when the best value so far is worse than the median of those that three or more others had by then.",
        default="none",
        example="median",
    ),
    Key(
        "of",
        NameChoice(("sweep",)),
        "Whose median, for `worse_than`: of the jobs with the same label `sweep`, such as the trials of a search.",
        default="sweep",
        example="sweep",
    ),
    Key(
        "goal",
        NameChoice(GOALS),
        "What is better, for `no_better_for` and `worse_than`.",
        default="as the metric's name says (`accuracy` is maximized), else `minimize`",
        example="maximize",
    ),
    Key(
        "after",
        CountOrShare(),
        "So many values of an attempt are passed over first; for `worse_than` also a share of what a job of the sweep"
        " that has completed reported. Until there is one, the rule does not hold.",
        default="0",
        example="100",
    ),
    Key(
        "then",
        NameChoice(ACTIONS),
        "`halt` lets the command write a checkpoint, `kill` ends it at once, `tell` only writes into its history.",
        default="halt",
        example="tell",
    ),
    what="a rule of stop_when",
    instead="write such as {metric: loss, is: nan}",
    is_strict=True,
    elsewhere={
        "action": "write then:",
        "do": "write then:",
        "patience": "write no_better_for:",
        "min": "write below:",
        "max": "write above:",
        "mode": "write goal: minimize or goal: maximize",
        "monitor": "write metric:",
    },
)


class LogPolicyTable(KeyTable):
    """One policy, whose pattern has to be a regular expression."""

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the policy; None when it is at fault."""
        values = super().read(node, path, findings)
        if values and "pattern" in values:
            try:
                re.compile(values["pattern"])
            except (re.error, RecursionError, OverflowError) as error:
                where = (child(node, "pattern") or node).location
                findings.fault(where, f"{path}.pattern", f"is not a regular expression: {error}")
        return values


LOG_ACTIONS: Final = ("cancel_retries", "exclude_node")

LOG_POLICY: Final = LogPolicyTable(
    Key("name", Text(), "What its matches are called.", default="its pattern", example="out of memory"),
    Key(
        "pattern",
        MultilineText(),
        "A regular expression that is looked for in each line of the output of an attempt that has failed.",
        required=True,
        hint="such as {pattern: CUDA out of memory}",
        example="CUDA out of memory",
    ),
    Key(
        "action",
        NameChoice(LOG_ACTIONS),
        "`cancel_retries`: no further restart. `exclude_node`: none on that machine, so none where there is no other;"
        " in a cluster the history says how to keep off the node. Without an action it names the line alone.",
        default="none",
        example="cancel_retries",
    ),
    what="a log policy",
    instead="write such as {pattern: CUDA out of memory, action: cancel_retries}",
    is_strict=True,
)

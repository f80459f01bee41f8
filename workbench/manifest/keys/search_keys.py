"""The keys of ``search``: a search for hyper-parameters, and the distributions below ``search.params``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from workbench.distributions import DISTRIBUTIONS, distribution_name
from workbench.manifest.keys.containers import Key, KeyTable, ListOf, MapOf
from workbench.manifest.keys.kinds import NameChoice, Text
from workbench.manifest.keys.scalars import AnyScalar, Number, WholeNumber
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import ListNode, MapNode, Node, ScalarNode, child, describe_node

METHODS: Final = ("random", "grid", "asha", "adaptive_asha", "pbt", "optuna", "python")
GOALS: Final = ("minimize", "maximize")
MODES: Final = ("aggressive", "standard", "conservative")
VARIANTS: Final = ("stopping", "promotion")
SAMPLERS: Final = ("tpe", "random")
PRUNERS: Final = ("none", "median", "hyperband")
SEARCHER: Final = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*|[\w./-]+\.py:[A-Za-z_]\w*"
COUNT: Final = "count"
PARAM_NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*"
PARAM_NAME_OF_EXPERIMENT: Final = (
    r"[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]*"
)
"""Any but those with characters that would drive a terminal, or show a text in another order than it has."""
PARAM_NAME_OF_EXPERIMENT_EXPECTED: Final = "a name without control and direction characters"
TRIALS_MAX: Final = 100_000
TIME_MAX: Final = 1 << 53
POINTS_MAX: Final = TRIALS_MAX
RUNGS_MAX: Final = 64

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "random": ("max_trials",),
    "grid": (),
    "asha": ("max_trials", "metric", "time_metric", "max_time"),
    "adaptive_asha": ("max_trials", "metric", "time_metric", "max_time"),
    "pbt": ("population", "rounds", "round_time", "metric", "time_metric"),
    "optuna": ("max_trials", "metric"),
    "python": ("max_trials", "metric", "searcher"),
}
"""What a method cannot do without."""

_USED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "max_trials": ("random", "asha", "adaptive_asha", "optuna", "python"),
    "max_time": ("asha", "adaptive_asha"),
    "divisor": ("asha", "adaptive_asha"),
    "max_rungs": ("asha", "adaptive_asha"),
    "variant": ("asha", "adaptive_asha"),
    "rungs": ("asha",),
    "mode": ("adaptive_asha",),
    "brackets": ("adaptive_asha",),
    "population": ("pbt",),
    "rounds": ("pbt",),
    "round_time": ("pbt",),
    "truncate": ("pbt",),
    "resample": ("pbt",),
    "perturb": ("pbt",),
    "searcher": ("python",),
    "sampler": ("optuna",),
    "pruner": ("optuna",),
}

_SCALAR: Final = AnyScalar()


class Distributions(MapOf):
    """Hyper-parameters by name: a distribution, a value that stays, or a map of more of them.

    Those of an experiment of Determined may have any name, also that of a distribution: a map is one only where a list
    is below that name.
    """

    def __init__(self, *, takes_any_name: bool = False) -> None:
        super().__init__(
            self,
            "a map of names and what may be tried, such as {lr: {loguniform: [1e-5, 1e-1]}}",
            key_pattern=PARAM_NAME_OF_EXPERIMENT if takes_any_name else PARAM_NAME,
            key_expected=PARAM_NAME_OF_EXPERIMENT_EXPECTED
            if takes_any_name
            else "letters, digits, underscores and dashes",
        )
        self.takes_any_name = takes_any_name

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return plain values, distributions as maps with the name of one."""
        if not isinstance(node, MapNode):
            self.wrong(node, path, findings)
            return None
        values = {}
        for name, entry in node.entries.items():
            if not self._compiled.fullmatch(name):
                problem = f"the name {name!r} cannot be used; write {self._key_expected}"
                findings.fault(entry.location, path, problem)
                continue
            value = _tried(self, entry.node, f"{path}.{name}", findings)
            if value is not None:
                values[name] = value
        return values

    def schema(self) -> dict[str, Any]:
        """An object of scalars, distributions and more such objects."""
        bounds = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
        kinds: dict[str, Any] = dict.fromkeys(DISTRIBUTIONS[:-1], bounds)
        kinds["choice"] = {"type": "array", "minItems": 1}
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^(?:{PARAM_NAME})$"},
            "additionalProperties": {
                "anyOf": [
                    _SCALAR.schema(),
                    {
                        "type": "object",
                        "properties": {**kinds, COUNT: {"type": "integer", "minimum": 1}},
                    },
                ]
            },
        }


def _tried(kind: Distributions, node: Node, path: str, findings: Findings) -> Any:
    if isinstance(node, ScalarNode):
        return _SCALAR.read(node, path, findings)
    if isinstance(node, ListNode):
        hint = "write {choice: [...]} to try each of them"
        findings.fault(node.location, path, "a list is not something that can be tried", hint)
        return None
    named = [
        name
        for name, entry in node.entries.items()
        if name in DISTRIBUTIONS and (isinstance(entry.node, ListNode) or not kind.takes_any_name)
    ]
    if not named:
        if (meant := _meant(node)) is not None:
            name, close = meant
            findings.fault(
                node.entries[name].location,
                f"{path}.{name}",
                f"is not a distribution; there are {', '.join(DISTRIBUTIONS)}",
                f"did you mean {close}?" if close else "",
            )
            return None
        return kind.read(node, path, findings)
    return _distribution(node, named, path, findings)


def _meant(node: MapNode) -> tuple[str, str] | None:
    """Return a key of a map that must be meant as a distribution, and the nearest one; None for nested parameters."""
    for name, entry in node.entries.items():
        if isinstance(entry.node, ListNode):
            return name, nearest(name, DISTRIBUTIONS)
    return None


def _distribution(node: MapNode, named: list[str], path: str, findings: Findings) -> dict[str, Any] | None:
    kind = named[0]
    for name, entry in node.entries.items():
        if name not in (kind, COUNT) or (name == COUNT and kind == "choice"):
            close = nearest(name, (COUNT,)) if kind != "choice" else ""
            hint = f"did you mean {close}?" if close else ""
            findings.fault(entry.location, f"{path}.{name}", f"does not belong to {kind}", hint)
            return None
    found = node.entries[kind].node
    where = f"{path}.{kind}"
    if kind == "choice":
        if not isinstance(found, ListNode) or not found.nodes:
            problem = f"found {describe_node(found)}; write a list of values, such as [adam, sgd]"
            findings.fault(found.location, where, problem)
            return None
        return {kind: [_plain(item) for item in found.nodes]}
    bounds = _bounds(kind, found, where, findings)
    count = node.entries.get(COUNT)
    points = WholeNumber(1, POINTS_MAX).read(count.node, f"{path}.{COUNT}", findings) if count else None
    if bounds is None or (count is not None and points is None):
        return None
    return {kind: bounds} if points is None else {kind: bounds, COUNT: points}


def _bounds(kind: str, node: Node, path: str, findings: Findings) -> list[int | float] | None:
    example = {"int": "[1, 8]", "uniform": "[0.0, 0.5]", "loguniform": "[1e-5, 1e-1]"}[kind]
    values = (
        [item.value for item in node.nodes if isinstance(item, ScalarNode)]
        if isinstance(node, ListNode)
        else []
    )
    numbers = [each for each in values if isinstance(each, (int, float)) and not isinstance(each, bool)]
    if not isinstance(node, ListNode) or len(node.nodes) != 2 or len(numbers) != 2:
        problem = f"found {describe_node(node)}; write the lowest and the highest value, such as {example}"
        if isinstance(node, ListNode) and len(node.nodes) == 2:
            problem = f"its bounds are not numbers; write {example}"
        findings.fault(node.location, path, problem)
        return None
    low, high = numbers
    if not (math.isfinite(low) and math.isfinite(high)):
        findings.fault(node.location, path, f"its bounds are not finite; write {example}")
    elif kind == "int" and not (low == int(low) and high == int(high) and abs(low) < 1 << 62 > abs(high)):
        findings.fault(node.location, path, f"its bounds are not whole numbers; write {example}")
    elif kind == "loguniform" and low <= 0:
        problem = f"the bound {low:g} has no logarithm; bounds are values above 0, such as {example}"
        hint = f"1e{low:g} is meant, perhaps: bounds are not exponents" if low == int(low) and low < 0 else ""
        findings.fault(node.location, path, problem, hint)
    elif high < low or (high == low and kind != "int"):
        findings.fault(node.location, path, f"the lowest value, {low:g}, is not below the highest, {high:g}")
    else:
        return [int(low), int(high)] if kind == "int" else [low, high]
    return None


def _plain(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.nodes]
    return {name: _plain(entry.node) for name, entry in node.entries.items()}


def searched_names(root: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the parameters of a search as ``${params.NAME}`` has them, nested ones with dots."""
    for name, value in root.items():
        if isinstance(value, Mapping) and not distribution_name(value):
            yield from (f"{name}.{below}" for below in searched_names(value))
        else:
            yield name


class SearchTable(KeyTable):
    """The keys of ``search``, checked against one another: a search that means something else costs a night."""

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the values; None when the search cannot be made."""
        before = len(findings.faults)
        values = super().read(node, path, findings)
        if values is None or len(findings.faults) > before:
            return None
        method = values["method"]
        for name in _NEEDED[method]:
            if not values.get(name):
                problem = f"is missing; {method} needs it"
                findings.fault(node.location, f"{path}.{name}", problem, _hint(name))
        for name, users in _USED_BY.items():
            if name in values and method not in users:
                problem = f"has no effect with method {method}; it is for {' and '.join(users)}"
                found = child(node, name)
                findings.warn((found or node).location, f"{path}.{name}", problem)
        if method == "grid":
            _check_grid(values["params"], f"{path}.params", node, findings)
        return None if len(findings.faults) > before else values


def _hint(name: str) -> str:
    return {
        "metric": "write metric: val_loss, a name that training code reports",
        "time_metric": "write time_metric: epoch, a name that each validation reports",
        "max_time": "write max_time: 100, in units of time_metric",
        "searcher": "write searcher: search.py:Searcher, a file of the code and a class in it",
    }.get(name, "")


def _check_grid(params: Mapping[str, Any], path: str, node: Node, findings: Findings) -> None:
    total = 1
    for name, value in _distributions(params):
        kind = distribution_name(value)
        if kind == "choice":
            total *= len(value[kind])
        elif COUNT not in value:
            problem = f"has endlessly many values, and a grid tries them all; add count: to its {kind}"
            findings.fault(
                node.location, f"{path}.{name}", problem, f"such as {{{kind}: {value[kind]}, count: 3}}"
            )
            return
        else:
            low, high = value[kind]
            total *= min(value[COUNT], high - low + 1) if kind == "int" else value[COUNT]
    if total > POINTS_MAX:
        problem = f"its grid has {total:,} points; at most {POINTS_MAX:,} are tried"
        findings.fault(
            node.location, path, problem, "lower a count:, or take method: random with max_trials:"
        )


def _distributions(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in params.items():
        if isinstance(value, Mapping):
            if distribution_name(value):
                yield f"{prefix}{name}", value
            else:
                yield from _distributions(value, f"{prefix}{name}.")


SEARCH: Final = SearchTable(
    Key(
        "method",
        NameChoice(METHODS),
        "How trials are chosen and stopped: drawn again (`random`), every combination (`grid`), successive halving that"
        " stops bad ones (`asha`), several brackets of it (`adaptive_asha`), population based training (`pbt`),"
        " Optuna's samplers and pruners (`optuna`), a class of yours (`python`).",
        required=True,
        example="adaptive_asha",
    ),
    Key(
        "params",
        Distributions(),
        "What may be tried: `{loguniform: [1e-5, 1e-1]}` (the bounds are values), `{uniform: [a, b]}`, `{int: [a, b]}`"
        " (both ends included), `{choice: [...]}`, with `count:` for a grid; a bare value stays, any other map holds"
        " more parameters. Only here is a map a distribution.",
        required=True,
        example="{lr: {loguniform: [1e-5, 1e-1]}}",
    ),
    Key(
        "metric",
        Text("the name of a metric"),
        "What training code reports that says how good a trial is.",
        default="none: `random` and `grid` need none",
        example="val_loss",
    ),
    Key(
        "goal",
        NameChoice(GOALS),
        "What is better of the metric.",
        default="as the metric's name says (`accuracy` is maximized), else `minimize`",
        example="maximize",
    ),
    Key(
        "max_trials", WholeNumber(1, TRIALS_MAX), "How many trials there are.", default="none", example="100"
    ),
    Key(
        "max_concurrent",
        WholeNumber(0, TRIALS_MAX),
        "How many run at once, at most; 0 leaves that to the method.",
        default="16",
        example="4",
    ),
    Key(
        "backends",
        ListOf(Text("the name of a backend"), "a list of names of backends", one_is_enough=True),
        "On which backends the trials run. Each begins where fewest of the search wait for a slot; `--backend` comes"
        " before it. `process@local` takes this runner there.",
        default="the job's `backend`",
        example="[local, gpubox, cluster]",
    ),
    Key(
        "time_metric",
        Text("the name of a metric"),
        "What each validation reports of how long the trial has been trained: epochs, batches; `step` is its step.",
        default="none",
        example="epoch",
    ),
    Key(
        "max_time",
        WholeNumber(1, TIME_MAX),
        "How long the best trials are trained, in units of `time_metric`.",
        default="none",
        example="81",
    ),
    Key(
        "divisor",
        Number(1.000001, 1_000_000),
        "Of so many trials at a rung one goes on.",
        default="4",
        example="3",
    ),
    Key(
        "max_rungs", WholeNumber(1, RUNGS_MAX), "How many rungs there are at most.", default="5", example="4"
    ),
    Key(
        "rungs",
        WholeNumber(1, RUNGS_MAX),
        "`asha`: how many rungs there are.",
        default="as many as `max_rungs`, `max_time` and `max_trials` allow",
        example="3",
    ),
    Key(
        "mode",
        NameChoice(MODES),
        "`adaptive_asha`: how early it stops trials.",
        default="standard",
        example="aggressive",
    ),
    Key(
        "brackets",
        ListOf(WholeNumber(1, RUNGS_MAX), "a list of numbers of rungs", one_is_enough=True),
        "`adaptive_asha`: how many rungs each bracket has.",
        default="those of `mode`",
        example="[3, 2]",
    ),
    Key(
        "variant",
        NameChoice(VARIANTS),
        "`stopping` trains on and stops bad trials, `promotion` pauses all at each rung and trains the best on.",
        default="stopping",
        example="promotion",
    ),
    Key(
        "population",
        WholeNumber(1, TRIALS_MAX),
        "`pbt`: how many trials live at once.",
        default="none",
        example="8",
    ),
    Key(
        "rounds", WholeNumber(1, 1_000_000), "`pbt`: how many rounds there are.", default="none", example="10"
    ),
    Key(
        "round_time",
        WholeNumber(1, TIME_MAX),
        "`pbt`: how long a round is, in units of `time_metric`.",
        default="none",
        example="5",
    ),
    Key(
        "truncate",
        Number(0, 0.5),
        "`pbt`: which share of the population is replaced after each round.",
        default="0.2",
        example="0.25",
    ),
    Key(
        "resample",
        Number(0, 1),
        "`pbt`: how likely a parameter of a copy is drawn again.",
        default="0.2",
        example="0.1",
    ),
    Key(
        "perturb",
        Number(0, 1),
        "`pbt`: by which share the others are made smaller or larger.",
        default="0.2",
        example="0.2",
    ),
    Key(
        "searcher",
        Text("MODULE:CLASS or FILE.py:CLASS", pattern=SEARCHER),
        "`python`: the class that chooses what is tried, in the job's code.",
        default="none",
        example="search.py:Searcher",
    ),
    Key(
        "sampler",
        NameChoice(SAMPLERS),
        "`optuna`: how it draws: by a tree of Parzen estimators (`tpe`), or each trial independently.",
        default="tpe",
        example="random",
    ),
    Key(
        "pruner",
        NameChoice(PRUNERS),
        "`optuna`: which trials it stops early: none, those worse than the `median` of others, those of `hyperband`.",
        default="none",
        example="median",
    ),
    what="search",
    instead="write search: with method: and params: below it",
    is_strict=True,
    elsewhere={
        "name": "write method:",
        "smaller_is_better": "write goal: minimize or goal: maximize",
        "max_concurrent_trials": "write max_concurrent:",
        "num_rungs": "write rungs:",
        "max_length": "write max_time: and time_metric:",
        "hyperparameters": "write params:",
        "parameters": "write params:",
        "bracket_rungs": "write brackets:",
        "seed": "write seed: beside search:",
    },
)

"""Names of series in files: which count steps, which are the same series in two files, and which file gives it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Set

from workbench.learner.texts import expression, short_hash

STEP_COLUMNS = {
    "step": "step",
    "steps": "step",
    "_step": "step",
    "global_step": "global_step",
    "globalstep": "global_step",
    "trainer/global_step": "global_step",
    "train/global_step": "global_step",
    "train/epoch": "epoch",
    "iter": "iteration",
    "iters": "iteration",
    "iteration": "iteration",
    "iterations": "iteration",
    "training_iteration": "iteration",
    "it": "iteration",
    "update": "step",
    "updates": "step",
    "n_updates": "step",
    "timesteps": "step",
    "total_timesteps": "step",
    "num_timesteps": "step",
    "time/total_timesteps": "step",
    "round": "iteration",
    "tick": "tick",
    "epoch": "epoch",
    "epochs": "epoch",
}
"""Columns that count steps, in small letters, and what they are called among the evaluation times."""

TIME_COLUMNS = ("timestamp", "_timestamp", "time", "wall_time", "walltime", "datetime", "date", "created_at")
"""Columns that say when, in small letters."""

_NO_SERIES = frozenset(
    (*TIME_COLUMNS, "_runtime", "total_flos", "hp_metric", "elapsed", "elapsed_time", "total_time", "id", "run_id",
     "index", "pid", "seed", "rank")
)  # fmt: skip

_TRAIN = frozenset(("train", "training", "tr"))
_PHASES = {
    "val": "val", "valid": "val", "validation": "val", "eval": "val", "evaluation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_SEPARATORS = expression(r"[^a-z0-9@]+")
_HASH_CHARACTERS = 6
_OWNERS_LIMIT = 400
_PRINTED = "printed"


def is_series(name: str) -> bool:
    """Whether numbers of this name are a series: no count of steps, no time, no id."""
    small = name.strip().lower()
    return (
        bool(small)
        and small not in STEP_COLUMNS
        and small not in _NO_SERIES
        and not small.endswith("_runtime")
    )


def phase_of(name: str) -> str:
    """Return ``train``, ``val`` or ``test`` where a name says it; else nothing."""
    for word in _words(name):
        if word in _TRAIN:
            return "train"
        if word in _PHASES:
            return _PHASES[word]
    return ""


def canonical_name(name: str) -> str:
    """Return what is alike for one series however libraries call it: ``train/loss``, ``train_loss``, ``loss``."""
    phase, rest = "", []
    for word in _words(name):
        if word in _PHASES and not phase:
            phase = _PHASES[word]
        elif word not in _TRAIN and word != "epoch":
            rest.append(word)
    return "%s:%s" % (phase, " ".join(rest))


def _words(name: str) -> List[str]:
    return [word for word in _SEPARATORS.split(name.lower()) if word]


class Owners:
    """Which run of which kind of file gives each series: the first that has it, kinds in order at one instant."""

    def __init__(self, document: Any = None) -> None:
        self.document: Dict[str, str] = {}
        """Digests of names by run, for a cursor."""
        self._owners: Dict[str, str] = {}
        self._printed: Set[str] = set()
        for run, digests in (document or {}).items() if isinstance(document, dict) else ():
            for at in range(0, len(digests), _HASH_CHARACTERS):
                digest = digests[at : at + _HASH_CHARACTERS]
                if run == _PRINTED:
                    self._printed.add(digest)
                    self.document[run] = self.document.get(run, "") + digest
                else:
                    self._enter(digest, run)

    def claim(self, name: str, run: str, whose: int = 0) -> str:
        """Return the run that gives a series of a learner's: the first one that asked.

        Where more are claimed than a cursor holds it is the first run of its kind, so that no two give one series.
        """
        digest = _claimed(name, whose)
        if digest not in self._owners:
            if len(self._owners) >= _OWNERS_LIMIT:
                kind = run.partition(".")[0] + "."
                return next((known for known in self.document if known.startswith(kind)), run)
            self._enter(digest, run)
        return self._owners[digest]

    def claim_printed(self, name: str) -> None:
        """Note that lines give a series of this name: no file adds to it."""
        digest = _digest(name)
        if digest not in self._printed and len(self._printed) < _OWNERS_LIMIT:
            self._printed.add(digest)
            self.document[_PRINTED] = self.document.get(_PRINTED, "") + digest

    def is_printed(self, name: str) -> bool:
        """Say whether lines give a series of exactly this name."""
        return _digest(name) in self._printed

    def owner(self, name: str, whose: int = 0) -> str:
        """Return the run that gives a series of a learner's; empty where none does."""
        return self._owners.get(_claimed(name, whose), "")

    def _enter(self, digest: str, run: str) -> None:
        self._owners[digest] = run
        self.document[run] = self.document.get(run, "") + digest


def _claimed(name: str, whose: int) -> str:
    return _digest("%s\0%d" % (canonical_name(name), whose) if whose else canonical_name(name))


def _digest(text: str) -> str:
    return short_hash(text.encode("utf-8", "replace"), _HASH_CHARACTERS // 2)


def joined(group: str, name: str) -> str:
    """Return the name that people see."""
    return "%s/%s" % (group, name) if group else name


def numbers_in(values: Mapping[str, Any], prefix: str = "", depth: int = 3) -> Dict[str, Any]:
    """Return the numbers of a JSON object by name; those of objects within it are named ``outer/inner``."""
    found: Dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and depth > 1:
            found.update(numbers_in(value, "%s%s/" % (prefix, name), depth - 1))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[prefix + str(name)] = value
        elif value in ("NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"):
            found[prefix + str(name)] = float(value)
    return found

"""The process that chooses what a search tries: Optuna, or a class of the user's own. It is run as a script.

It talks to the controller in lines of JSON. The same lines in the same order give the same answers, so all that it
knows can be made again by a new process. What the user's code prints goes to stderr. It imports the standard library
alone and runs on Python 3.8, as the interpreter may be that of the user's environment; Optuna is imported where a
search uses it. It ends when its input does, also while the user's code runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import queue
import random
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DISTRIBUTIONS = ("loguniform", "uniform", "int", "choice")
SEED_LIMIT = 2**32


class Trial:
    """One trial as a searcher sees it."""

    def __init__(self, number: int, hparams: dict[str, Any]) -> None:
        self.number = number
        self.hparams = hparams
        self.value: float | None = None
        """The last value of the metric that it has reported; None before, and where that was no number."""
        self.units: float | None = None
        """The time metric of that report; None without one."""
        self.values: list[tuple[float | None, float | None]] = []
        """All of its reports: units and value."""
        self.state = "running"
        """Also completed, stopped (by the searcher), failed, invalid, cancelled (by a person)."""


class OwnSearcher:
    """A class of the user's own."""

    def __init__(self, search: dict[str, Any], code: str) -> None:
        self._params = search["params"]
        cls = _load(search["searcher"], code)
        names = ("params", "seed", "metric", "goal", "max_trials", "max_concurrent")
        self._one = cls(SimpleNamespace(**{name: search[name] for name in names}))
        if not callable(getattr(self._one, "ask", None)):
            raise TypeError(f"{search['searcher']} has no method ask()")

    def ask(self, number: int, known: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the next sample; None where there are no more."""
        found = self._one.ask()
        return None if found is None else checked(found, self._params)

    def report(self, trial: Trial) -> bool:
        """Return whether the trial is to stop."""
        report = getattr(self._one, "report", None)
        return bool(report(trial)) if report is not None else False

    def tell(self, trial: Trial) -> None:
        """Take that a trial has ended."""
        tell = getattr(self._one, "tell", None)
        if tell is not None:
            tell(trial)


class OptunaSearcher:
    """A study of Optuna in memory."""

    def __init__(self, search: dict[str, Any]) -> None:
        import warnings

        import optuna

        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._params = search["params"]
        seed = search["seed"] % SEED_LIMIT
        if search["sampler"] == "random":
            sampler: Any = optuna.samplers.RandomSampler(seed=seed)
        else:
            # Those that run count as bad, so several at once are not drawn near each other.
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=search["max_concurrent"] != 1)
        pruners: dict[str, Any] = {
            "median": optuna.pruners.MedianPruner,
            "hyperband": optuna.pruners.HyperbandPruner,
        }
        make = pruners.get(search["pruner"], optuna.pruners.NopPruner)
        # Hyperband goes by the name of the study as well as by the number of the trial.
        self._study = optuna.create_study(
            study_name="fabric", direction=search["goal"], sampler=sampler, pruner=make()
        )
        self._trials: dict[int, Any] = {}

    def ask(self, number: int, known: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the next sample. One that is known and now drawn otherwise, by another Optuna, is put in its stead."""
        drawn = self._study.ask()
        found = self._sample(drawn)
        if known is not None and known != found:
            self._study.tell(drawn, state=self._optuna.trial.TrialState.FAIL)
            self._study.enqueue_trial(_flat_values(known, self._params))
            drawn = self._study.ask()
            found = self._sample(drawn)
        self._trials[number] = drawn
        return found

    def _sample(self, drawn: Any) -> dict[str, Any]:
        return {name: self._draw(drawn, part, name) for name, part in sorted(self._params.items())}

    def _draw(self, drawn: Any, part: Any, path: str) -> Any:
        kind = kind_of(part)
        if kind == "":
            return {name: self._draw(drawn, each, path + "." + name) for name, each in sorted(part.items())}
        if kind is None:
            return part
        if kind == "choice":
            # By position: its own categories are scalars.
            return part[kind][drawn.suggest_categorical(path, list(range(len(part[kind]))))]
        low, high = part[kind]
        if kind == "int":
            return drawn.suggest_int(path, low, high)
        return drawn.suggest_float(path, low, high, log=kind == "loguniform")

    def report(self, trial: Trial) -> bool:
        """Return whether the trial is to be pruned."""
        one = self._trials[trial.number]
        step = len(trial.values) if trial.units is None else int(trial.units)
        one.report(math.nan if trial.value is None else trial.value, max(step, 0))
        return bool(one.should_prune())

    def tell(self, trial: Trial) -> None:
        """Take that a trial has ended; one without a value has failed for the study."""
        states = self._optuna.trial.TrialState
        one = self._trials[trial.number]
        if trial.state == "stopped":
            self._study.tell(one, state=states.PRUNED)
        elif trial.state == "completed" and trial.value is not None and not math.isnan(trial.value):
            self._study.tell(one, trial.value)
        else:
            self._study.tell(one, state=states.FAIL)


def kind_of(part: Any) -> str | None:
    """Return the name of a distribution; empty for more parameters, None for a value that stays.

    The rule is that of ``workbench.distributions``, which this process cannot import.
    """
    if not isinstance(part, dict):
        return None
    return next((name for name in DISTRIBUTIONS if isinstance(part.get(name), list)), "")


def _flat_values(sample: dict[str, Any], params: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a sample as Optuna knows them: by dotted names, a choice by its position."""
    found: dict[str, Any] = {}
    for name, part in params.items():
        kind = kind_of(part)
        if kind == "":
            found.update(_flat_values(sample[name], part, prefix + name + "."))
        elif kind is not None:
            value = sample[name]
            found[prefix + name] = part[kind].index(value) if kind == "choice" else value
    return found


def checked(sample: Any, params: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a sample in plain JSON, with the values that stay.

    Raises:
        ValueError: it lacks a parameter, has one too many, or a value that may not be tried.
    """
    what = "ask() returned "
    if not isinstance(sample, dict):
        raise ValueError(what + f"{sample!r} where a dict is needed")
    for name in sample:
        if name not in params:
            raise ValueError(what + f"{prefix}{name}, which is not below search.params")
    found = {}
    for name, part in params.items():
        kind, path = kind_of(part), prefix + name
        if kind == "":
            found[name] = checked(sample.get(name, {}), part, path + ".")
        elif name not in sample:
            if kind is not None:
                raise ValueError(what + f"no value for {path}")
            found[name] = part
        else:
            found[name] = _fitting(sample[name], part, kind, what, path)
    return found


def _fitting(given: Any, part: Any, kind: str | None, what: str, path: str) -> Any:
    value = given.item() if hasattr(given, "item") else given  # a number of numpy
    if kind is None:
        fits = value == part
    elif kind == "choice":
        fits = value in part[kind]
    else:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = is_number and part[kind][0] <= value <= part[kind][1]
        if fits and kind == "int":
            fits, value = value == int(value), int(value)
    if not fits:
        raise ValueError(what + f"{path}={given!r}, which may not be tried: {json.dumps(part)}")
    return value


def _load(name: str, code: str) -> Any:
    module_name, _, class_name = name.rpartition(":")
    if module_name.endswith(".py"):
        file = Path(code, module_name)
        if not file.is_file():
            raise ImportError(f"there is no file {module_name} in the job's code")
        own = file.stem
        spec = importlib.util.spec_from_file_location(own, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[own] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(module_name)
    if not hasattr(module, class_name):
        raise ImportError(f"there is no class {class_name} in {module_name}")
    return getattr(module, class_name)


def problem(error: BaseException, code: str) -> str:
    """Return the last line of an exception, and the file and line of the user's code that it comes from."""
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    lines = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno))
    for file, line in reversed(lines):
        if code and os.path.realpath(file).startswith(code + os.sep):
            return f"{text} ({os.path.relpath(os.path.realpath(file), code)}:{line})"
    return text


def _serve(messages: Any, answer: Any) -> None:
    begin = messages.get()
    code = os.path.realpath(begin["code"]) if begin["code"] else ""
    if code:
        sys.path[0] = code  # instead of the folder of this file
        os.chdir(code)
    else:
        del sys.path[0]
    try:
        random.seed(begin["search"]["seed"])
        search = begin["search"]
        searcher: Any = OptunaSearcher(search) if search["method"] == "optuna" else OwnSearcher(search, code)
        trials: dict[int, Trial] = {}
        is_exhausted = False
        while True:
            message = messages.get()
            number = message["trial"]
            if message["do"] == "ask":
                known = message.get("known")
                sample = None if is_exhausted else searcher.ask(number, known)
                # What was tried is true, also where a searcher now answers otherwise.
                sample = known if known is not None else sample
                if sample is None:
                    is_exhausted = True
                else:
                    trials[number] = Trial(number, sample)
                answer({"trial": number, "hparams": sample})
            elif message["do"] == "report":
                trial = trials[number]
                trial.value, trial.units = message["value"], message["units"]
                trial.values.append((trial.units, trial.value))
                if searcher.report(trial):
                    answer({"stop": number})
            else:
                trials[number].state = message["how"]
                searcher.tell(trials.pop(number))
    except BaseException as error:
        traceback.print_exc()
        answer({"error": problem(error, code)})


def _read(stream: Any, messages: Any) -> None:
    for line in stream:
        messages.put(json.loads(line))
    os._exit(0)  # the controller is gone; the user's code may be at work


def main() -> None:
    """Serve the controller at stdin and stdout."""
    given, taken = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def answer(document: dict[str, Any]) -> None:
        data = json.dumps(document, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(taken, data) :]

    messages: Any = queue.Queue()
    threading.Thread(target=_read, args=(given, messages), daemon=True).start()
    _serve(messages, answer)
    sys.stdout.flush()
    os._exit(1)


if __name__ == "__main__":
    main()

"""Whom a host's policy is about, a person, a home, a sweep or all jobs with a label, and what they hold. Pure."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from workbench.learner.queue.entries import label_mark
from workbench.learner.queue.policy import Policy, PolicyLimits

Group = Tuple[str, str, str]
"""What counts together: its kind, then the person's number or the label's mark, then the home or the sweep's mark."""


class Held(NamedTuple):
    """What a group holds already, and has used."""

    gpus: int = 0
    jobs: int = 0
    gpu_hours: float = 0.0
    """Within the last 24 hours."""


NOTHING_HELD: Mapping[Group, Held] = {}


class GroupLimits(NamedTuple):
    """The limits of one group, and how reasons name it."""

    group: Group
    limits: PolicyLimits
    name: str

    def reason(self, gpus: int, have: Held) -> str:
        """Say which limit keeps a job waiting that needs so many GPUs; empty where none does."""
        limits = self.limits
        if limits.max_gpus and have.gpus + gpus > limits.max_gpus:
            return f"the host gives {self.name} {limits.max_gpus} GPU{'' if limits.max_gpus == 1 else 's'} at once"
        if limits.max_jobs and have.jobs >= limits.max_jobs:
            return f"the host gives {self.name} {limits.max_jobs} job{'' if limits.max_jobs == 1 else 's'} at once"
        if limits.max_gpu_hours and have.gpu_hours >= limits.max_gpu_hours:
            return f"the host gives {self.name} {limits.max_gpu_hours:g} GPU-hours within 24 hours, which are used"
        return ""


def person_group(person: int) -> Group:
    """Return the group of all that a person has."""
    return ("person", str(person), "")


def home_group(person: int, home: str) -> Group:
    """Return the group of what a person has from one home: nobody can speak for the home of another person."""
    return ("home", str(person), home)


def label_group(mark: str) -> Group:
    """Return the group of all jobs with a label, of whomever."""
    return ("label", mark, "")


def sweep_group(person: int, mark: str) -> Group:
    """Return the group of a sweep or search of a person, from whichever home: no limit is for it, weights are."""
    return ("sweep", str(person), mark)


def groups_of(person: int, home: str, marks: Iterable[str]) -> List[Group]:
    """Return the groups that a job counts for."""
    return [person_group(person), home_group(person, home), *(label_group(mark) for mark in marks)]


class GroupFinder:
    """Says which limits a job is under, by one policy; the names of people are looked up once."""

    def __init__(self, policy: Policy, names: Mapping[int, str]) -> None:
        self._policy = policy
        self._names = names
        self._labels: Dict[str, str] = {label_mark(label): label for label in policy.labels}

    def limits_of(self, person: int, home: str, marks: Sequence[str]) -> List[GroupLimits]:
        """Return the groups with a limit that a job belongs to."""
        policy = self._policy
        own = policy.limits(self._names.get(person, str(person)))
        found = [GroupLimits(person_group(person), own, "a person")] if own.has_limit else []
        if policy.home.has_limit:
            found.append(GroupLimits(home_group(person, home), policy.home, "a home of fabric"))
        for mark in marks:
            label = self._labels.get(mark)
            if label is not None and policy.labels[label].has_limit:
                name = f"jobs with the label {label}"
                found.append(GroupLimits(label_group(mark), policy.labels[label], name))
        return found

"""Several hosts that run the learners of one attempt together: who has which learners, and how all are asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import TypeVar

from backends.contract.absent_host import AbsentHost, at_member
from backends.contract.host import BackendOptions, Cluster, Host, HostGroup
from workbench.errors import BackendError, BackendUnreachable, FabricError, UsageError
from workbench.formats import count

Answer = TypeVar("Answer")


def learners_by_host(learners: int, hosts: int) -> list[range]:
    """Return which learners each host has, in the order of the hosts: blocks, the first ones perhaps one longer.

    Fixed by the two numbers, so that nobody has to store it. With fewer learners than hosts the last ranges are empty.
    """
    each, longer = divmod(learners, hosts)
    ends = [each * (number + 1) + min(number + 1, longer) for number in range(hosts)]
    return [range(begin + 1, end + 1) for begin, end in zip([0, *ends], ends, strict=False)]


def too_few_learners(group: str, learners: int, hosts: int) -> UsageError:
    """Return the error of a job that has fewer learners than a group has hosts."""
    return UsageError(
        f"{group} is {hosts} hosts, and the job has {count(learners, 'learner')}",
        hint=f"--set learners={hosts} has one at each",
    )


def member_options(options: BackendOptions) -> list[BackendOptions]:
    """Return the hosts of a group, each with what it is opened with; another backend is the only one of itself."""
    members = options.options.get("members")
    if options.type != "multinode" or not isinstance(members, Sequence) or isinstance(members, str):
        return [options]
    return [
        BackendOptions(one["name"], one["type"], one.get("address", ""), one.get("options") or {})
        for one in members
    ]


def asked_together(
    questions: Mapping[str, Callable[[], Answer]],
    *,
    patience_seconds: float | None = None,
    deadline_seconds: float | None = None,
    late: Callable[[Answer], None] | None = None,
) -> dict[str, Answer | FabricError]:
    """Ask hosts at the same time; return what each answers or raises, by its name, which the error has.

    Args:
        questions: by the names of the hosts.
        patience_seconds: how long the last ones are waited for once another has answered; None: as long as it takes.
        deadline_seconds: how long they are waited for, should none answer.
        late: takes an answer that nobody waited for, in a thread of its own.
    """
    found: dict[str, Answer | FabricError] = {}
    changed = threading.Condition()
    is_over = False

    def ask(name: str) -> None:
        answer: Answer | FabricError
        try:
            answer = questions[name]()
        except FabricError as error:
            answer = at_member(error, name)
        except Exception as error:  # somebody else's backend may raise anything, and the others are asked
            answer = BackendError(f"{name}: {type(error).__name__}: {error}")
        with changed:
            is_late = is_over
            if not is_late:
                found[name] = answer
                changed.notify_all()
        if is_late and late is not None and not isinstance(answer, FabricError):
            late(answer)

    try:
        for name in questions:
            # Each with the profile that was chosen.
            context = copy_context()
            threading.Thread(target=context.run, args=(ask, name), name=f"ask {name}", daemon=True).start()
        with changed:
            if changed.wait_for(lambda: len(found) == len(questions) or _has_answer(found), deadline_seconds):
                changed.wait_for(lambda: len(found) == len(questions), patience_seconds)
            is_over = True
    except BaseException:  # no thread can start, say: what is open is nobody's then
        with changed:
            is_over = True
        for answer in found.values():
            if late is not None and not isinstance(answer, FabricError):
                late(answer)
        raise
    return {
        name: found[name] if name in found else BackendUnreachable(f"{name} has not answered yet")
        for name in questions
    }


def _has_answer(found: Mapping[str, object]) -> bool:
    return any(not isinstance(one, FabricError) for one in found.values())


def opened_group(found: Mapping[str, Host | Cluster | HostGroup | FabricError]) -> HostGroup:
    """Return the group of the hosts that were opened, with what stands for those that were not.

    Raises:
        FabricError: none of them was.
    """
    failures = [one for one in found.values() if isinstance(one, FabricError)]
    if len(failures) == len(found):
        raise failures[0]
    hosts: dict[str, Host] = {}
    for name, one in found.items():
        if isinstance(one, FabricError):
            hosts[name] = AbsentHost(one)
        else:
            assert isinstance(one, Host)
            hosts[name] = one
    return HostGroup(hosts)

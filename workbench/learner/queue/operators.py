"""What the operators of a host order: files of theirs in the folder of leases, beside those of everybody else.

Root names operators in the host's policy: accounts, and groups of accounts. Anybody can make a file of any name in that
folder, so nothing is believed but what the kernel says of it: its owner has to be an operator, now, and nobody else can
have written it. What it orders its text says, too: a link to another file of that person's is no order.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from workbench.learner.platform import owned_files
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.system import user_name
from workbench.learner.queue.entries import attempt_name
from workbench.learner.queue.policy import BadPolicy, read_policy, roots_drain_us
from workbench.learner.queue.root_files import DRAIN_FILE, POLICY_FILE

DRAIN = "drain"
"""The order that empties a host."""

END = "end"
"""The order that ends one attempt of one person."""

_END_STALE_SECONDS = 86400.0
"""An order that ends an attempt is removed by its owner after this: the attempt is long over."""

_FORMAT = 1
_TRIES = 3
"""A name may be taken by somebody else."""

_ORDERS_OF_A_PERSON = 100
"""More of one person are not looked at."""


class OperatorOrder(NamedTuple):
    """What an operator wants of a host."""

    person: int
    """The owner of its file."""
    since_us: int
    """When that was written."""
    document: Mapping[str, Any]
    """What it says beside that."""


class DrainOrder(NamedTuple):
    """Who wants a host to be empty."""

    by: str
    """An operator, or root's file."""
    since_us: int


def drain_of(folder: str, operators: Sequence[str]) -> Optional[DrainOrder]:
    """Return who wants the host to be empty, root first, and since when; None where nobody does who may.

    Args:
        folder: where leases lie.
        operators: those that the host's policy names.
    """
    since_us = roots_drain_us()
    if since_us is not None:
        return DrainOrder(DRAIN_FILE, since_us)
    orders = read_orders(folder, DRAIN, operators)
    if not orders:
        return None
    first = min(orders, key=lambda order: order.since_us)
    return DrainOrder(user_name(first.person), first.since_us)


def read_orders(
    folder: str,
    kind: str,
    operators: Sequence[str],
    wanted: Optional[Callable[[OperatorOrder], bool]] = None,
) -> List[OperatorOrder]:
    """Return the orders of one kind that count, and are ``wanted``; what anybody else has made does not."""
    if not operators:
        return []
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        found: List[OperatorOrder] = []
        known: Dict[int, bool] = {}
        counts: Dict[int, int] = {}
        for name in _files(descriptor, kind):
            order = _read_order(descriptor, name, kind)
            # Accounts may be asked for over a network: of what is an order, and so often, alone.
            if order is None or not (wanted is None or wanted(order)):
                continue
            person = order.person
            counts[person] = counts.get(person, 0) + 1
            if person not in known:
                known[person] = is_operator(person, operators)
            if known[person] and counts[person] <= _ORDERS_OF_A_PERSON:
                found.append(order)
        return found
    finally:
        os.close(descriptor)


def is_operator(person: int, operators: Sequence[str]) -> bool:
    """Say whether a user is one of these operators: by account, or as a member of a group (``@name``)."""
    try:
        account = pwd.getpwuid(person)
    except KeyError:
        return False
    if any(name[:1] != "@" and _account(name) == person for name in operators):
        return True
    groups = {_group(name[1:]) for name in operators if name[:1] == "@"}
    return bool(groups) and not groups.isdisjoint(os.getgrouplist(account.pw_name, account.pw_gid))


def unknown_operators(operators: Sequence[str]) -> List[str]:
    """Return those that the host does not know: nobody is an operator by them."""
    found = ((name, _group(name[1:]) if name[:1] == "@" else _account(name)) for name in operators)
    return [name for name, number in found if number is None]


def who_ends(folder: str, operators: Sequence[str], attempt: str, person: int) -> str:
    """Return which operator has ordered that an attempt of a person ends; empty where none has.

    Args:
        folder: where leases lie.
        operators: those that the host's policy names.
        attempt: its name, as of ``entries.attempt_name``.
        person: whose it is: by its name alone another person's job of the same name would end, too.
    """

    def is_of_it(order: OperatorOrder) -> bool:
        return order.document.get("attempt") == attempt and order.document.get("person") == person

    found = read_orders(folder, END, operators, is_of_it)
    return user_name(found[0].person) if found else ""


def end_job(folder: str, gpus: Sequence[str], job: str) -> Dict[str, Any]:
    """Order that the attempt of a job which holds GPUs ends; return whose it is, and which.

    Args:
        folder: where leases lie.
        gpus: those of the host.
        job: its id, or the nine characters that stand for it.

    Raises:
        Failure: ``not_allowed`` where this user is not an operator; ``missing`` where no such job holds a GPU.
    """
    _check_operator()
    from workbench.learner.platform import lease_holders  # guards, which read orders, are to stay small

    found: Set[Tuple[int, str, Any]] = set()
    for holding in lease_holders.holdings(folder, gpus).values():
        name, attempt = str(holding.document.get("job") or ""), holding.document.get("attempt")
        if holding.is_claimed and attempt is not None and (name == job or name.rpartition("-")[2] == job):
            found.update((person, name, attempt) for person in holding.people)
    if not found:
        raise Failure(
            "missing",
            f"{job} holds no GPU here that can be ended.",
            "`fabric gpus` shows who holds which, each with its job",
        )
    _remove_own(folder, END, older_than=_END_STALE_SECONDS)
    # A lease can name the job of somebody else: nobody protects one by that, and whose it is not is not ended.
    for person, name, attempt in found:
        ends = attempt_name(name, attempt)
        mark = hashlib.sha256(f"{person} {ends}".encode()).hexdigest()[:16]
        _write_order(folder, END, mark, {"attempt": ends, "person": person})
    name, attempt = max((name, attempt) for _, name, attempt in found)
    people = " and ".join(sorted(user_name(person) for person in {person for person, _, _ in found}))
    return {"job": name, "attempt": attempt, "person": people}


def drain(folder: str) -> None:
    """Have the host be empty, by root's file or an operator's order.

    Raises:
        Failure: ``not_allowed`` where this user is no operator; else why it cannot be ordered.
    """
    if os.geteuid() == 0:
        os.makedirs(os.path.dirname(DRAIN_FILE), 0o755, exist_ok=True)
        os.close(os.open(DRAIN_FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        return
    operators, me = _check_operator(), os.geteuid()
    if not any(order.person == me for order in read_orders(folder, DRAIN, operators)):
        _write_order(folder, DRAIN, str(me), {})


def end_drain(folder: str) -> None:
    """Take back what this user has ordered; root, what anybody has.

    Raises:
        Failure: it cannot be removed.
    """
    if os.geteuid() == 0:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(DRAIN_FILE)
    _remove_own(folder, DRAIN)


def drain_document(folder: str) -> Dict[str, Any]:
    """Say who wants this host to be empty, whether this user may, and what is wrong with what root wrote of it."""
    operators: Sequence[str] = ()
    trouble = ""
    try:
        operators = read_policy().operators
    except BadPolicy as error:
        trouble = str(error)
    found = drain_of(folder, operators)
    me = os.geteuid()
    return {
        "by": "" if found is None else found.by,
        "since_us": None if found is None else found.since_us,
        "may": me == 0 or is_operator(me, operators),
        "unknown": unknown_operators(operators),
        "trouble": trouble,
    }


def _check_operator() -> Tuple[str, ...]:
    """Return the operators that the host's policy names, of whom this user is one.

    Root needs no order to end processes, and is one only where it is named.
    """
    me = os.geteuid()
    try:
        operators = read_policy().operators
    except BadPolicy as error:
        raise Failure("failed", f"The host's policy is not used: {error}.") from error
    if not is_operator(me, operators):
        raise Failure(
            "not_allowed",
            f"{user_name(me)} is not an operator of this host.",
            f'Root names operators in {POLICY_FILE}: operators = ["{user_name(me)}"]',
        )
    return operators


def _remove_own(folder: str, kind: str, older_than: float = -1.0) -> None:
    """Remove this user's orders of one kind, those of all where it is root."""
    me = os.geteuid()
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for name in _files(descriptor, kind):
            with contextlib.suppress(OSError):  # one that cannot be removed keeps none of the others
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                is_old = time.time() - found.st_mtime > older_than
                if me in (0, found.st_uid) and is_old and stat.S_ISREG(found.st_mode):
                    os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _files(folder: int, kind: str) -> Iterator[str]:
    return (name for name in sorted(os.listdir(folder)) if name.startswith(f"{kind}-"))


def _read_order(folder: int, name: str, kind: str) -> Optional[OperatorOrder]:
    """Return the order of a file, whose owner may be anybody; None where it is none."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not owned_files.is_text_of_owner(found) or found.st_nlink != 1:
            return None
        document = json.loads(owned_files.read_own(descriptor))
        if not isinstance(document, dict) or document.get("order") != kind:
            return None
        return OperatorOrder(found.st_uid, found.st_mtime_ns // 1000, document)
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def _write_order(folder: str, kind: str, name: str, facts: Mapping[str, Any]) -> None:
    from workbench.learner.platform import leases  # guards, which read orders, are to stay small

    leases.make_folder(folder)
    text = json.dumps({**facts, "format": _FORMAT, "order": kind})
    for number in range(_TRIES):
        # What nobody knows before nobody takes.
        path = os.path.join(folder, f"{kind}-{name}" + (f".{os.urandom(8).hex()}" if number else ""))
        descriptor = owned_files.replace_own(path, text)
        if descriptor is not None:
            os.close(descriptor)
            return
    raise Failure(
        "cannot_write", f"No file {kind}-{name} can be made in {folder}.", "Root can remove what is there."
    )


def _account(name: str) -> Optional[int]:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


def _group(name: str) -> Optional[int]:
    import grp  # guards look for operators, too; few of a policy's are groups

    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        return None

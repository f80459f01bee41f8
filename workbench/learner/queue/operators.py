"""What the operators of a host order: files of theirs in the folder of leases, beside those of everybody else.

Root names operators in the host's policy: accounts, and groups of accounts. Anybody can make a file of any name in that
folder, so nothing is believed but what the kernel says of it: its owner has to be an operator, now, and nobody else can
have written it. What it orders its text says, too: a link to another file of that person's is no order.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from workbench.learner.platform import owned_files
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.system import user_name
from workbench.learner.queue.policy import BadPolicy, read_policy, roots_drain_us
from workbench.learner.queue.root_files import DRAIN_FILE, POLICY_FILE

DRAIN = "drain"
"""The order that empties a host."""

_FORMAT = 1
_NAMES = 8
"""A name may be taken by somebody else."""


class OperatorOrder(NamedTuple):
    """What an operator wants of a host."""

    person: int
    """The owner of its file."""
    since_us: int
    """When that was written."""


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


def read_orders(folder: str, kind: str, operators: Sequence[str]) -> List[OperatorOrder]:
    """Return the orders of one kind that count; what anybody else has made does not."""
    if not operators:
        return []
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        known: Dict[int, bool] = {}
        found = (_read_order(descriptor, name, kind, operators, known) for name in _files(descriptor, kind))
        return [order for order in found if order is not None]
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


def drain(folder: str) -> None:
    """Have the host be empty, by root's file or an operator's order.

    Raises:
        Failure: ``not_allowed`` where this user is no operator; else why it cannot be ordered.
    """
    if os.geteuid() == 0:
        os.makedirs(os.path.dirname(DRAIN_FILE), 0o755, exist_ok=True)
        os.close(os.open(DRAIN_FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        return
    operators = _operators()
    me = os.geteuid()
    if not is_operator(me, operators):
        raise Failure(
            "not_allowed",
            f"{user_name(me)} is not an operator of this host.",
            f'Root names operators in {POLICY_FILE}: operators = ["{user_name(me)}"]',
        )
    if not any(order.person == me for order in read_orders(folder, DRAIN, operators)):
        _write_order(folder, DRAIN, str(me), {})


def end_drain(folder: str) -> None:
    """Take back what this user has ordered; root, what anybody has.

    Raises:
        Failure: it cannot be removed.
    """
    me = os.geteuid()
    if me == 0:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(DRAIN_FILE)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for name in _files(descriptor, DRAIN):
            with contextlib.suppress(FileNotFoundError):
                if me in (0, os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid):
                    os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


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


def _operators() -> Tuple[str, ...]:
    try:
        return read_policy().operators
    except BadPolicy as error:
        raise Failure("failed", f"The host's policy is not used: {error}.") from error


def _files(folder: int, kind: str) -> Iterator[str]:
    return (name for name in sorted(os.listdir(folder)) if name.startswith(f"{kind}-"))


def _read_order(
    folder: int, name: str, kind: str, operators: Sequence[str], known: Dict[int, bool]
) -> Optional[OperatorOrder]:
    """Return the order of a file; None where it is none, or not an operator's."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        person = found.st_uid
        if not owned_files.is_text_of_owner(found) or found.st_nlink != 1:
            return None
        if person not in known:
            known[person] = is_operator(person, operators)
        if not known[person]:
            return None
        document = json.loads(owned_files.read_own(descriptor))
        is_order = isinstance(document, dict) and document.get("order") == kind
        return OperatorOrder(person, found.st_mtime_ns // 1000) if is_order else None
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def _write_order(folder: str, kind: str, name: str, facts: Mapping[str, Any]) -> None:
    from workbench.learner.platform import leases  # guards, which read orders, are to stay small

    leases.make_folder(folder)
    text = json.dumps({**facts, "format": _FORMAT, "order": kind})
    for number in range(_NAMES):
        path = os.path.join(folder, f"{kind}-{name}" + (f".{number}" if number else ""))
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

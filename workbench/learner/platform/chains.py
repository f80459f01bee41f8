"""Where the symbolic links of a tree lead: two links that are harmless alone may lead out of it together."""

from __future__ import annotations

import unicodedata
from typing import Callable, Iterable, Iterator, List, Mapping, Set

LINKS_MAX = 1000
"""How many links the way to a file may have; systems follow far fewer, so that a circle leads nowhere."""


def leading_out(links: Mapping[str, str]) -> Set[str]:
    """Return those links of a tree that lead out of it.

    Args:
        links: what each one says, by its path in the tree.
    """
    # Some file systems take names for the same that differ in case, or in how they are written.
    by_folded = {_folded(path): target for path, target in links.items()}
    return {
        path
        for path in links
        if not (_ends_inside(path, links, str) and _ends_inside(path, by_folded, _folded))
    }


def safe_links(targets: Mapping[str, str], there: Mapping[str, str]) -> Set[str]:
    """Return those new links that can be made in a tree so that no link, old or new, leads out of it.

    Args:
        targets: the targets of the new links, by path in the tree.
        there: the targets of the existing links, by path.
    """
    before = leading_out(there)
    taken = set(targets)
    while taken:
        links = {**there, **{path: targets[path] for path in taken}}
        out = leading_out(links) - before
        # Where an old one would lead out by a new one no new one is to be trusted.
        dropped = (out | before) & taken or (taken if out else set())
        if not dropped:
            break
        taken -= dropped
    return taken


def through_links(paths: Iterable[str], links: Iterable[str]) -> List[str]:
    """Return those paths in a tree that lead through one of its links."""
    known = {_folded(link) for link in links}
    return [path for path in paths if any(above in known for above in _above(_folded(path)))]


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _ends_inside(path: str, links: Mapping[str, str], name_of: Callable[[str], str]) -> bool:
    """Follow a link to where it ends, name by name."""
    here: List[str] = []
    waiting = path.split("/")[::-1]
    followed = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return False
            here.pop()
            continue
        here.append(part)
        target = links.get(name_of("/".join(here)))
        if target is None:
            continue
        followed += 1
        if followed > LINKS_MAX:
            return True
        if not target or target.startswith("/") or "\0" in target:
            return False
        here.pop()
        waiting += target.split("/")[::-1]
    return True


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()

"""Where a symbolic link of a tree leads: inside it is kept, out of it is refused."""

from __future__ import annotations

import os


def link_target(root: str, real_root: str, path: str, written: str) -> str | None:
    """Return what a link is to say in a snapshot; None when it leads out of the tree.

    Args:
        root: the tree's folder.
        real_root: the same without symbolic links.
        path: the link, relative to the tree.
        written: what it says.
    """
    resolved = os.path.realpath(f"{root}/{path}")
    if resolved != real_root and not resolved.startswith(real_root.rstrip("/") + "/"):
        return None
    if stays_inside(path, written):
        return written
    # Absolute, or out and in again by the folder's own name, which is another one at the place.
    here = os.path.realpath(f"{root}/{os.path.dirname(path)}")  # noqa: PTH120 - text, as bytes may be no UTF-8
    return os.path.relpath(resolved, here)


def stays_inside(path: str, target: str) -> bool:
    """Say whether a link at a path of a tree stays in it, by names alone."""
    if not target or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True

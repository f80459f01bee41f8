"""How pages are written: headings, named facts, tables. Nothing from outside is read as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import chop_cells
from textual.content import Content

from screens.style import text
from screens.style.glyphs import glyphs
from workbench import formats

NAME_WIDTH = 14


def plain(shown: str, role: str = "") -> Content:
    """Return a text that is shown as it is; with a role in that role's colour."""
    safe = "\n".join(formats.printable(line) for line in shown.split("\n"))
    return Content.styled(safe, f"$role-{role}") if role else Content(safe)


def heading(title: str) -> Content:
    """Return the heading of a part."""
    return Content.styled(title, "bold $role-key")


def fact(name: str, value: str | Content) -> Content:
    """Return a named value; more lines of it stand under its first."""
    shown = plain(value) if isinstance(value, str) else value
    first, *rest = shown.split("\n") or [Content("")]
    lines = [Content.styled(f"  {name:<{NAME_WIDTH}} ", "$role-dim") + first]
    lines += [Content(" " * (NAME_WIDTH + 3)) + line for line in rest]
    return Content("\n").join(lines)


def facts(pairs: Iterable[tuple[str, str | Content]]) -> list[Content]:
    """Return named values; those that are empty are left out."""
    return [fact(name, value) for name, value in pairs if value]


def path_fact(name: str, path: str, width: int) -> Content:
    """Return a named path for so many columns; a longer one goes on below, after a slash where that is possible."""
    room, rest, lines = max(1, width - NAME_WIDTH - 3), formats.printable(path), []
    while text.cells(rest) > room:
        end = len(chop_cells(rest, room)[0])
        end = rest.rfind("/", 1, end) + 1 or end
        lines.append(rest[:end])
        rest = rest[end:]
    return fact(name, "\n".join([*lines, rest]))


def table(titles: Sequence[str], rows: Sequence[Sequence[str | Content]]) -> list[Content]:
    """Return aligned columns under dim titles; those in which nothing stands are left out."""
    kept = [i for i in range(len(titles)) if any(row[i] for row in rows)]
    titles = [titles[i] for i in kept]
    shown = [
        [plain(cell) if isinstance(cell, str) else cell for cell in (row[i] for i in kept)] for row in rows
    ]
    widths = [
        max(text.cells(title), *(row[i].cell_length for row in shown), 0) for i, title in enumerate(titles)
    ]
    head = "  ".join(title.ljust(width) for title, width in zip(titles, widths, strict=True))
    lines = [Content.styled(f"  {head.rstrip()}", "$role-dim")]
    for row in shown:
        cells = [cell.pad_right(width - cell.cell_length) for cell, width in zip(row, widths, strict=True)]
        lines.append(Content("  ") + Content("  ").join(cells))
    return lines


def page(*parts: Sequence[Content]) -> Content:
    """Join parts with a blank line between them; empty ones are left out."""
    texts = [Content("\n").join(part) for part in parts if part]
    return Content("\n\n").join(texts)


def bar(share: float, width: int = 20) -> str:
    """Return how full something is, as a bar."""
    full = round(max(0.0, min(1.0, share)) * width)
    return glyphs().bar * full + glyphs().bar_rest * (width - full)


def flow(parts: Sequence[Content], between: str, width: int, first: str, later: str) -> list[Content]:
    """Set parts behind each other, on as many lines as it takes; each line but the first begins with ``later``."""
    lines: list[Content] = []
    line = Content(first)
    empty = True
    for part in parts:
        if not empty and line.cell_length + len(between) + part.cell_length > width:
            lines.append(line)
            line, empty = Content(later), True
        line = line + part if empty else line + Content(between) + part
        empty = False
    return [*lines, line]

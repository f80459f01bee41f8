"""Our themes: every colour can be read on what is behind it, and curves are told apart."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from textual.color import Color
from textual.theme import Theme

from screens.style.themes import CURVE_COLOURS, NO_COLOUR_THEME, THEMES, role_variables

ours = pytest.mark.parametrize(
    "theme", [theme for theme in THEMES if theme.name != NO_COLOUR_THEME], ids=lambda theme: theme.name
)
BEHIND = ("role-cursor", "role-hit")
"""These lie behind text."""
GRID = (1.5, 2.5)
"""What a grid's contrast is between: it is seen, and stays behind the curves."""

RED_BLIND = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
GREEN_BLIND = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
"""What is left of linear red, green and blue (Machado, Oliveira and Fernandes, 2009)."""
ALL_SEEN = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
Eyes = tuple[tuple[float, float, float], ...]
Triple = tuple[float, float, float]


def roles(theme: Theme) -> dict[str, Color]:
    """Return the colours of a theme by role."""
    found = {**role_variables(theme), **theme.variables}
    return {name: Color.parse(colour) for name, colour in found.items() if name.startswith("role-")}


def linear(colour: Color) -> Triple:
    """Return red, green and blue as amounts of light."""
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in colour.normalized
    )
    return red, green, blue


def contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours, from 1 to 21, as the WCAG defines it."""
    light = sorted(
        0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in map(linear, (one, other))
    )
    return (light[1] + 0.05) / (light[0] + 0.05)


def lab(colour: Color, eyes: Eyes) -> Triple:
    """Return a colour as such eyes see it, in CIELAB."""
    amounts = linear(colour)
    red, green, blue = (
        min(1.0, max(0.0, sum(part * amount for part, amount in zip(row, amounts, strict=True))))
        for row in eyes
    )
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (
            (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
            0.2126 * red + 0.7152 * green + 0.0722 * blue,
            (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def nearest(theme: Theme, eyes: Eyes) -> float:
    """Return how far the two curves that look most alike are from each other."""
    found = roles(theme)
    seen = [lab(found[f"role-curve-{number}"], eyes) for number in range(1, CURVE_COLOURS + 1)]
    return min(math.dist(one, other) for one, other in combinations(seen, 2))


@ours
@pytest.mark.parametrize("ground", ["background", "surface"])
def test_every_role_can_be_read(theme: Theme, ground: str) -> None:
    behind = Color.parse(getattr(theme, ground))
    found = {name: contrast(colour, behind) for name, colour in roles(theme).items() if name not in BEHIND}

    grid = found.pop("role-grid")
    least = {name: 3.0 if name == "role-dim" else 4.5 for name in found}
    assert GRID[0] <= grid <= GRID[1]
    assert {name: round(one, 2) for name, one in found.items() if one < least[name]} == {}


@ours
@pytest.mark.parametrize("behind", BEHIND)
def test_text_can_be_read_under_the_cursor_and_where_it_was_found(theme: Theme, behind: str) -> None:
    found = roles(theme)

    assert contrast(found["role-text"], found[behind]) >= 4.5


@ours
def test_curves_are_distinguished(theme: Theme) -> None:
    assert nearest(theme, ALL_SEEN) >= 20


@pytest.mark.parametrize("eyes", [RED_BLIND, GREEN_BLIND], ids=["red-blind", "green-blind"])
def test_one_theme_has_curves_that_colour_blind_eyes_tell_apart(eyes: Eyes) -> None:
    (theme,) = [theme for theme in THEMES if theme.name == "fabric-safe"]

    assert nearest(theme, eyes) >= 15

"""What others import stays importable by the same names: training code, plug-ins, scripts."""

from __future__ import annotations

from tests.frozen import goldens
from tests.frozen.asked import public_names
from tests.support.command import Fabric


def test_public_names_are_what_they_were(fabric: Fabric) -> None:
    goldens.holds(goldens.NAMES, public_names(fabric))

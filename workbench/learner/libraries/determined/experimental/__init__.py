"""What Determined calls experimental: ``core_v2``."""

# Relative: this package is imported by its last name.
from .. import _absent  # noqa: TID252

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any


def __getattr__(name: str) -> "Any":
    instead = _absent.instead_of("experimental." + name)
    raise AttributeError(
        "module 'determined.experimental' has no attribute %r%s" % (name, instead and ": " + instead)
    )

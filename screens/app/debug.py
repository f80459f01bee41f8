"""What is known of this installation, for whoever has to find out why something does not work."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from textual import __version__ as textual_version
from textual.content import Content

from screens.core.app_protocol import AppProtocol
from screens.style.glyphs import glyphs
from screens.widgets.markup import facts, heading, page
from workbench.config import load_config
from workbench.errors import FabricError
from workbench.paths import config_file
from workbench.services.controller import inspect_controller
from workbench.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def debug_text(app: AppProtocol, terminal: Sequence[tuple[str, str]]) -> Content:
    """Return the text, with some facts about the terminal; asks the controller, so it may take a moment."""
    controller = inspect_controller(app.home)
    found = "not running; it is started when needed"
    if controller.answers:
        found = f"pid {controller.pid}, version {controller.version}"
    elif controller.pid is not None:
        found = controller.trouble
    return page(
        [
            heading("Versions"),
            *facts(
                (
                    ("fabric", VERSION),
                    ("python", platform.python_version()),
                    ("textual", textual_version),
                    ("system", platform.platform()),
                )
            ),
        ],
        [
            heading("Paths"),
            *facts(
                (
                    ("home", str(app.home.path)),
                    ("database", str(app.home.database)),
                    ("configuration", str(config_file())),
                    ("controller", found),
                    ("controller log", str(app.home.controller_log)),
                )
            ),
        ],
        [heading("Configuration"), *facts(_configuration(app))],
        [heading("Slowest reads"), *facts((key, f"{took * 1000:.1f} ms") for key, took in _slowest(app))],
        [
            heading("Terminal"),
            *facts(
                (
                    *terminal,
                    ("TERM", os.environ.get("TERM", "")),
                    ("characters", "unicode" if glyphs().unicode else "ASCII"),
                    ("store", str(app.trouble) if app.trouble else "readable"),
                )
            ),
        ],
    )


def _configuration(app: AppProtocol) -> Iterator[tuple[str, str]]:
    """Say which files the configuration is from, and what of it has no effect."""
    try:
        config = load_config()
    except FabricError as error:
        yield "error", str(error)
        return
    for layer in reversed(config.layers):
        yield layer.origin, str(layer.file)
    for fault in config.warnings:
        yield "warning", str(fault)
    for fault_text in app.key_map.faults:
        yield "warning", fault_text


def _slowest(app: AppProtocol) -> list[tuple[str, float]]:
    return sorted(app.reader.slowest.items(), key=lambda each: -each[1])[:8]

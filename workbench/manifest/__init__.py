"""Manifests: FfDL's format and ours on top, read into a :class:`~workbench.manifest.model.JobSpec`.

Everything here is loaded when it is first used: who only works with stored jobs
(``workbench.manifest.model``) pays for no YAML parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import offered

if TYPE_CHECKING:
    from workbench.manifest.json_schema import schema as schema
    from workbench.manifest.loading import Loaded as Loaded
    from workbench.manifest.loading import load as load
    from workbench.manifest.loading import load_text as load_text
    from workbench.manifest.loading import validate as validate
    from workbench.manifest.params import param_text as param_text
    from workbench.manifest.params import param_variable as param_variable
    from workbench.manifest.templates import from_command as from_command
    from workbench.manifest.templates import template as template
    from workbench.manifest.unbuilt import not_built as not_built

_HOMES = {
    "Loaded": "loading",
    "from_command": "templates",
    "load": "loading",
    "load_text": "loading",
    "not_built": "unbuilt",
    "param_text": "params",
    "param_variable": "params",
    "schema": "json_schema",
    "template": "templates",
    "validate": "loading",
}
__all__ = sorted(_HOMES)

__getattr__ = offered(__name__, _HOMES)

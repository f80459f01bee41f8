"""Manifests: FfDL's format and ours on top, read into a :class:`~workbench.spec.JobSpec`.

Everything here is loaded when it is first used: who only works with stored jobs
(``workbench.spec``) pays for no YAML parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import offered

if TYPE_CHECKING:
    from workbench.manifest.build.load import Loaded as Loaded
    from workbench.manifest.build.load import load as load
    from workbench.manifest.build.load import load_text as load_text
    from workbench.manifest.build.load import validate as validate
    from workbench.manifest.build.params import param_text as param_text
    from workbench.manifest.build.params import param_variable as param_variable
    from workbench.manifest.build.templates import from_command as from_command
    from workbench.manifest.build.templates import template as template
    from workbench.manifest.build.unsupported import not_built as not_built
    from workbench.manifest.publish.json_schema import schema as schema

_HOMES = {
    "Loaded": "build.load",
    "from_command": "build.templates",
    "load": "build.load",
    "load_text": "build.load",
    "not_built": "build.unsupported",
    "param_text": "build.params",
    "param_variable": "build.params",
    "schema": "publish.json_schema",
    "template": "build.templates",
    "validate": "build.load",
}
__all__ = sorted(_HOMES)

__getattr__ = offered(__name__, _HOMES)

"""Manifests: FfDL's format and ours on top, read into a :class:`~workbench.spec.JobSpec`.

``yaml`` reads text, ``keys`` is the table of keys, ``builder`` makes the job, ``publish`` the schema and the docs.
Other packages import the names below. They are loaded when they are first used: who only works with stored jobs
(``workbench.spec``) pays for no YAML parser. It imports ``workbench.spec`` and ``workbench.errors``, never the
configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lazy import offered

if TYPE_CHECKING:
    from workbench.manifest.builder.conversion import convert as convert
    from workbench.manifest.builder.load import Loaded as Loaded
    from workbench.manifest.builder.load import load as load
    from workbench.manifest.builder.load import load_text as load_text
    from workbench.manifest.builder.params import param_text as param_text
    from workbench.manifest.builder.params import param_variable as param_variable
    from workbench.manifest.builder.script_options import read_script_options as read_script_options
    from workbench.manifest.builder.script_options import read_values as read_values
    from workbench.manifest.builder.scripts_run import interpreter_of as interpreter_of
    from workbench.manifest.builder.templates import command_in as command_in
    from workbench.manifest.builder.templates import from_command as from_command
    from workbench.manifest.builder.templates import template as template
    from workbench.manifest.publish.json_schema import schema as schema

_HOMES = {
    "Loaded": "builder.load",
    "command_in": "builder.templates",
    "convert": "builder.conversion",
    "from_command": "builder.templates",
    "interpreter_of": "builder.scripts_run",
    "load": "builder.load",
    "load_text": "builder.load",
    "param_text": "builder.params",
    "param_variable": "builder.params",
    "schema": "publish.json_schema",
    "read_script_options": "builder.script_options",
    "read_values": "builder.script_options",
    "template": "builder.templates",
}
__all__ = sorted(_HOMES)

__getattr__ = offered(__name__, _HOMES)

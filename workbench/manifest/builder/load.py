"""Reads a manifest into a job: overrides, parameters, every fault at once, and the origin of each value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from workbench.errors import ConfigError, FabricError, InputMissing, ManifestError, ManifestFault
from workbench.manifest.builder.job import build
from workbench.manifest.builder.overlay import laid_over
from workbench.manifest.builder.overrides import (
    apply_flags,
    apply_sets,
    apply_variables,
    drop_secrets_from_env,
    under_defaults,
)
from workbench.manifest.builder.params import expanded
from workbench.manifest.keys import credentials
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.yaml.compose import compose
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode, Node, ScalarNode, SourceLocation, leaves
from workbench.manifest.yaml.other_formats import recognised
from workbench.manifest.yaml.source import STDIN_NAME, decoded, read_manifest
from workbench.spec import JobSpec

NOTHING: Final[Mapping[str, Any]] = {}


class DefaultsLayer(Protocol):
    """Defaults of one file, or of one profile in it; :class:`workbench.config.types.Layer` is one."""

    @property
    def origin(self) -> str:
        """What the origin of the values is called: ``config.toml``, or ``fabric.toml, profile ci``."""

    @property
    def file(self) -> Path:
        """The file, for faults."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Values by manifest key."""


class LayeredDefaults(Protocol):
    """Defaults of a configuration; :class:`workbench.config.Config` is one."""

    @property
    def layers(self) -> Sequence[DefaultsLayer]:
        """The layers, the strongest first."""

    @property
    def warnings(self) -> Sequence[ManifestFault]:
        """What is doubtful in the files; it joins the manifest's warnings."""


Defaults = Mapping[str, Any] | Callable[[], LayeredDefaults]
"""Values by manifest key, or what reads them: it is called once the manifest itself could be read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A manifest that has been read."""

    spec: JobSpec
    """Credentials are references in it, such as ``${secret:data_stores.0.connection.password}``."""
    text: str
    """The manifest as written, its credentials overwritten: it is kept with the job."""
    origins: Mapping[str, str]
    """Where each value came from, by dotted path: ``manifest.yml:12``, ``flag --gpus``, ``default``."""
    warnings: tuple[ManifestFault, ...]
    source: str
    """The file's name, or ``stdin``."""
    folder: Path | None
    """Where the manifest lies; None when it came from standard input or from no file."""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The values that the references in ``spec`` stand for, by their path."""


def load(
    source: str | Path,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] = NOTHING,
    environ: Mapping[str, str] | None = None,
    defaults: Defaults = NOTHING,
    templates: Sequence[str | Path] = (),
    stdin: TextIO | None = None,
) -> Loaded:
    """Read a manifest from a file or, as ``-``, from standard input.

    Args:
        source: the file.
        overrides: ``path=value`` texts, applied in order.
        flags: values by key, which override all other sources; None means that a flag was not given.
            ``image`` stands for the framework ``custom`` with that image.
        environ: the environment that ``FABRIC_*`` variables are read from; that of the process if None.
        defaults: values of keys that nothing else sets: a mapping, or ``workbench.config.load_config``, which reads
            the configuration.
        templates: files that the manifest lies over, each over those before it; maps are joined key by key,
            lists and everything else are replaced.
        stdin: what ``-`` reads; the process's standard input if None.

    Raises:
        ManifestError: the manifest, or what is laid over it, is at fault; it carries every fault.
        InputMissing: the file is not there or cannot be read.
        UsageError: an override is not ``path=value``.
        ConfigError: the configuration that ``defaults`` reads is at fault.
    """
    name = str(source)
    text = read_manifest(name, stdin)
    folder = None if name == "-" else Path(name).absolute().parent
    shown = STDIN_NAME if name == "-" else name
    return load_text(
        text,
        shown,
        overrides=overrides,
        flags=flags,
        environ=environ,
        defaults=defaults,
        templates=templates,
        folder=folder,
    )


def load_text(
    text: str,
    source: str,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] = NOTHING,
    environ: Mapping[str, str] | None = None,
    defaults: Defaults = NOTHING,
    templates: Sequence[str | Path] = (),
    folder: Path | None = None,
) -> Loaded:
    """Read a manifest that is a text already; ``source`` is what faults call it. Else as :func:`load`."""
    findings = Findings()
    text = decoded(text.encode(errors="surrogatepass"), source)
    written = compose(text, source, findings)
    root = _checked(written, source, findings)
    layers: Sequence[tuple[str, str, Mapping[str, Any]]] = ()
    if root is not None:
        layers = _layers(defaults, findings)
        root = _laid_over(root, overrides, flags, os.environ if environ is None else environ, findings)
        for template in reversed(templates):
            root = _over_template(root, template, findings)
        for origin, file, values in layers:
            root = under_defaults(root, values, file, findings, origin=origin)
    spec = None
    if isinstance(root, MapNode):
        root = expanded(root, findings)
        spec = build(root, folder, findings)
    findings = findings.sorted()
    if spec is None or root is None or findings.faults:
        raise _refused(findings, {file for _, file, _ in layers})
    spec, kept = credentials.taken_out(spec)
    return Loaded(
        spec=spec,
        text=credentials.overwritten(text, credentials.spans(written)),
        origins=_origins(root),
        warnings=tuple(findings.warnings),
        source=source,
        folder=folder,
        credentials=kept,
    )


def validate(sources: Sequence[str | Path]) -> list[tuple[str, list[ManifestFault], list[ManifestFault]]]:
    """Check manifests by themselves, without variables and defaults; returns faults and warnings of each.

    A file that cannot be read is a fault like any other, so that the others are checked too.

    Raises:
        InputMissing: the only file cannot be read.
    """
    checked: list[tuple[str, list[ManifestFault], list[ManifestFault]]] = []
    for source in sources:
        try:
            loaded = load(source, environ={}, defaults={})
            checked.append((loaded.source, [], list(loaded.warnings)))
        except ManifestError as error:
            checked.append((str(source), list(error.faults), list(error.warnings)))
        except InputMissing as error:
            if len(sources) == 1:
                raise
            checked.append((str(source), [_as_fault(str(source), error)], []))
    return checked


def _as_fault(source: str, error: FabricError) -> ManifestFault:
    return ManifestFault(source, 0, 0, "", error.message, error.hint)


def _checked(root: Node | None, source: str, findings: Findings) -> Node | None:
    """Return the tree of a manifest with its keys canonical; None when it cannot be one."""
    if root is None or (isinstance(root, ScalarNode) and root.is_null):
        if not findings.faults:
            location = SourceLocation(source, 1, 1, source)
            findings.fault(location, "", "the manifest is empty", "fabric init writes one to start from")
        return None
    if not isinstance(root, MapNode):
        MANIFEST.read(root, "", findings)
        return None
    if recognised(root, findings):
        return None
    return MANIFEST.canonical(root, "", findings)


def _laid_over(
    root: Node,
    overrides: Sequence[str],
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    findings: Findings,
) -> Node | None:
    over = apply_variables(root, environ, findings)
    over = apply_sets(over, overrides, findings)
    if isinstance(over, MapNode):
        over = drop_secrets_from_env(over, flags)
    return apply_flags(over, flags, findings)


def _over_template(root: Node | None, template: str | Path, findings: Findings) -> Node | None:
    """Lay what there is over a template, which is a part of a manifest in a file of its own."""
    source = str(template)
    below = compose(read_manifest(source, None), source, findings)
    if isinstance(below, MapNode):
        base = MANIFEST.canonical(below, "", findings)
        return laid_over(base, root) if root is not None else base
    if below is not None and not (isinstance(below, ScalarNode) and below.is_null):
        findings.fault(below.location, "", "a template is a part of a manifest: keys and values")
    return root


def _layers(defaults: Defaults, findings: Findings) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return origin, file and values of each layer of defaults, the strongest first."""
    if not callable(defaults):
        return [("config.toml", "config.toml", defaults)]
    configured = defaults()
    findings.warnings.extend(configured.warnings)
    return [(layer.origin, str(layer.file), layer.defaults) for layer in configured.layers]


def _refused(findings: Findings, config: set[str]) -> FabricError:
    of_config = [fault for fault in findings.faults if fault.file in config]
    if of_config and len(of_config) == len(findings.faults):
        return ConfigError("\n".join(str(fault) for fault in of_config), hint="it stands below [defaults]")
    return ManifestError(findings.faults, warnings=findings.warnings)


def _origins(root: Node) -> dict[str, str]:
    origins = {path: node.location.origin for path, node in leaves(root)}
    tops = {path.partition(".")[0] for path in origins}
    return {**origins, **{name: "default" for name in MANIFEST.keys if name not in tops}}

"""Reads a manifest into a job: overrides, parameters, every fault at once, and the origin of each value."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from workbench.errors import ConfigError, FabricError, ManifestError, ManifestFault
from workbench.learner.determined_jobs import DATA_SECRETS_VARIABLE
from workbench.manifest.builder import determined
from workbench.manifest.builder.former_experiments import renewed
from workbench.manifest.builder.job import build
from workbench.manifest.builder.overlay import laid_over
from workbench.manifest.builder.overrides import (
    ArrayValues,
    apply_flags,
    apply_sets,
    apply_sets_of_experiment,
    apply_variables,
    as_array,
    drop_secrets_from_env,
    sets_experiment_key,
    under_defaults,
    without_variables,
)
from workbench.manifest.builder.params import expanded
from workbench.manifest.keys import credentials
from workbench.manifest.keys.registries import LOGIN_CREDENTIALS, registry_of
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.yaml.compose import compose, documents
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import MapNode, Node, ScalarNode, SourceLocation, leaves, node_at
from workbench.manifest.yaml.other_formats import recognised, recognised_text
from workbench.manifest.yaml.source import STDIN_NAME, decoded, read_manifest
from workbench.spec import JobSpec
from workbench.values import dataclass

NOTHING: Final[Mapping[str, Any]] = {}
PARAMS: Final = "params."
_IMAGE: Final = "framework.version"
_LOCATION: Final = "framework.image_location"


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
    on_cpu: JobSpec | None = None
    """The job where its slots are processes on the CPU; None where the manifest says nothing of that."""


def load(
    source: str | Path,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] = NOTHING,
    environ: Mapping[str, str] | None = None,
    defaults: Defaults = NOTHING,
    templates: Sequence[str | Path] = (),
    array: ArrayValues | None = None,
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
        array: what the jobs of an array differ in; the manifest is read as its search then.
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
        array=array,
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
    array: ArrayValues | None = None,
    folder: Path | None = None,
    known_params: Collection[str] = (),
    is_on_cpu: bool = False,
) -> Loaded:
    """Read a manifest that is a text already; ``source`` is what faults call it. Else as :func:`load`.

    ``known_params`` are params that may be overridden though the manifest does not declare them. With ``is_on_cpu``
    what an experiment of Determined has by device is that of ``cpu``, though it has slots.
    """
    findings = Findings()
    text = decoded(text.encode(errors="surrogatepass"), source)
    written = compose(text, source, findings)
    if not isinstance(written, MapNode):
        elsewhere = Findings()
        if recognised_text(text, source, elsewhere):
            raise _refused(elsewhere, set())
    merged, experiment, parts, sets = written, None, templates, overrides
    variables = os.environ if environ is None else environ
    if isinstance(written, MapNode) and "framework" not in written.entries:
        experiment = _experiment_over_templates(written, templates, findings)
    if experiment is not None:
        of_experiment = list(filter(sets_experiment_key, overrides))
        experiment = apply_sets_of_experiment(experiment, of_experiment, findings)
        merged, parts = experiment, ()
        sets = [text for text in overrides if text not in of_experiment]
        variables = without_variables(variables, of_experiment)
    root = _checked(merged, source, findings, is_on_cpu=is_on_cpu)
    layers: Sequence[tuple[str, str, Mapping[str, Any]]] = ()
    if root is not None:
        layers = _layers(defaults, findings)
        known = {*known_params, *(name for *_, values in layers for name in _mapping(values.get("params")))}
        _refuse_unknown_params(root, sets, parts, known, findings)
        root = _laid_over(root, sets, flags, variables, findings)
        for template in reversed(parts):
            root = _over_template(root, template, findings)
        for origin, file, values in layers:
            root = under_defaults(root, values, file, findings, origin=origin)
    spec = None
    if isinstance(root, MapNode):
        if array is not None:
            root = as_array(root, array, findings)
        root = expanded(root, findings)
        spec = build(root, folder, findings)
    findings = findings.sorted()
    if spec is None or root is None or findings.faults:
        raise _refused(findings, {file for _, file, _ in layers})
    # The access key of an experiment's storage is struck out of its text, too.
    spec, kept = credentials.taken_out(spec, with_user_names=experiment is not None)
    if experiment is not None and (of_code := determined.data_secrets(experiment)):
        kept[DATA_SECRETS_VARIABLE] = of_code
        spec = replace(spec, secrets=(*spec.secrets, DATA_SECRETS_VARIABLE))
    on_cpu = None
    if experiment is not None and not is_on_cpu and determined.is_by_device(experiment):
        loaded_on_cpu = load_text(
            text,
            source,
            overrides=overrides,
            flags=flags,
            environ=environ,
            defaults=defaults,
            templates=templates,
            array=array,
            folder=folder,
            known_params=known_params,
            is_on_cpu=True,
        )
        if not spec.gpus:
            return loaded_on_cpu
        on_cpu = loaded_on_cpu.spec
    return Loaded(
        spec=spec,
        text=credentials.overwritten(text, credentials.spans(written)),
        origins=_origins(root),
        warnings=tuple(findings.warnings),
        source=source,
        folder=folder,
        credentials=kept,
        on_cpu=on_cpu,
    )


def validate_text(
    text: str, source: str, folder: Path | None
) -> tuple[list[ManifestFault], list[ManifestFault]]:
    """Check each document of a text by itself, without variables and defaults; return all faults and warnings."""
    faults: list[ManifestFault] = []
    warnings: list[ManifestFault] = []
    for document in documents(text):
        try:
            warnings += load_text(document, source, environ={}, folder=folder).warnings
        except ManifestError as error:
            faults += error.faults
            warnings += error.warnings
    return faults, warnings


def as_fault(source: str, error: FabricError) -> ManifestFault:
    """Return an error of a whole manifest as a fault of it."""
    return ManifestFault(source, 0, 0, "", error.message, error.hint)


def _checked(root: Node | None, source: str, findings: Findings, *, is_on_cpu: bool = False) -> Node | None:
    """Return the tree of a manifest with its keys canonical; None when it cannot be one."""
    if root is None or (isinstance(root, ScalarNode) and root.is_null):
        if not findings.faults:
            location = SourceLocation(source, 1, 1, source)
            findings.fault(location, "", "the manifest is empty", "fabric init writes one to start from")
        return None
    if not isinstance(root, MapNode):
        MANIFEST.read(root, "", findings)
        return None
    if determined.is_experiment(root):
        root = determined.manifest_of(renewed(root, findings), findings, is_on_cpu=is_on_cpu)
        return None if findings.faults else MANIFEST.canonical(root, "", findings)
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
    over = apply_flags(over, flags, findings)
    if over is not None:
        _refuse_login_elsewhere(root, over, findings)
    return over


def _refuse_login_elsewhere(written: Node, over: Node, findings: Findings) -> None:
    """Refuse to send the login of the image that a file names to the registry of one that was named in its stead."""
    location, image = node_at(over, _LOCATION), node_at(over, _IMAGE)
    if image is None or location is None or _text_at(location, "registry"):
        return
    names = [key for key in LOGIN_CREDENTIALS if _text_at(location, key)]
    is_files = any(node_at(location, key) is node_at(written, f"{_LOCATION}.{key}") for key in names)
    registry, another = registry_of(_text_at(written, _IMAGE)), registry_of(_text_at(over, _IMAGE))
    if is_files and registry != another:
        findings.fault(
            image.location,
            _IMAGE,
            f"comes from {another}, and the login of {_LOCATION} is for {registry}",
            f"--set {_LOCATION}=null leaves the login out, --set {_LOCATION}.registry={another} sends it there",
        )


def _text_at(root: Node, path: str) -> str:
    """Return the text at a dotted path, empty where there is none."""
    node = node_at(root, path)
    return node.text if isinstance(node, ScalarNode) and not node.is_null else ""


def _refuse_unknown_params(
    root: Node,
    overrides: Sequence[str],
    templates: Sequence[str | Path],
    known: Collection[str],
    findings: Findings,
) -> None:
    """Refuse a ``--set params.NAME`` whose name a manifest that declares params does not have."""
    paths = [text.partition("=")[0].strip() for text in overrides]
    named = [path for path in paths if path.startswith(PARAMS)]
    if not named:
        return
    below: Node | None = root
    for template in reversed(templates):
        below = _over_template(below, template, Findings())
    declared = _param_names(below)
    if not declared:
        return
    for path in named:
        name = path.removeprefix(PARAMS).partition(".")[0]
        if name not in declared and name not in known:
            close = nearest(name, declared)
            names = f"its params are {', '.join(declared)}"
            hint = f"did you mean {close}? {names}" if close else names
            findings.fault(
                SourceLocation(f"--set {path}", 0, 0, "--set"),
                path,
                f"the manifest has no param {name!r}",
                hint,
            )


def _param_names(root: Node | None) -> list[str]:
    entry = root.entries.get("params") if isinstance(root, MapNode) else None
    return list(entry.node.entries) if entry and isinstance(entry.node, MapNode) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _over_template(root: Node | None, template: str | Path, findings: Findings) -> Node | None:
    """Lay what there is over a template, which is a part of a manifest in a file of its own."""
    below = _template(template, findings)
    if below is None:
        return root
    base = MANIFEST.canonical(below, "", findings)
    return laid_over(base, root) if root is not None else base


def _template(template: str | Path, findings: Findings) -> MapNode | None:
    """Read a template; None where it has nothing, or is no map, which is a fault."""
    source = str(template)
    below = compose(read_manifest(source, None), source, findings)
    if isinstance(below, MapNode):
        return below
    if below is not None and not (isinstance(below, ScalarNode) and below.is_null):
        findings.fault(below.location, "", "a template is a part of a manifest: keys and values")
    return None


def _experiment_over_templates(
    root: MapNode, templates: Sequence[str | Path], findings: Findings
) -> MapNode | None:
    """Lay an experiment of Determined over templates, which are parts of one; None where it is no experiment.

    A template may be what has the searcher.
    """
    found = Findings()
    trees = [tree for each in templates if (tree := _template(each, found)) is not None]
    if not any(determined.is_experiment(tree) for tree in (root, *trees)):
        return None
    findings.faults.extend(found.faults)
    findings.warnings.extend(found.warnings)
    for tree in reversed(trees):
        root = determined.laid_over_template(root, tree)
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
        return ConfigError("\n".join(str(fault) for fault in of_config), hint="it belongs under [defaults]")
    return ManifestError(findings.faults, warnings=findings.warnings)


def _origins(root: Node) -> dict[str, str]:
    """Return where each value came from; the values of a ``choice``, of which there may be 100,000, are one."""
    origins: dict[str, str] = {}
    for path, node in leaves(root):
        if path.startswith("search.params.") and ".choice." in path:
            path = path.partition(".choice.")[0] + ".choice"
        origins[path] = node.location.origin
    tops = {path.partition(".")[0] for path in origins}
    return {**origins, **{name: "default" for name in MANIFEST.keys if name not in tops}}

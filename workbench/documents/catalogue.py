"""All documents by their names, and the JSON schema (draft 2020-12) of each, made of its type."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from workbench.documents import events, experiments, files, jobs, machines, metrics, schedules
from workbench.documents.values import FieldsOf, Rule
from workbench.errors import UnknownName

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
COLUMN_TYPES: Final = ["string", "number", "boolean", "null"]
"""What a column of a query may hold."""


def schema_of(kinds: Sequence[Any], name: str, *, closed: bool = False) -> dict[str, Any]:
    """Return the schema of a document that has one of some types.

    Keys are added to documents within a version, so the published schema lets others pass; ``closed`` refuses them.
    """
    maker = _SchemaMaker(closed)
    whole = [maker.schema(kind) for kind in kinds]
    body = whole[0] if len(whole) == 1 else {"anyOf": whole}
    about = body.pop("description", "")
    return {
        "$schema": DRAFT,
        "title": name,
        **({"description": about} if about else {}),
        **body,
    }


class _SchemaMaker:
    """Turns types into schemas."""

    def __init__(self, closed: bool) -> None:
        self._closed = closed

    def schema(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type.

        Raises:
            TypeError: the type has no schema.
        """
        kind = getattr(kind, "__supertype__", kind)
        if kind is Any or kind is object:
            return {}
        if kind in _SCALARS:
            return {"type": _SCALARS[kind]}
        if is_typeddict(kind):
            return self._typed_dict(kind)
        if is_dataclass(kind):
            return self._fields_of(FieldsOf(kind))
        return self._generic(kind, get_origin(kind), get_args(kind))

    def _generic(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if origin is Annotated:
            return self._annotated(arguments[0], arguments[1])
        if origin is Literal:
            return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return _either([self.schema(each) for each in arguments])
        if origin is tuple and arguments[1:] != (...,):
            raise TypeError(f"{kind} has no schema: tuples have one type of elements")
        if isinstance(origin, type) and issubclass(origin, Sequence):
            return {"type": "array", "items": self.schema(arguments[0])}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.schema(arguments[1])}
        raise TypeError(f"{kind} has no schema")

    def _annotated(self, base: Any, about: Any) -> dict[str, Any]:
        if isinstance(about, FieldsOf):
            return self._fields_of(about)
        if not isinstance(about, Rule):
            raise TypeError(f"{about} is not part of a schema")
        return dict(about.words) if "anyOf" in about.words else {**self.schema(base), **about.words}

    def _typed_dict(self, kind: Any) -> dict[str, Any]:
        hints = get_type_hints(kind, include_extras=True)
        # Of classes with postponed annotations Python 3.11 does not know which keys are required.
        optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
        plain = {name: get_args(hint)[0] if name in optional else hint for name, hint in hints.items()}
        return self._object(kind, plain, optional)

    def _fields_of(self, about: FieldsOf) -> dict[str, Any]:
        hints = get_type_hints(about.kind, include_extras=True)
        named = {each.name: hints[each.name] for each in fields(about.kind)}
        return self._object(about.kind, {**named, **dict(about.others)}, frozenset())

    def _object(self, kind: Any, hints: Mapping[str, Any], optional: Set[str]) -> dict[str, Any]:
        said = _descriptions(kind)
        properties = {}
        for name in _ordered(hints):
            known = self.schema(hints[name])
            properties[name] = {**known, "description": said[name]} if name in said else known
        whole: dict[str, Any] = {
            "type": "object",
            "description": inspect.cleandoc(kind.__doc__ or ""),
            "properties": properties,
            "required": [name for name in properties if name not in optional],
        }
        if getattr(kind, "__name__", "") == "RowDocument":
            whole["additionalProperties"] = {"type": COLUMN_TYPES}
        elif self._closed:
            whole["additionalProperties"] = False
        return whole


def _ordered(names: Mapping[str, Any]) -> list[str]:
    """Return the keys with the mark first, wherever the class has it."""
    return sorted(names, key=lambda name: (name != "schema", name != "event"))


def _either(options: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(each) == {"type"} and isinstance(each["type"], str) for each in options):
        return {"type": [each["type"] for each in options]}
    return {"anyOf": options}


@cache
def _descriptions(kind: Any) -> Mapping[str, str]:
    """Return what the text below each field says, of the class and of those that it extends."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):
        return {}
    if not isinstance(tree, ast.ClassDef):
        return {}
    found: dict[str, str] = {}
    for base in tree.bases:
        # Python 3.11 does not keep which classes a TypedDict extends.
        extended = vars(sys.modules[kind.__module__]).get(ast.unparse(base))
        found.update(_descriptions(extended) if is_typeddict(extended) else {})
    for field, text in pairwise(tree.body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = " ".join(str(text.value.value).replace("``", "`").split())
    return found


MANIFEST: Final = "manifest"
"""The name of the manifest's own schema."""

Document = (
    jobs.JobDocument
    | jobs.WholeJobDocument
    | jobs.PlanDocument
    | jobs.ValidationDocument
    | jobs.ComparisonDocument
    | jobs.DiffDocument
    | jobs.HappeningDocument
    | jobs.RowDocument
    | jobs.ViewDocument
    | jobs.AdoptableDocument
    | experiments.PreviewDocument
    | experiments.ExperimentDocument
    | experiments.TrialDocument
    | experiments.UnmadeJobDocument
    | schedules.ScheduleDocument
    | metrics.LogsDocument
    | metrics.HitDocument
    | metrics.LogLineDocument
    | metrics.EmetricsDocument
    | metrics.SeriesDocument
    | metrics.MetricsDocument
    | metrics.TriedDocument
    | metrics.TryDocument
    | files.FilesDocument
    | files.CopyDocument
    | files.DownloadDocument
    | files.CheckpointDocument
    | files.DataPutDocument
    | files.ContainerDocument
    | files.DataDocument
    | files.StoredDocument
    | files.SpaceDocument
    | files.PruningDocument
    | files.LeftoverDocument
    | machines.BackendDocument
    | machines.BackendTestDocument
    | machines.InventoryDocument
    | machines.QueueDocument
    | machines.RoleDocument
    | machines.LingerDocument
    | machines.DrainDocument
    | machines.EndedJobDocument
    | machines.ImagesDocument
    | machines.ImageSentDocument
    | machines.ControllerDocument
    | machines.ControllerStopDocument
    | machines.ConfigPathDocument
    | machines.SettingDocument
    | machines.DoctorDocument
    | machines.RebuildDocument
    | machines.BindHomeDocument
    | machines.VersionDocument
    | machines.SchemaDocument
)
"""What ``--json`` prints, or an array of it."""


def _by_mark() -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for kind in (*get_args(Document), *get_args(events.Event)):
        (mark,) = get_args(get_type_hints(kind)["schema"])
        found[mark] = (*found.get(mark, ()), kind)
    return found


BY_MARK: Final[Mapping[str, tuple[Any, ...]]] = _by_mark()
"""The types of the documents that carry each mark."""


def name_of(mark: str) -> str:
    """Return what ``fabric schema`` calls the documents of a mark: ``job`` of ``fabric.job/1``."""
    return mark.removeprefix("fabric.").removesuffix("/1")


def documents() -> Iterator[machines.SchemaDocument]:
    """Yield every document that has a schema, the manifest first."""
    yield _listed(MANIFEST, "", "A job's manifest.")
    yield _listed(JOB_FILE, "", _about((files.JobFile,)))
    for mark, kinds in sorted(BY_MARK.items()):
        yield _listed(name_of(mark), mark, EVENTS if mark == EVENT_MARK else _about(kinds))


JOB_FILE: Final = "job.json"
EVENT_MARK: Final = "fabric.event/1"
EVENTS: Final = "A line of a command that follows, and of `fabric run --json`."


def schema(name: str, *, closed: bool = False) -> dict[str, Any]:
    """Return the schema of a document by its name or its mark; ``closed`` refuses keys that it does not have.

    Raises:
        UnknownName: there is no such document.
    """
    if name == MANIFEST:
        from workbench.manifest import schema as manifest_schema

        return manifest_schema()
    if name == JOB_FILE:
        return schema_of([files.JobFile], JOB_FILE, closed=closed)
    known = {name_of(mark): mark for mark in BY_MARK}
    mark = known.get(name, name)
    if mark not in BY_MARK:
        from workbench.manifest.yaml.faults import nearest

        close = nearest(name, [MANIFEST, JOB_FILE, *known])
        hint = f"did you mean {close}?" if close else "`fabric schema --list` lists them"
        raise UnknownName(f"there is no document '{name}'", hint=hint)
    return schema_of(BY_MARK[mark], mark, closed=closed)


def _listed(name: str, mark: str, about: str) -> machines.SchemaDocument:
    return {"schema": "fabric.schema/1", "name": name, "mark": mark, "about": about}


def _about(kinds: tuple[Any, ...]) -> str:
    return inspect.cleandoc(kinds[0].__doc__ or "").partition("\n")[0]

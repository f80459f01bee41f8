"""Documents of backends, of the configuration and of fabric itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from backends.contract.host import Level, Node, Slot
from workbench.documents.values import FieldsOf, Id, Time

SlotEntry = Annotated[dict[str, Any], FieldsOf(Slot, {"free": bool})]
NodeEntry = Annotated[dict[str, Any], FieldsOf(Node, {"slots": list[SlotEntry]})]


class FindingEntry(TypedDict):
    """One line of a report."""

    subject: str
    found: str
    level: Level
    consequence: str
    """What does not work because of it."""
    remedy: str


class BackendDocument(TypedDict):
    """A backend of the configuration: `fabric backend list --json`."""

    schema: Literal["fabric.backend/1"]
    name: str
    type: str
    address: str
    options: dict[str, Any]
    installed: bool


class BackendTestDocument(TypedDict):
    """What `fabric backend test` found."""

    schema: Literal["fabric.backend-test/1"]
    name: str
    usable: bool
    findings: list[FindingEntry]


class InventoryDocument(TypedDict):
    """The machines and GPUs of a backend: `fabric gpus --json`."""

    schema: Literal["fabric.inventory/1"]
    backend: str
    time: Time
    nodes: list[NodeEntry]
    note: str
    """What could not be read."""


class QueuedEntry(TypedDict):
    """One that waits. Of a job of another home only the person, the GPUs and the rank are known."""

    id: Id | None
    name: str | None
    """Of a job of another home null, unless its person shares it."""
    person: str
    gpus: int
    """Of all learners together."""
    priority: int | None
    weight: float | None
    rank: int | None
    """Its place among all who wait for GPUs at the host, from 1 on."""
    of: int | None
    since: Time | None
    """Since when the job waits."""
    reason: str | None
    """What it waits for."""


class QueueDocument(TypedDict):
    """Those that wait at a backend, in the order in which they start: `fabric queue --json`."""

    schema: Literal["fabric.queue/1"]
    backend: str
    host_known: bool
    """Whether the host said who else waits there."""
    trouble: str
    """Why it could not be asked."""
    waiting: list[QueuedEntry]


class RoleDocument(TypedDict):
    """The rights that jobs need in a cluster: `fabric backend role --json`."""

    schema: Literal["fabric.role/1"]
    objects: list[dict[str, Any]]
    """A Role and a RoleBinding of Kubernetes."""


class LingerDocument(TypedDict):
    """What a host keeps of a person's jobs: `fabric backend linger --json`."""

    schema: Literal["fabric.linger/1"]
    name: str
    script: str | None
    """What has that which waits there start with the machine; null where nothing has."""
    unit: str | None
    """The unit of the person's systemd that runs the script; null where they have to run it with the machine."""


class DrainDocument(TypedDict):
    """Whether a host is to be empty soon: `fabric backend drain --json`."""

    schema: Literal["fabric.drain/1"]
    name: str
    drained: bool
    by: str | None
    """The operator who wants that, or root's file."""
    since: Time | None
    may: bool
    """Whether this user is an operator of the host, or root there."""
    unknown_operators: list[str]
    """Accounts and groups that its policy names as operators, and that it does not know."""
    trouble: str
    """Why its policy is not used."""


class EndedJobDocument(TypedDict):
    """The job that an operator of a host has ended: `fabric backend halt --json`."""

    schema: Literal["fabric.ended-job/1"]
    name: str
    """The backend's."""
    job: Id
    attempt: int
    person: str
    """Whose job it is."""


class ImagesDocument(TypedDict):
    """The images that `fabric image load` loaded."""

    schema: Literal["fabric.images/1"]
    images: list[str]


class ImageSentDocument(TypedDict):
    """What `fabric image send` sent."""

    schema: Literal["fabric.image-sent/1"]
    image: str
    backend: str
    layers: int
    sent_layers: int
    sent_bytes: int


class ControllerDocument(TypedDict):
    """The controller: `fabric controller status --json`."""

    schema: Literal["fabric.controller/1"]
    running: bool
    """Whether there is one, which may not answer."""
    answers: bool
    trouble: str | None
    """Why it does nothing, cannot write down what happens or repair the home; null where all is well."""
    pid: int | None
    version: str | None
    open_jobs: int
    home: str
    log: str


class ControllerStopDocument(TypedDict):
    """What `fabric controller stop` did."""

    schema: Literal["fabric.controller-stop/1"]
    stopped: bool
    """False where none ran."""


class ConfigFileEntry(TypedDict):
    """A configuration file."""

    file: str
    there: bool


class ConfigPathDocument(TypedDict):
    """The files of the configuration: `fabric config path --json`."""

    schema: Literal["fabric.config-path/1"]
    project: ConfigFileEntry
    user: ConfigFileEntry
    template_folders: list[str]
    templates: dict[str, str]
    """The file of each template."""


SettingDocument = TypedDict(
    "SettingDocument",
    {"schema": Literal["fabric.setting/1"], "key": str, "value": Any, "from": str},
)
SettingDocument.__doc__ = (
    "A value of the configuration: `fabric config list --json` and `fabric config get --json`."
)


class DoctorDocument(TypedDict):
    """What `fabric doctor` found."""

    schema: Literal["fabric.doctor/1"]
    well: bool
    findings: list[FindingEntry]


class RebuildDocument(TypedDict):
    """What `fabric doctor --rebuild` restored."""

    schema: Literal["fabric.rebuild/1"]
    jobs: int
    events: int
    deleted: int
    open_jobs: int
    problems: list[str]
    """What could not be restored."""
    old_database: str | None
    """Where the old database is kept."""


class BindHomeDocument(TypedDict):
    """What `fabric doctor --bind-home` did."""

    schema: Literal["fabric.bind-home/1"]
    home: str
    uuid: str
    was: str
    """What the folder was until now: `home`, `moved`, `copy`."""
    before: str | None
    """The path that the home was bound to, where it is another."""
    open_jobs: int
    link: str | None
    """The old path, where a link was put that leads to the new one."""
    trouble: str
    """Why none could be put there, where jobs need one."""


class VersionDocument(TypedDict):
    """The version of fabric, of its Python and of the system: `fabric version --json`."""

    schema: Literal["fabric.version/1"]
    version: str
    python: str
    interpreter: str
    system: str


class SchemaDocument(TypedDict):
    """A document that has a schema: `fabric schema --list --json`."""

    schema: Literal["fabric.schema/1"]
    name: str
    """What `fabric schema` takes."""
    mark: str
    """What the document carries as `schema`; empty for the manifest and files, which carry none."""
    about: str

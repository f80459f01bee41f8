"""The keys of ``framework``: the image and the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workbench.manifest.keys.containers import Key, KeyTable, MapOf
from workbench.manifest.keys.kinds import MultilineText, NameChoice, OneOf, Script, Text
from workbench.manifest.keys.scalars import TruthValue
from workbench.manifest.yaml.nodes import MapNode, Node
from workbench.spec import FRAMEWORKS, ImageBuild

OLDER_FRAMEWORKS: Final = {"tensorflow-gpu": "tensorflow", "caffe-gpu": "caffe"}
"""Names that FfDL's first manifests used; the tag decides whether the image supports GPUs."""

FORMER_FRAMEWORKS: Final = {
    "keras": "write name: tensorflow; its images hold Keras or can install it",
    "tf": "write name: tensorflow",
    "torch": "write name: pytorch",
    "h2o": "write name: h2o3",
}
"""Names from habit, and what to write."""

IMAGE_LOCATION: Final = KeyTable(
    Key(
        "registry",
        Text("a host name"),
        "Host of the image registry.",
        ours=False,
        example="registry.example.com",
    ),
    Key("namespace", Text(), "Namespace in the registry.", ours=False, example="team"),
    Key(
        "username",
        Text("a user name", length_max=1_000),
        "User of the registry. `${NAME}` is a secret as below.",
        default="`token`, where there is an `access_token`",
        example="me",
    ),
    Key(
        "password",
        Text("a password", length_max=10_000),
        "Password of the user. `${NAME}` is a secret of your environment, `secrets.toml` or keyring. It is kept"
        " out of every record and log.",
        example="${REGISTRY_PASSWORD}",
    ),
    Key(
        "access_token",
        Text("a token", length_max=10_000),
        "Token for the registry, in place of a password. It is kept out of every record and log.",
        ours=False,
        example="abc123",
    ),
    Key(
        "auth",
        Text("base64 of USER:PASSWORD", length_max=20_000),
        "User and password as Docker's configuration has them, in place of both. It is kept out of every record"
        " and log.",
        example="${REGISTRY_AUTH}",
    ),
    Key(
        "identity_token",
        Text("a token", length_max=20_000),
        "Token that the registry's own server takes for a login, in place of a password. Not in a cluster. It is"
        " kept out of every record and log.",
        spellings=("identitytoken",),
        example="${IDENTITY_TOKEN}",
    ),
    Key(
        "registry_token",
        Text("a token", length_max=20_000),
        "Token that is sent to the registry as it is, in place of a login. Not in a cluster, nor with podman. It"
        " is kept out of every record and log.",
        spellings=("registrytoken",),
        example="${REGISTRY_TOKEN}",
    ),
    Key("email", Text(), "Address that belongs to the token.", ours=False, example="me@example.com"),
    what="image_location",
    elsewhere={"user_name": "write username:", "user": "write username:", "token": "write access_token:"},
)

FRAMEWORK: Final = KeyTable(
    Key(
        "name",
        NameChoice(FRAMEWORKS, former=FORMER_FRAMEWORKS, older=OLDER_FRAMEWORKS, ignore_case=True),
        "Which image repository is used where learners run in containers. `custom` takes `version` as a"
        " whole image reference. `horovod` and `pytorchmpi` start the command under MPI.",
        default="custom",
        example="tensorflow",
        ours=False,
        hint="custom takes any image as its version",
    ),
    Key(
        "version",
        Text("an image tag, or for the framework custom a whole image reference", pattern=r"\S+|<.*>"),
        "Tag of the image, kept as written (`1.10` is not `1.1`); for `custom` the whole reference. Not"
        " used where learners are plain processes.",
        default="none",
        example='"1.5.0-py3"',
        ours=False,
    ),
    Key(
        "command",
        Script(),
        "What each learner runs, by `bash` where there is one and `sh` else, in the folder of the code."
        " Newlines of plain and folded (`>`) text are blanks, so a long command can be indented; a literal"
        " block (`|`) is a script.",
        example="python train.py --lr ${params.lr}",
        required=True,
        ours=False,
    ),
    Key(
        "image_tag",
        Text(pattern=r"\S+"),
        "Tag that is used instead of `version`.",
        default="`version`",
        spellings=("imagetag",),
        example="nightly",
        ours=False,
    ),
    Key(
        "image_location",
        IMAGE_LOCATION,
        "The registry of the image, and the login to it: of this job alone, before those of `docker login`.",
        default="none",
        spellings=("imagelocation",),
        ours=False,
    ),
    what="framework",
    instead="write framework: with name, version and command below it",
    elsewhere={
        "image": "write name: custom and version: the image",
        "type": "did you mean name?",
        "args": "write the arguments into command",
        "env": "env stands at the top of a manifest",
    },
)


_FILE: Final = r"(?!/)(?!.*(^|/)\.\.(/|$)).*\S"


def _is_map(node: Node) -> int:
    return int(isinstance(node, MapNode))


IMAGE_BUILD: Final = OneOf(
    "the name of a Dockerfile, or a map of dockerfile, args and target",
    (
        Text("the name of a Dockerfile in the code", pattern=_FILE),
        KeyTable(
            Key(
                "dockerfile",
                Text("the name of a file in the code", pattern=_FILE),
                "The Dockerfile, relative to the code.",
                default="Dockerfile",
                example="docker/Dockerfile",
            ),
            Key(
                "args",
                MapOf(
                    MultilineText(),
                    "a map of build arguments, such as {CUDA: 12}",
                    key_pattern=r"[A-Za-z_][A-Za-z0-9_]*",
                    key_expected="letters, digits and underscores",
                ),
                "Build arguments, `ARG` in the Dockerfile.",
                default="none",
                example='{CUDA: "12"}',
            ),
            Key(
                "target",
                Text("the name of a stage"),
                "Which stage of the Dockerfile, where there are several.",
                default="the last one",
                example="train",
            ),
            what="build",
        ),
    ),
    _is_map,
)


BIND_MOUNT: Final = KeyTable(
    Key(
        "host_path",
        Text("an absolute path", pattern=r"/.*"),
        "The folder or file of the machine that the job runs on.",
        required=True,
        example="/data/imagenet",
    ),
    Key(
        "container_path",
        Text("a path without ..", pattern=r"(?!\.?$)(?!/*$)(?!(.*/)?\.\.(/|$)).+"),
        "Where the command finds it; a relative path is in the folder of the code.",
        required=True,
        example="/data",
    ),
    Key(
        "read_only", TruthValue(), "Whether the command may not write to it.", default="false", example="true"
    ),
    Key(
        "propagation",
        NameChoice(("private", "rprivate", "shared", "rshared", "slave", "rslave")),
        "How mounts that are made below it later are seen on the other side.",
        default="rprivate",
        example="rslave",
    ),
    what="a bind mount",
    instead="write such as {host_path: /data, container_path: /data}",
    elsewhere={
        "source": "write host_path:",
        "target": "write container_path:",
        "readonly": "write read_only:",
    },
)


def image_build_of(value: str | Mapping[str, Any] | None) -> ImageBuild | None:
    """Return what a manifest says of its image's build."""
    if value is None:
        return None
    return ImageBuild(dockerfile=value) if isinstance(value, str) else ImageBuild(**value)

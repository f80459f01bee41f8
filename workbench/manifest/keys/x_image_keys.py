"""What ``build:`` may say: how a container's image is made of the code before the job starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from workbench.manifest.keys.containers import Key, MapOf, Table
from workbench.manifest.keys.kinds import OneOf, Passage, Text
from workbench.manifest.yaml.nodes import Map, Node
from workbench.spec import ImageBuild

_FILE: Final = r"(?!/)(?!.*(^|/)\.\.(/|$)).*\S"


def _is_map(node: Node) -> int:
    return int(isinstance(node, Map))


IMAGE_BUILD: Final = OneOf(
    "the name of a Dockerfile, or a map of dockerfile, args and target",
    (
        Text("the name of a Dockerfile in the code", pattern=_FILE),
        Table(
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
                    Passage(),
                    "a map of build arguments, such as {CUDA: 12}",
                    key_pattern=r"[A-Za-z_][A-Za-z0-9_]*",
                    key_words="letters, digits and underscores",
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


def image_build_of(value: str | Mapping[str, Any] | None) -> ImageBuild | None:
    """Return what a manifest says of its image's build."""
    if value is None:
        return None
    return ImageBuild(dockerfile=value) if isinstance(value, str) else ImageBuild(**value)

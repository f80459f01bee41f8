"""The keys of ``evaluation_metrics``: FfDL's collectors, their synonyms and both of their spellings."""

from __future__ import annotations

from typing import Any, Final

from workbench.manifest.keys.containers import Key, KeyTable, ListOf, MapOf
from workbench.manifest.keys.kinds import MultilineText, NameChoice, Text, ValueKind
from workbench.manifest.keys.scalars import WholeNumber
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import Node, ScalarNode

COLLECTORS: Final = {
    "auto": (),
    "plain": ("none", "nil", "null", "logger", ""),
    "tensorboard": ("tensorboard_extractor",),
    "regex_extractor": (),
    "emetrics_file": ("file", "optivist"),
}
"""FfDL's collectors and the other names that it knew them by."""

PRESET_NAMES: Final = ("caffe", "keras", "lightning", "huggingface", "tqdm")
"""Sets of expressions for what well-known tools print, for ``regex_extractor``."""

EVENT_TYPES: Final = (
    "scalars",
    "images",
    "distributions",
    "histograms",
    "audio",
    "tensors",
    "graph",
    "meta_graph",
    "run_metadata",
)

LINE_LOOKAHEAD: Final = 4


class CollectorName(ValueKind):
    """A collector of ours by any of its names, or one that an installed package offers."""

    expected = "one of " + ", ".join((*COLLECTORS, *PRESET_NAMES)) + ", or an installed collector's name"

    def read(self, node: Node, path: str, findings: Findings) -> str | None:
        """Return the collector's own name."""
        known = {text: name for name, synonyms in COLLECTORS.items() for text in (name, *synonyms)}
        text = node.text.strip() if isinstance(node, ScalarNode) else None
        if text is None:
            self.wrong(node, path, findings)
        elif text in known:
            return known[text]
        elif text in PRESET_NAMES or text in (others := _installed()):
            return text
        else:
            close = nearest(text, [*known, *PRESET_NAMES, *others])
            self.wrong(node, path, findings, f"did you mean {close}?" if close else "")
        return None

    def schema(self) -> dict[str, Any]:
        """A text; the names that are always there are examples."""
        return {"type": "string", "examples": [*COLLECTORS, *PRESET_NAMES]}


def _installed() -> list[str]:
    # Costs 30 ms to import and is needed only for a name that is none of ours.
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group="fabric.collectors")})


TYPED_VALUE: Final = KeyTable(
    Key(
        "type",
        NameChoice(("STRING", "JSONSTRING", "INT", "FLOAT")),
        "What the text is read as.",
        required=True,
        ours=False,
        example="FLOAT",
    ),
    Key(
        "value",
        MultilineText(),
        "`$name` of a part that the expression bound, or a literal.",
        required=True,
        ours=False,
        example="$loss",
    ),
    what="a typed value",
    instead="write {type: FLOAT, value: $name}",
)

META: Final = KeyTable(
    Key(
        "time",
        Text(),
        "`$name` of the part that holds the time.",
        default="when it was read",
        ours=False,
        example="$stamp",
    ),
    Key(
        "subid",
        Text(),
        "Name of the sub-series.",
        default="the log's sub-folder",
        ours=False,
        example="worker",
    ),
    what="meta",
)

_VALUES: Final = MapOf(TYPED_VALUE, "a map of names and typed values")

GROUP: Final = KeyTable(
    Key(
        "regex",
        MultilineText(),
        "Python regular expression with `%{MACRO:name}` and `%{MACRO}`: GLOG_STAMP, TIMESTAMP, FLOAT, INT,"
        " INT_ANY, HEX. It is tried at the start of each window of `line_lookahead` lines.",
        required=True,
        ours=False,
        example='"loss %{FLOAT:loss}"',
    ),
    Key("meta", META, "Time and sub-series of a hit.", default="none", ours=False),
    Key("scalars", _VALUES, "What is measured.", default="none", ours=False, spellings=("values",)),
    Key("etimes", _VALUES, "When in training it was measured: epoch, iteration.", default="none", ours=False),
    what="a group",
)

EVALUATION_METRICS: Final = KeyTable(
    Key(
        "type",
        CollectorName(),
        "Which collector: `auto` (files that libraries write, and printed numbers that come again), `plain` (lines"
        " only; also none, nil, null, logger), `tensorboard` (event files;"
        " also tensorboard_extractor), `regex_extractor` (lines), `emetrics_file` (JSON lines; also file,"
        " optivist), a preset of expressions for what a tool prints (`caffe`, `keras`, `lightning`, `huggingface`,"
        " `tqdm`), or the name of an installed one.",
        default="plain",
        ours=False,
        example="tensorboard",
    ),
    Key(
        "in",
        Text("a file or folder"),
        "Which file or folder; variables are expanded. `logs/training-log.txt` is the learner's own output.",
        default="the collector's: `LOG_DIR`, or the learner's output",
        ours=False,
        example='"$JOB_STATE_DIR/logs/tb"',
    ),
    Key(
        "line_lookahead",
        WholeNumber(0, 1000),
        "`regex_extractor`: lines that an expression may span. 0 is the default.",
        default=str(LINE_LOOKAHEAD),
        ours=False,
        spellings=("linelookahead",),
        example="4",
    ),
    Key(
        "event_types",
        ListOf(Text("the name of an event type"), "a list of event types", one_is_enough=True),
        "`tensorboard`: which kinds of events. Scalars are read; others are counted and named.",
        default="[scalars]",
        ours=False,
        spellings=("eventTypes", "eventtypes"),
        example="[scalars]",
    ),
    Key(
        "groups",
        MapOf(GROUP, "a map of groups by name"),
        "`regex_extractor`: named expressions, tried in this order.",
        default="none",
        ours=False,
    ),
    Key(
        "image_tag",
        Text(),
        "Tag of FfDL's collector image. Collectors are part of fabric, so it has no effect, and a warning"
        " says so.",
        default="none",
        ours=False,
        spellings=("imagetag",),
        example="latest",
    ),
    what="evaluation_metrics",
    elsewhere={"regex": "it belongs under groups: and a name", "path": "write in:", "file": "write in:"},
)

"""Kinds of values that a key may hold: each reads a node into a value or notes a fault, and has a JSON schema.

One table of keys made of these (``workbench.manifest.keys.root``) validates, is the JSON schema and is the
documentation.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import ListNode, MapNode, Node, ScalarNode, describe_node

TEXT_BYTES_MAX: Final = 100_000
"""Linux gives a process no argument or variable above 131,072 bytes, and a command becomes both."""

_CONTROL_OR_BREAK: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TURNED: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Controls of the direction of writing: with them a text is shown in another order than it is run."""


class ValueKind(ABC):
    """A kind of value."""

    expected: str
    """A phrase that completes "write ...", such as ``a whole number from 0 to 8``."""

    @abstractmethod
    def read(self, node: Node, path: str, findings: Findings) -> Any:  # each kind has its own value
        """Return the value, or None when it is at fault and that is noted."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return its JSON schema."""

    def canonical(self, node: Node, path: str, findings: Findings) -> Node:
        """Return the node with every key by its one name; unknown ones are noted and left out."""
        return node

    def below(self, part: str) -> tuple[str, ValueKind] | None:
        """Return canonical name and kind of what is under a key or an index; None when nothing can be."""
        return None

    def wrong(self, node: Node, path: str, findings: Findings, hint: str = "") -> None:
        """Note that something else was found."""
        findings.fault(node.location, path, f"found {describe_node(node)}; write {self.expected}", hint)


class Text(ValueKind):
    """A text in one line; any scalar serves, as it is written, so ``1.10`` stays ``1.10``."""

    def __init__(
        self,
        expected: str = "a text",
        *,
        pattern: str = "",
        length_max: int = 1000,
        examples: tuple[str, ...] = (),
    ) -> None:
        self.expected = expected
        self.examples = examples
        self._pattern = pattern
        self._compiled = re.compile(pattern) if pattern else None
        self._length_max = length_max

    def read(self, node: Node, path: str, findings: Findings) -> str | None:
        """Return the text without blanks around it."""
        if not isinstance(node, ScalarNode) or node.is_null:
            self.wrong(node, path, findings)
            return None
        text = node.text.strip()
        if _is_turned(node, path, findings):
            return None
        if found := _CONTROL_OR_BREAK.search(text):
            findings.fault(
                node.location,
                path,
                f"holds the control character {found[0]!r}; write {self.expected} in one line",
            )
        elif len(text) > self._length_max:
            findings.fault(
                node.location, path, f"is {len(text)} characters long; at most {self._length_max} are allowed"
            )
        elif self._compiled and not self._compiled.fullmatch(text):
            self.wrong(node, path, findings)
            return None
        else:
            return text
        return None

    def schema(self) -> dict[str, Any]:
        """Any scalar, since a bare ``1.10`` is a number to an editor; texts fit the pattern."""
        pattern = {"pattern": f"^(?:{self._pattern})$"} if self._pattern else {}
        examples = {"examples": list(self.examples)} if self.examples else {}
        return {"type": ["string", "number", "boolean"], **pattern, **examples}


def _is_turned(node: ScalarNode, path: str, findings: Findings) -> bool:
    """Note a character that turns the direction of the text around it."""
    found = _TURNED.search(node.text)
    if found:
        problem = (
            f"holds U+{ord(found[0]):04X}, which changes the direction of the text around it; leave it out"
        )
        findings.fault(node.location, path, problem)
    return found is not None


class Script(ValueKind):
    """Shell text: newlines of plain and folded scalars become blanks, those of literal blocks stay."""

    expected = "shell text"

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self._may_be_empty = may_be_empty

    def read(self, node: Node, path: str, findings: Findings) -> str | None:
        """Return the command as it is to be run."""
        if not isinstance(node, ScalarNode):
            self.wrong(node, path, findings)
            return None
        text = node.text
        if not text.strip() and not self._may_be_empty:
            findings.fault(node.location, path, f"is empty; write {self.expected}")
            return None
        if "\x00" in text:
            findings.fault(node.location, path, "holds a NUL character, which no shell takes")
            return None
        if _is_turned(node, path, findings):
            return None
        size = len(text.encode(errors="surrogatepass"))
        if size > TEXT_BYTES_MAX:
            findings.fault(
                node.location,
                path,
                f"is {size} bytes long; at most {TEXT_BYTES_MAX} are allowed",
                "put it in a script file of your code and run that",
            )
            return None
        return as_command(node)

    def schema(self) -> dict[str, Any]:
        """A text."""
        return {"type": "string"}


def as_command(node: ScalarNode) -> str:
    """Return shell text with the newlines that are meant.

    FfDL made a blank of every newline, so ``command: >`` with indented lines, which keep their newlines in
    YAML, runs as one command. Only where a newline was asked for, in a literal block or as an escape, it is
    one.
    """
    if node.style in ("literal", "double"):
        return node.text.strip("\n") if node.text.strip() else ""
    return " ".join(part.strip() for part in node.text.split("\n") if part.strip())


class MultilineText(ValueKind):
    """A text of any number of lines, exactly as it is: a variable, a regular expression, a description."""

    expected = "a text"

    def read(self, node: Node, path: str, findings: Findings) -> str | None:
        """Return the text; null is an empty one."""
        if not isinstance(node, ScalarNode):
            self.wrong(node, path, findings)
            return None
        text = "" if node.is_null else node.text
        if "\x00" in text:
            findings.fault(node.location, path, "holds a NUL character, which no program takes")
            return None
        if _is_turned(node, path, findings):
            return None
        if len(text.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
            findings.fault(node.location, path, f"is longer than the {TEXT_BYTES_MAX} bytes that are allowed")
            return None
        return text

    def schema(self) -> dict[str, Any]:
        """Any scalar."""
        return {"type": ["string", "number", "boolean", "null"]}


class NameChoice(ValueKind):
    """One of some names, each with its synonyms."""

    def __init__(
        self,
        names: Mapping[str, tuple[str, ...]] | tuple[str, ...],
        *,
        former: Mapping[str, str] | None = None,
        older: Mapping[str, str] | None = None,
        ignore_case: bool = False,
    ) -> None:
        listed = names if isinstance(names, Mapping) else dict.fromkeys(names, ())
        self.names = tuple(listed)
        self._former = former or {}
        self._older = older or {}
        self._fold: Callable[[str], str] = str.lower if ignore_case else str
        self.known = {
            self._fold(text): name for name, synonyms in listed.items() for text in (name, *synonyms)
        }
        self.expected = "one of " + ", ".join(self.names)

    def read(self, node: Node, path: str, findings: Findings) -> str | None:
        """Return the name itself, whichever synonym was written."""
        if not isinstance(node, ScalarNode):
            self.wrong(node, path, findings)
            return None
        text = self._fold(node.text.strip())
        if text in self.known:
            return self.known[text]
        if text in self._older:
            name = self._older[text]
            findings.warn(node.location, path, f"{text} is an older name of {name} and is read as that")
            return name
        if text in self._former:
            self.wrong(node, path, findings, self._former[text])
            return None
        close = nearest(text, self.known)
        self.wrong(node, path, findings, f"did you mean {close}?" if close else "")
        return None

    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return {"type": "string", "enum": list(self.known)}


class OneOf(ValueKind):
    """One of some kinds; ``pick`` chooses by the node, so that the faults are those of one kind."""

    def __init__(self, expected: str, kinds: tuple[ValueKind, ...], pick: Callable[[Node], int]) -> None:
        self.expected = expected
        self.kinds = kinds
        self._pick = pick

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        """Read by the kind that was picked."""
        return self.kinds[self._pick(node)].read(node, path, findings)

    def canonical(self, node: Node, path: str, findings: Findings) -> Node:
        """Return the node with canonical keys, by the kind that was picked."""
        return self.kinds[self._pick(node)].canonical(node, path, findings)

    def below(self, part: str) -> tuple[str, ValueKind] | None:
        """Return what the first kind that can hold it has below it."""
        return next((found for kind in self.kinds if (found := kind.below(part))), None)

    def schema(self) -> dict[str, Any]:
        """Any of them."""
        return {"anyOf": [kind.schema() for kind in self.kinds]}


def is_list(node: Node) -> int:
    """Pick the second kind for lists."""
    return int(isinstance(node, ListNode))


def is_map(node: Node) -> int:
    """Pick the second kind for maps."""
    return int(isinstance(node, MapNode))


def is_number(node: Node) -> int:
    """Pick the second kind for numbers."""
    value = node.value if isinstance(node, ScalarNode) else None
    return int(isinstance(value, (int, float)) and not isinstance(value, bool))

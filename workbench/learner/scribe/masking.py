"""Overwrites secret values by as many ``*``: as they are, in base64, URL-encoded and as JSON writes them.

Values of fewer than :data:`SHORTEST` bytes are not masked: they would blot out ordinary output.
"""

from __future__ import annotations

from workbench.learner.texts import clean

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

SHORTEST = 8
"""Bytes that a value needs to be masked."""
DATA_SECRETS_VARIABLE = "DET_DATA_SECRETS"
"""As determined_jobs has it, whose import each learner's start would wait for."""


def texts_to_mask(values: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Return what is to be overwritten, of the values of a file of secrets and of the learner's own variables.

    Of these it is the key by which processes of a trial in several pods know one another.
    """
    from workbench.learner.stores.config import REMOTES, credentials_of

    # As determined_jobs has it, too.
    key = environment.get("FABRIC_PEER_KEY")
    given = secret_texts({name: value for name, value in values.items() if name != REMOTES})
    given += credentials_of(values)
    return [*given, key] if key else given


def secret_texts(values: Mapping[str, str]) -> list[str]:
    """Return what of the values of secrets, by their names, is to be overwritten wherever it stands.

    That is each value, and what the secrets of an experiment's data hold, where it is long enough to be masked.
    """
    within = [text for _, text in values_of_data_secrets(values.get(DATA_SECRETS_VARIABLE, ""))]
    return [*values.values(), *(text for text in within if len(_raw(text)) >= SHORTEST)]


def values_of_data_secrets(text: str) -> list[tuple[str, str]]:
    """Return each text and number in the secrets of an experiment's data, which are JSON, with its dotted path."""
    if not text:
        return []
    import json

    try:
        waiting: list[tuple[str, Any]] = [("data.secrets", json.loads(text, parse_int=str))]
    except (ValueError, RecursionError):
        return []  # the code cannot read it either
    found = []
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, (dict, list)):
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [("%s.%s" % (path, name), item) for name, item in reversed(items)]
        elif isinstance(value, (str, float)) and value != "":
            found.append((path, str(value)))
    return found


class Mask:
    """Finds the forms of some secret values in bytes; false when there is nothing to look for."""

    __slots__ = ("_patterns",)

    def __init__(self, values: Iterable[str]) -> None:
        patterns: set[bytes] = set()
        for value in values:
            # A value that came from a file often ends with a newline that is not printed with it.
            for text in {value, value.strip()}:
                raw = _raw(text)
                if len(raw) >= SHORTEST:
                    patterns |= _forms(raw)
        self._patterns = sorted(patterns, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Return where secrets are, as ranges in order that neither touch nor overlap."""
        found = []
        for pattern in self._patterns:
            at = data.find(pattern)
            while at >= 0:
                found.append((at, at + len(pattern)))
                at = data.find(pattern, at + 1)
        return _merged(found)

    @property
    def longest(self) -> int:
        """How many bytes the longest form of a secret has."""
        return len(self._patterns[0]) if self._patterns else 0

    def rest(self, data: bytes, cut: int) -> tuple[int, int] | None:
        """Return where the rest of a secret is whose bytes before ``cut`` are overwritten already; None without one."""
        stars = cut - len(data[:cut].rstrip(b"*"))
        end = cut
        for pattern in self._patterns:
            for overwritten in range(1, min(stars, len(pattern) - 1) + 1):
                left = pattern[overwritten:]
                if left.strip() and data.startswith(left, cut):
                    end = max(end, cut + len(left))
        if end == cut:
            return None
        # Another secret may begin in what is left, and is found only as long as that is there.
        found = [span for span in self.spans(data) if span[0] >= cut]
        return _merged([(cut, end), *found])[0]

    def settled(self, data: bytes, spans: list[tuple[int, int]]) -> int:
        """Return how many of the first bytes can be published now, whatever comes after them.

        Held back is only a tail that is the beginning of a secret, with all of a secret that reaches into it.
        """
        settled = min((_begun(data, pattern) for pattern in self._patterns), default=len(data))
        for start, end in reversed(spans):
            if start < settled < end:
                settled = start
        return settled

    def text(self, text: str) -> str:
        """Return a text with its secrets overwritten."""
        return self.data(_raw(text)).decode("utf-8", "surrogateescape")

    def data(self, data: bytes) -> bytes:
        """Return bytes with their secrets overwritten."""
        spans = self.spans(data)
        if not spans:
            return data
        masked = bytearray(data)
        for start, end in spans:
            masked[start:end] = b"*" * (end - start)
        return bytes(masked)

    def value(self, value: Any) -> Any:  # JSON has no narrower type
        """Return a JSON value with the secrets in its texts, keys included, overwritten."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return value


def _raw(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return clean(text).encode()  # half of a pair that is no byte of a file name either


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _begun(data: bytes, pattern: bytes) -> int:
    """Return from where on the data ends with a beginning of the pattern; its length when it does not."""
    at = data.find(pattern[:1], max(0, len(data) - len(pattern) + 1))
    while at >= 0:
        if pattern.startswith(data[at:]):
            return at
        at = data.find(pattern[:1], at + 1)
    return len(data)


def _forms(raw: bytes) -> set[bytes]:
    import json
    from base64 import b64encode, urlsafe_b64encode
    from urllib.parse import quote_from_bytes

    forms = {raw}
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            encoded = encode(b"\0" * before + raw)
            # Only the characters that depend on nothing but the secret: 6 bits each.
            first = (before * 8 + 5) // 6
            forms.add(encoded[first : (before + len(raw)) * 8 // 6])
    for safe in ("", "/"):
        quoted = quote_from_bytes(raw, safe=safe)
        for text in (quoted, quoted.replace("%20", "+")):
            forms.add(text.encode())
            forms.add(_lower_escapes(text).encode())
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return forms
    for ascii_only in (True, False):
        forms.add(json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode())
    return forms


def _lower_escapes(quoted: str) -> str:
    parts = quoted.split("%")
    return parts[0] + "".join("%" + part[:2].lower() + part[2:] for part in parts[1:])

"""FfDL's sliding window: matches a few lines of a stream at a time against each group.

Windows of one line, two lines and so on up to ``line_lookahead`` begin at each line. Each is tried against the
groups in their order; the first match wins, and the next window begins behind it. The result depends on the lines
alone, not on how they are cut when they arrive.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Match, NamedTuple, Pattern, Sequence

from workbench.learner.collectors.regex.watchdog import TooSlow, Watchdog


class CompiledRule(NamedTuple):
    """One group's regular expression, with the filters that spare matching it."""

    name: str
    regex: Pattern[str]
    required: str
    """A text that every match holds; empty when none is known."""
    opening: Any
    """A pattern of the lines that a match could begin with; None when any line could."""


class RuleMatch(NamedTuple):
    """A match, and the range of the stream that its window covers."""

    rule: int
    match: Match[str]
    begin: int
    """Offset of the window's first line."""
    end: int
    """Offset behind its last line."""
    time_us: int


class _Line(NamedTuple):
    text: str
    begin: int
    end: int
    time_us: int
    may_hold: int
    """One bit a rule: whether its required text is in this line."""


class Windows:
    """The window over one stream of lines."""

    def __init__(self, rules: Sequence[CompiledRule], lookahead: int, offset: int) -> None:
        self._rules = list(enumerate(rules))
        self._lookahead = lookahead
        self._lines: List[_Line] = []
        self._tried = 0
        """The length in lines of the largest window that was tried at the first line."""
        self._open = 0
        """One bit a rule: whether a match could begin with the first line."""
        self._usable = (1 << len(rules)) - 1
        self._closable = any(rule.opening is not None for rule in rules)
        self._past = offset
        self.slow: List[str] = []
        """Names of the rules that took too long and are not used any more, in this order."""

    @property
    def offset(self) -> int:
        """The offset of the first line that may still become part of a match."""
        return self._lines[0].begin if self._lines else self._past

    def push(self, text: str, end: int, time_us: int, dog: Watchdog) -> Sequence[RuleMatch]:
        """Take the next line (with its newline); return the matches that no later line can change."""
        may_hold = self._usable
        for index, rule in self._rules:
            if rule.required and rule.required not in text:
                may_hold &= ~(1 << index)
        line = _Line(text, self._past, end, time_us, may_hold)
        self._past = end
        if not self._lines and not self._could_begin(text, self._usable, dog):
            return ()
        self._lines.append(line)
        return list(self._decide(dog))

    def finish(self, dog: Watchdog) -> Sequence[RuleMatch]:
        """Return the matches among the last lines: no more lines will come."""
        hits: List[RuleMatch] = []
        while self._lines:
            hits.extend(self._decide(dog))
            if self._lines:
                self._drop(1)
        return hits

    def _decide(self, dog: Watchdog) -> Iterator[RuleMatch]:
        """Yield matches: try the windows at the first line until one matches or none can; then those at the next."""
        while self._lines:
            if self._tried == 0:
                self._open = self._could_begin(self._lines[0].text, self._usable, dog)
            while self._open and self._tried < min(len(self._lines), self._lookahead):
                self._tried += 1
                hit = self._try(self._lines[: self._tried], dog)
                if hit is not None:
                    self._drop(self._tried)
                    yield hit
                    break
            else:
                if self._open and self._tried < self._lookahead:
                    return  # the lines to come may complete a match
                self._drop(1)

    def _drop(self, count: int) -> None:
        del self._lines[:count]
        self._tried = 0

    def _try(self, lines: List[_Line], dog: Watchdog) -> Any:
        may_hold = 0
        for line in lines:
            may_hold |= line.may_hold
        may_hold &= self._open & self._usable
        narrows = self._closable and 1 < len(lines) < self._lookahead
        if not may_hold and not narrows:
            return None
        text = lines[0].text if len(lines) == 1 else "".join([line.text for line in lines])
        for index, rule in self._rules:
            if may_hold >> index & 1:
                match = self._match(index, rule.regex, text, dog)
                if match is not None:
                    return RuleMatch(index, match, lines[0].begin, lines[-1].end, lines[-1].time_us)
        if narrows:
            self._open = self._could_begin(text, self._open, dog)
        return None

    def _could_begin(self, text: str, rules: int, dog: Watchdog) -> int:
        """Return the bits of those ``rules`` of which a match could begin with this text."""
        found = 0
        for index, rule in self._rules:
            bit = 1 << index
            if rules & bit and (
                rule.opening is None or self._match(index, rule.opening, text, dog) is not None
            ):
                found |= bit
        return found & self._usable

    def _match(self, index: int, regex: Pattern[str], text: str, dog: Watchdog) -> Any:
        try:
            return dog.guarded(regex.match, text)
        except TooSlow:
            self._usable &= ~(1 << index)
            self.slow.append(self._rules[index][1].name)
            return None

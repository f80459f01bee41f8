"""Ratchets on how tests wait: through `tests/support/waiting.py` and by no clock of their own; only tightened."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
ELSEWHERE = ("support/waiting.py", "bench/")
CLOCKS = {("time", name) for name in ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")}
SLEEPS = {("time", "sleep"), ("asyncio", "sleep")}
MAY_WAIT = re.compile(r"\btime\.(?:monotonic|perf_counter)|\.sleep\(|\btimeout=[^a-zN]")
"""What is in the text of a module that waits by itself: to parse all of them takes seconds."""
LOOKS_AT_THE_CLOCK = 72
FIXED_LIMITS = 13
SLEEPING = 28


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def kinds(call: ast.Call) -> Iterator[str]:
    """Say in which ways a call waits by itself."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        name = (call.func.value.id, call.func.attr)
        if name in CLOCKS:
            yield "looks at the clock"
        if name in SLEEPS:
            yield "sleeps"
    if any(
        word.arg == "timeout" and isinstance(word.value, ast.Constant) and word.value.value
        for word in call.keywords
    ):
        yield "has a fixed limit"


def found() -> dict[str, Counter[str]]:
    """Count by kind, and by module."""
    count: dict[str, Counter[str]] = {}
    for file in sorted(TESTS.rglob("*.py")):
        module = file.relative_to(TESTS).as_posix()
        if not module.startswith(ELSEWHERE):
            text = file.read_text()
            for call in calls(ast.parse(text)) if MAY_WAIT.search(text) else ():
                for kind in kinds(call):
                    count.setdefault(kind, Counter())[module] += 1
    return count


def test_tests_wait_through_one_module() -> None:
    count = found()

    assert count["looks at the clock"].total() == LOOKS_AT_THE_CLOCK, count["looks at the clock"]
    assert count["has a fixed limit"].total() == FIXED_LIMITS, count["has a fixed limit"]
    assert count["sleeps"].total() == SLEEPING, count["sleeps"]


def test_each_way_to_wait_is_seen() -> None:
    tree = ast.parse(
        "time.sleep(1); time.monotonic(); process.wait(timeout=5); process.wait(timeout=patience(5))"
    )

    assert Counter(kind for call in calls(tree) for kind in kinds(call)) == {
        "sleeps": 1,
        "looks at the clock": 1,
        "has a fixed limit": 1,
    }

"""Values: dataclasses like any other, whose methods are made when they are first used."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar, cast

import pytest

from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A frozen one with everything that a field may ask for."""

    kind: ClassVar[str] = "point"
    x: int
    y: float = 0.5
    names: tuple[str, ...] = ()
    more: dict[str, int] = field(default_factory=dict, compare=False)
    length: float = field(init=False, default=0.0, repr=False)
    told: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", abs(self.x) + abs(self.y))


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """The same, made by the standard library."""

    kind: ClassVar[str] = "point"
    x: int
    y: float = 0.5
    names: tuple[str, ...] = ()
    more: dict[str, int] = field(default_factory=dict, compare=False)
    length: float = field(init=False, default=0.0, repr=False)
    told: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", abs(self.x) + abs(self.y))


@dataclass(slots=True)
class Counter:
    """One that changes."""

    count: int = 0


def test_a_value_is_what_the_standard_library_makes() -> None:
    ours, theirs = Point(3, names=("a",), told="b"), Plain(3, names=("a",), told="b")

    assert repr(ours) == repr(theirs).replace("Plain", "Point")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert hash(ours) == hash(theirs)
    assert Point.__match_args__ == Plain.__match_args__
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    assert ours == Point(3, names=("a",), told="b", more={"not": 1})
    assert ours != Point(4, names=("a",), told="b")
    assert ours != cast("object", theirs)
    assert ours.more is not Point(3).more
    assert dataclasses.replace(ours, x=-1).length == 1.5


def test_its_methods_are_made_by_the_first_call() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        number: int

    at_first = {name: vars(Fresh)[name] for name in ("__init__", "__eq__", "__repr__", "__hash__")}
    assert Fresh(1) == Fresh(1)
    afterwards = {name: vars(Fresh)[name] for name in at_first}

    assert all(afterwards[name] is not at_first[name] for name in at_first)
    assert at_first["__hash__"](Fresh(1)) == hash(Fresh(1))  # whoever kept one goes on


@pytest.mark.parametrize("harm", ["set", "delete", "new"])
def test_a_frozen_one_cannot_be_changed(harm: str) -> None:
    point: Any = Point(1)

    with pytest.raises((FrozenInstanceError, AttributeError)):
        if harm == "set":
            point.x = 2
        elif harm == "delete":
            del point.x
        else:
            point.other = 2

    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_one_that_is_not_frozen_can_and_is_no_key() -> None:
    counter = Counter()
    counter.count += 1

    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_a_wrong_call_is_told_as_for_any_function() -> None:
    wrong: Any = Point

    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
        wrong()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'z'"):
        wrong(1, z=2)


def test_copies_are_equal() -> None:
    point = Point(1, names=("a",), more={"b": 2})

    for same in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert same == point
        assert same.more == {"b": 2}
        assert same.length == 1.5


def test_others_can_inherit_from_it() -> None:
    @dataclass(frozen=True, slots=True)
    class Further(Point):
        """One more field."""

        z: int = 7

    assert Further(1, z=8).z == 8
    assert Further(1).length == 1.5
    assert Further(1) != Point(1)


def test_several_threads_may_be_the_first() -> None:
    @dataclass(frozen=True, slots=True)
    class Shared:
        number: int

    barrier = threading.Barrier(8)
    made: list[Shared] = []

    def make(number: int) -> None:
        barrier.wait()
        made.append(Shared(number))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(one.number for one in made) == list(range(8))

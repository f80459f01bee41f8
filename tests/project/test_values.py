"""Value classes that are compiled late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
from typing import Any, ClassVar

import pytest

import backends
import runners
import screens
import workbench
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A point."""

    x: int
    tags: list[str] = dataclasses.field(default_factory=list, compare=False)
    origin: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Named(Point):
    """A point with a name, which must not be empty."""

    name: str = "p"

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a name is needed")


@dataclasses.dataclass(frozen=True, slots=True)
class Coloured(Named):
    """One that the standard library makes of a late one."""

    colour: str = "red"


@dataclass(frozen=True, slots=True)
class Equal:
    """A class with a comparison of its own."""

    x: int

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # it is not meant to be a key


def test_values_are_made_compared_and_shown_by_their_fields() -> None:
    assert Named(1, name="a") == Named(1, ["other"], "a") != Named(2, name="a")
    assert hash(Named(1)) == hash(Named(1))
    assert repr(Named(1)) == "Named(x=1, tags=[], name='p')"
    assert Named(1) != Point(1)
    assert Coloured(1, name="a").colour == "red"


def test_a_class_is_used_by_a_signals_handler_while_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class Asked:
        why: str
        names: list[str] = dataclasses.field(default_factory=list)

    made: list[object] = []
    process: Any = dataclasses.dataclass

    def process_and_be_interrupted(**options: bool) -> Any:
        def interrupted(written: type) -> type:
            compiled: type = process(**options)(written)
            if not made:
                made.append(None)
                made.append(Asked("from the handler"))
            return compiled

        return interrupted

    monkeypatch.setattr(dataclasses, "dataclass", process_and_be_interrupted)

    assert Asked("first") != Asked("from the handler") == made[1]
    assert Asked("first").names == []


def test_the_first_use_may_be_any_of_the_methods() -> None:
    for use in (repr, hash, dataclasses.fields, lambda it: it == it, lambda it: dataclasses.replace(it, x=3)):

        @dataclass(frozen=True, slots=True)
        class Fresh:
            x: int = 1

        blank = Fresh.__new__(Fresh)
        object.__setattr__(blank, "x", 2)
        use(blank)
        assert Fresh() == Fresh(1)


def test_fields_are_replaced_copied_and_pickled() -> None:
    point = Named(1, ["t"], "a")
    assert dataclasses.replace(point, x=2) == Named(2, name="a")
    assert dataclasses.asdict(point) == {"x": 1, "tags": ["t"], "name": "a"}
    assert [field.name for field in dataclasses.fields(Named)] == ["x", "tags", "name"]
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    match point:
        case Named(x, tags, name):
            assert (x, tags, name) == (1, ["t"], "a")


def test_nothing_can_be_set_or_deleted() -> None:
    point: Any = Named(1)
    for name in ("x", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(point, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_wrong_arguments_are_refused_as_ever() -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'y'"):
        Point(1, y=2)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="a name is needed"):
        Named(1, name="")


def test_methods_of_the_class_stay() -> None:
    assert Equal(1) == Equal(2)


def test_every_value_class_of_the_project_can_be_compiled() -> None:
    """A fault in a definition shows at its first use: here."""
    seen = 0
    for package in (workbench, backends, runners, screens):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.startswith("workbench.learner") or module.name.endswith("__main__"):
                continue
            for found in vars(importlib.import_module(module.name)).values():
                if isinstance(found, type) and dataclasses.is_dataclass(found):
                    seen += len(dataclasses.fields(found)) > 0
    assert seen > 300

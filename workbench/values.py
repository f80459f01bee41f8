"""``dataclass`` with slots whose methods are made when they are first used, since they take most of an import.

A command defines about a hundred classes of values and uses a third of them. ``dataclasses.dataclass`` compiles six
methods for each, 0.4 ms a class and a quarter of the time that ``fabric run`` takes to submit (measured); this one
leaves them to the first call. What comes of it is a dataclass like any other.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

Value = TypeVar("Value")

MADE_LATER = ("__init__", "__repr__", "__eq__", "__hash__")

_FIRST = "is_first"
"""What marks a method that is there until the first call."""


def _dataclass(*, frozen: bool = False, slots: bool = False, **more: Any) -> Any:
    """Return what turns a class into a dataclass, as ``dataclasses.dataclass`` would."""

    def decorate(cls: type[Value]) -> type[Value]:
        inherits = cls.__bases__ != (object,)
        compares = "__eq__" in vars(cls) or "__hash__" in vars(cls)
        if not slots or more or inherits or compares:
            return dataclasses.dataclass(frozen=frozen, slots=slots, **more)(cls)
        return _made_later(cls, frozen=frozen)

    return decorate


def _made_later(cls: type[Value], *, frozen: bool) -> type[Value]:
    # Without any words of its own it would be given its signature, which takes as long as all the rest.
    cls.__doc__ = cls.__doc__ or cls.__name__
    value = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    attributes: dict[str, Any] = {name: _first(value, name) for name in MADE_LATER if name not in vars(cls)}
    if frozen:
        # Who inherits from it is asked for the same.
        value.__dataclass_params__.frozen = True  # type: ignore[attr-defined]  # typeshed does not tell of it
        attributes |= {
            "__setattr__": _refuse_to_set,
            "__delattr__": _refuse_to_delete,
            "__setstate__": _set_state,
        }
    else:
        attributes["__hash__"] = None
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def _first(value: type[Any], name: str) -> Any:
    """Return a method that makes the one of that name, or all that come with it, and hands over to it."""

    def method(*arguments: Any, **named: Any) -> Any:
        # Two threads may come here at once: then both make the same.
        made = {name: _constructor(value)} if name == "__init__" else _comparing(value)
        for each, function in made.items():
            if hasattr(vars(value).get(each), _FIRST):
                setattr(value, each, function)
        return getattr(value, name)(*arguments, **named)

    method.__name__, method.__qualname__ = name, f"{value.__qualname__}.{name}"
    method.__dict__[_FIRST] = True
    return method


def _constructor(value: type[Any]) -> Any:
    """Compile ``__init__`` alone: from ``dataclasses`` it comes with what makes a class frozen."""
    names: dict[str, Any] = {"value_set": object.__setattr__, "value_left_out": object()}
    positional, named, lines = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(value):
        name, usual = field.name, f"value_{field.name}"
        has_default = field.default is not dataclasses.MISSING
        has_factory = field.default_factory is not dataclasses.MISSING
        names[usual] = field.default if has_default else field.default_factory
        if field.init:
            parameter = (
                f"{name}={usual}" if has_default else f"{name}=value_left_out" if has_factory else name
            )
            (named if field.kw_only else positional).append(parameter)
            given = f"{usual}() if {name} is value_left_out else {name}" if has_factory else name
        elif has_default or has_factory:
            given = f"{usual}()" if has_factory else usual
        else:
            continue
        lines.append(f"value_set(self, {name!r}, {given})")
    if hasattr(value, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join([*positional, *(["*", *named] if named else [])])
    exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), names)
    made = names["__init__"]
    made.__qualname__ = f"{value.__qualname__}.__init__"
    return made


def _comparing(value: type[Any]) -> dict[str, Any]:
    """Have ``dataclasses`` make the other methods for a class of the same fields."""
    twin = dataclasses.make_dataclass(
        value.__name__,
        [(field.name, field.type, _again(field)) for field in dataclasses.fields(value)],
        namespace={"__doc__": value.__doc__},
        init=False,
        frozen=value.__dataclass_params__.frozen,
    )
    return {name: vars(twin)[name] for name in MADE_LATER if name != "__init__"}


def _again(field: dataclasses.Field[Any]) -> Any:
    """Return a field as it was asked for."""
    told = ("default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
    asked: Any = dataclasses.field
    return asked(**{name: getattr(field, name) for name in told})


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: object, state: tuple[None, dict[str, Any]]) -> None:
    """Take what a copy is made from."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass

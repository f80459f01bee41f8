"""Value classes that are compiled when they are first used.

``dataclasses`` writes and compiles six methods for each class while its module is imported. A command imports some
hundred value classes and uses a few of them: that was a quarter of the processor time of ``fabric run``.
``dataclass`` here takes the same options, and type checkers see the one of the standard library. A class with
``frozen=True, slots=True`` gets its slots at once; its methods come from ``dataclasses`` at the first call of one,
or at the first look at its fields. Any other combination of options is passed to ``dataclasses`` as it is.

A fault in a definition (a field without a default after one with a default) is therefore raised at the first use;
``tests/project/test_values.py`` uses every class once.
"""

from __future__ import annotations

import dataclasses
import threading
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a class a value class; see the module."""

        def wrap(cls):
            if options == {"frozen": True, "slots": True} and _is_plain(cls):
                return _LateCompilation(cls).slotted
            return dataclasses.dataclass(**options)(cls)

        return wrap if cls is None else wrap(cls)


_METHODS: Final = ("__init__", "__repr__", "__eq__", "__hash__")
_FACTS: Final = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
_SPECIAL: Final = (
    "ClassVar",
    "typing.ClassVar",
    "InitVar",
    "dataclasses.InitVar",
    "KW_ONLY",
    "dataclasses.KW_ONLY",
)
"""Annotations that are not fields; their text is what is looked at, as ``dataclasses`` does."""
_lock: Final = threading.RLock()


def _is_plain(cls: type) -> bool:
    """Return whether each annotation of a class is a field, in text: nothing has to be evaluated."""
    return "__slots__" not in cls.__dict__ and all(
        isinstance(text, str) and not text.startswith(_SPECIAL) for text in get_annotations(cls).values()
    )


class _Fact:
    """An attribute of a class that exists once the class is compiled."""

    def __init__(self, compilation: _LateCompilation, name: str) -> None:
        self._compilation = compilation
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:  # whatever dataclasses stores there
        self._compilation.compile()
        return getattr(owner, self._name)


class _LateCompilation:
    """A class as it was written, and the one with slots that takes its name; compiles the former for the latter."""

    def __init__(self, written: type) -> None:
        self._written = written
        self._done = False
        names = tuple(get_annotations(written))
        inherited = {name for base in written.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
        namespace = {
            name: value
            for name, value in written.__dict__.items()
            if name not in names and name not in ("__dict__", "__weakref__")
        }
        namespace["__slots__"] = tuple(name for name in names if name not in inherited)
        namespace["__qualname__"] = written.__qualname__
        namespace.setdefault("__getstate__", _get_state)
        namespace.setdefault("__setstate__", _set_state)
        self._own = [name for name in _METHODS if written.__dict__.get(name) is None]
        namespace.update((name, self._stub(name)) for name in self._own)
        namespace.update((name, _Fact(self, name)) for name in _FACTS)
        self.slotted: Final = type(written)(written.__name__, written.__bases__, namespace)
        self._freeze()

    def compile(self) -> None:
        """Have ``dataclasses`` write the methods, and give them to the class with slots.

        A signal's handler may use the class while it is compiled: it compiles it from the beginning then, since
        ``dataclasses`` takes no class twice.
        """
        with _lock:
            if self._done:
                return
            compiled: type = dataclasses.dataclass(frozen=True)(self._copy())
            for name in (*self._own, *_FACTS):
                setattr(self.slotted, name, compiled.__dict__[name])
            self._done = True

    def _copy(self) -> type:
        """Return a class like the one that was written, which nobody else has."""
        written = self._written
        own = {
            name: value for name, value in written.__dict__.items() if name not in ("__dict__", "__weakref__")
        }
        return type(written)(written.__name__, written.__bases__, own)

    def _stub(self, name: str) -> Any:  # a function of any signature
        def call(instance: Any, /, *args: Any, **options: Any) -> Any:
            self.compile()
            return getattr(self.slotted, name)(instance, *args, **options)

        call.__name__ = name
        return call

    def _freeze(self) -> None:
        slotted: Any = self.slotted

        def refuse(instance: Any, name: str, verb: str) -> None:
            if type(instance) is slotted or name in slotted.__dataclass_fields__:
                raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")

        def set_attribute(instance: Any, name: str, value: Any) -> None:
            refuse(instance, name, "assign to")
            super(slotted, instance).__setattr__(name, value)

        def delete_attribute(instance: Any, name: str) -> None:
            refuse(instance, name, "delete")
            super(slotted, instance).__delattr__(name)

        type.__setattr__(slotted, "__setattr__", set_attribute)
        type.__setattr__(slotted, "__delattr__", delete_attribute)


def _get_state(instance: Any) -> list[Any]:
    return [getattr(instance, field.name) for field in dataclasses.fields(instance)]


def _set_state(instance: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(instance), state, strict=True):
        object.__setattr__(instance, field.name, value)

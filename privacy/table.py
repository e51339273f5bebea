"""Tables of named entries that fail closed: a name reaches its own entry or an error, never somebody else's algorithm.

    TABLE = Table("rule", Rule, home="cloud.rules")     one table, filled by the module that lists its entries
    TABLE.register(Krum())                              one line per entry; a part that is missing is an error here
    TABLE["krum"], TABLE["krmu"]                        the entry; InputError with the nearest names

An entry may bring settings of its own: a subclass of the table's `Choice`, told from the others' by the entry's name.
They are looked up when they are read, so entries that a plug-in registered are as good as those that ship.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, distributions
from inspect import isabstract
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import PydanticCustomError, core_schema

from privacy.errors import InputError, unknown


class Named(Protocol):
    """Anything that a table can hold: it has a name of its own."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Table(Mapping[str, Entry], Generic[Entry]):
    """A table holds entries of one kind by their names, in the order in which they were registered.

    `what`: what errors call an entry. `kind`: the class that every entry is an instance of. `home`: the module that
    registers the entries that ship; it is imported at the first look-up, so that entries may import their table.
    `group`: the entry points by which installed packages add theirs ("edgefr.methods"); they are loaded after those.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Shape:
    ...     name: str
    ...     corners: int
    >>> shapes = Table("shape", Shape)
    >>> shapes.register(Shape("square", corners=4)).corners, list(shapes)
    (4, ['square'])
    >>> shapes["sqare"]
    Traceback (most recent call last):
    privacy.errors.InputError: unknown shape 'sqare'; did you mean 'square'? (known: square)
    """

    def __init__(self, what: str, kind: type, home: str | None = None, group: str | None = None) -> None:
        self.what, self.kind, self.group, self._home, self._ready = what, kind, group, home, group is None
        self._entries: dict[str, Entry] = {}

    def register(self, entry: Entry) -> Entry:
        """Add an entry and hand it back. Raises `TypeError` for one that is not whole, `ValueError` for a double."""
        if not isinstance(entry, self.kind):
            raise TypeError(f"a {self.what} is an instance of {self.kind.__name__}, not {entry!r}")
        for part in (part for base in type(entry).__mro__ for part in vars(base).get("__annotations__", {})):
            if not hasattr(entry, part):
                raise TypeError(f"a {self.what} says its {part}, and {type(entry).__name__} does not")
        if entry.name in self._entries:
            raise ValueError(f"there is a {self.what} '{entry.name}' already; give the new one a name of its own")
        settings = getattr(entry, "settings", None)
        if isinstance(settings, type) and issubclass(settings, Choice):
            settings.belongs_to(entry.name)
        self._entries[entry.name] = entry
        return entry

    def registered(self) -> list[Entry]:
        """Return the entries that are there so far; none is loaded for that."""
        return list(self._entries.values())

    def unregister(self, name: str) -> None:
        """Take an entry out again. Raises `InputError` for a name that is not there."""
        self[name]
        del self._entries[name]

    @contextmanager
    def having(self, entry: Entry) -> Iterator[Entry]:
        """Register one more entry within a `with` block: for tests, and for trying something out."""
        self.register(entry)
        try:
            yield entry
        finally:
            self.unregister(entry.name)

    def __getitem__(self, name: str) -> Entry:
        entries = self._shipped()
        if not isinstance(name, str) or name not in entries:  # a name that is here asks nothing of other packages
            entries = self._loaded()
            if not isinstance(name, str) or name not in entries:
                raise unknown(self.what, str(name), entries)
        return entries[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._loaded().get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._loaded()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def _shipped(self) -> dict[str, Entry]:
        if self._home is not None:
            home, self._home = self._home, None
            importlib.import_module(home)
        return self._entries

    def _loaded(self) -> dict[str, Entry]:
        entries = self._shipped()
        if not self._ready:
            self._ready = True
            for point in _installed(tuple(sys.path)):
                if point.group == self.group:
                    self._add(point)
        return entries

    def _add(self, point: EntryPoint) -> None:
        """Register what an installed package adds. Raises `InputError`, which names the package, where it cannot be."""
        whose = f"the plug-in {point.value} of {'a package' if point.dist is None else point.dist.name}"
        try:
            entry = point.load()
            if self._entries.get(str(getattr(entry, "name", ""))) is not entry:  # its module may have registered it
                self.register(entry)
        except Exception as error:
            raise InputError(f"{whose} adds no {self.what}: {error}; fix or uninstall it") from error


@cache
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return our entry points in all packages on this search path: one reading of their files serves every table."""
    return tuple(p for found in distributions() for p in found.entry_points if p.group.startswith("edgefr."))


class Choice(BaseModel):
    """These are settings of one entry of a table; a key of theirs (`key`) holds the entry's name.

    A table's base class names `table` and `key`, gives the key its default, and holds what all entries read. Called, or
    validated, it makes the settings of the entry that the key names, as `pathlib.Path` makes a path of its own system.
    An entry's settings are a subclass with the entry's name as the key's only value, and hold what it alone reads. A
    key of another entry is refused with the reason, unless it is left at its default, which changes nothing; a key of
    nobody's with the nearest names.

    >>> from dataclasses import dataclass
    >>> from typing import Literal
    >>> @dataclass(frozen=True)
    ... class Shape:
    ...     name: str
    ...     settings: type[BaseModel]
    >>> class ShapeSettings(Choice):
    ...     table: ClassVar = Table("shape", Shape)
    ...     key: ClassVar = "shape"
    ...     shape: str = "point"
    >>> class Point(ShapeSettings):
    ...     shape: Literal["point"] = "point"
    >>> class Circle(ShapeSettings):
    ...     shape: Literal["circle"] = "circle"
    ...     radius: float = 1.0
    >>> entries = [ShapeSettings.table.register(Shape(s.entry_name(), s)) for s in (Point, Circle)]
    >>> ShapeSettings(), ShapeSettings(shape="circle", radius=2.0)
    (Point(shape='point'), Circle(shape='circle', radius=2.0))
    >>> try:
    ...     ShapeSettings(radius=2.0)
    ... except ValueError as error:
    ...     print(error.errors()[0]["msg"])
    radius belongs to circle, and shape is point: drop it, or set shape to circle
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: ClassVar[Table[Any]]
    key: ClassVar[str]

    def __new__(cls, *args: Any, **values: Any) -> Self:
        return super().__new__(type(cls.model_validate(values)) if cls._is_base() else cls)

    @classmethod
    def _is_base(cls) -> bool:
        return "table" in vars(cls)

    @classmethod
    def entry_name(cls) -> str:
        """Return the name of the entry whose settings these are."""
        return str(cls.model_fields[cls.key].default)

    @classmethod
    def belongs_to(cls, name: str) -> None:
        """Raise `TypeError` unless these are settings of the entry `name` and of nothing else."""
        if cls._is_base() or not hasattr(cls, "table"):
            raise TypeError(f"settings of '{name}' are a subclass of the table's: {cls.__name__} is not")
        if cls.entry_name() != name or isabstract(cls):
            raise TypeError(f"settings of '{name}' say {cls.key} = '{cls.entry_name()}'; let the name be the default")

    @property
    def entry(self) -> Any:
        """Return the entry whose settings these are. Raises `InputError` where it is not registered any more."""
        return self.table[getattr(self, self.key)]

    @classmethod
    def _chosen(cls, values: Mapping[str, Any]) -> type[Self]:
        """Return the settings of the entry that `values` name. Raises a pydantic error for an entry that is unknown."""
        name = values.get(cls.key, cls.model_fields[cls.key].default)
        chosen = {settings.entry_name(): settings for settings in cls._choices()}
        if not isinstance(name, str) or name not in chosen:
            raise _fault(str(unknown(cls.table.what, str(name), chosen)), cls.key)
        return chosen[name]

    @classmethod
    def _choices(cls) -> list[type[Self]]:
        """Return the settings of every entry that has any: an entry without can be looked up, and nobody chooses it."""
        return [entry.settings for entry in cls.table.values() if entry.settings is not None]

    @model_validator(mode="before")
    @classmethod
    def _own_keys(cls, values: Any) -> Any:
        """Refuse a key that this entry does not read, and say whose it is."""
        if cls.table[cls.entry_name()].settings is not cls:
            raise _fault(f"{cls.__name__} are not the settings of {cls.entry_name()}; register an entry that has them")
        if not isinstance(values, Mapping):
            return values
        for key, value in values.items():
            if key not in cls.model_fields and not cls._is_default(key, value):
                raise _fault(cls._why_not(str(key)) + cls._besides(str(key), values), str(key))
        return {key: value for key, value in values.items() if key in cls.model_fields}

    @classmethod
    def _is_default(cls, key: str, value: Any) -> bool:
        """Say whether a key of other entries is left as it is: it changes nothing, and older files name every key."""
        fields = [settings.model_fields[key] for settings in cls._choices() if key in settings.model_fields]
        return any(
            not field.is_required() and field.get_default(call_default_factory=True) == value for field in fields
        )

    @classmethod
    def _why_not(cls, key: str) -> str:
        owners = [settings.entry_name() for settings in cls._choices() if key in settings.model_fields]
        if not owners:
            return str(unknown("key", key, cls.model_fields))
        named = f"{cls.key} to {' or '.join(owners)}"
        return f"{key} belongs to {', '.join(owners)}, and {cls.key} is {cls.entry_name()}: drop it, or set {named}"

    @classmethod
    def _besides(cls, key: str, values: Mapping[str, Any]) -> str:
        """Say what a key needs beside its entry and is not among the values, so that one refusal names all of it."""
        return ""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        if not cls._is_base():
            return handler(source)

        def validated(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            if not isinstance(value, Mapping):
                raise _fault(f"it should be a mapping with {cls.key}; got {str(value)[:60]!r}")
            return cls._chosen(value).model_validate(value)

        return core_schema.no_info_plain_validator_function(validated)


def _fault(problem: str, *at: str) -> PydanticCustomError:
    return PydanticCustomError("choice", "{problem}", {"problem": problem, "at": at})

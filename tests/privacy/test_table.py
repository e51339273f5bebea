"""Tables: a name reaches its own entry or an error, a key the entry that reads it or an error."""

import copy
import pickle
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from privacy.errors import InputError
from privacy.table import Choice, Table


class Sound(ABC):
    name: str
    settings: type["SoundSettings"]

    @abstractmethod
    def made(self, settings: "SoundSettings") -> str: ...


SOUNDS: Table[Sound] = Table("sound", Sound)


class SoundSettings(Choice):
    table: ClassVar = SOUNDS
    key: ClassVar = "sound"

    sound: str = "hum"
    loudness: float = Field(1.0, ge=0)


class HumSettings(SoundSettings):
    sound: Literal["hum"] = "hum"


class BeepSettings(SoundSettings):
    sound: Literal["beep"] = "beep"
    pitch: int = 440


class Hum(Sound):
    name, settings = "hum", HumSettings

    def made(self, settings: SoundSettings) -> str:
        return "mmm"


class Beep(Sound):
    name, settings = "beep", BeepSettings

    def made(self, settings: SoundSettings) -> str:
        assert isinstance(settings, BeepSettings)
        return f"beep at {settings.pitch}"


SOUNDS.register(Hum())
SOUNDS.register(Beep())


class Room(BaseModel):
    alarm: SoundSettings = Field(default_factory=SoundSettings)


def _problem(error: pytest.ExceptionInfo[ValidationError]) -> str:
    return str(error.value.errors()[0]["msg"])


def test_a_name_reaches_its_own_entry_or_an_error() -> None:
    assert SOUNDS["beep"].made(SoundSettings(sound="beep", pitch=880)) == "beep at 880"
    assert list(SOUNDS) == ["hum", "beep"]
    assert len(SOUNDS) == 2
    assert "beep" in SOUNDS
    assert SOUNDS.get("buzz") is None
    with pytest.raises(InputError, match=r"unknown sound 'bep'; did you mean 'beep'\? \(known: beep, hum\)"):
        SOUNDS["bep"]
    with pytest.raises(InputError, match="unknown sound 'None'"):
        SOUNDS[None]  # type: ignore[index]


def test_an_entry_without_a_part_cannot_be_made() -> None:
    class Buzz(Sound):
        name, settings = "buzz", HumSettings

    with pytest.raises(TypeError, match="made"):
        SOUNDS.register(Buzz())  # type: ignore[abstract]
    assert "buzz" not in SOUNDS

    @dataclass(frozen=True)
    class Row:
        name: str
        about: str

    with pytest.raises(TypeError, match="about"):
        Table("row", Row).register(Row("a"))  # type: ignore[call-arg]


def test_doubles_strangers_and_settings_of_another_name_are_refused() -> None:
    with pytest.raises(ValueError, match="there is a sound 'hum' already"):
        SOUNDS.register(Hum())
    with pytest.raises(TypeError, match="an instance of Sound"):
        SOUNDS.register("hum")  # type: ignore[arg-type]

    class Echo(Hum):
        name = "echo"

    with pytest.raises(TypeError, match="say sound = 'hum'"):
        SOUNDS.register(Echo())

    class Bare(Hum):
        name, settings = "bare", SoundSettings

    with pytest.raises(TypeError, match="a subclass of the table's"):
        SOUNDS.register(Bare())
    assert list(SOUNDS) == ["hum", "beep"]


def test_one_more_entry_within_a_block() -> None:
    class BuzzSettings(SoundSettings):
        sound: Literal["buzz"] = "buzz"
        teeth: int = 3

    class Buzz(Hum):
        name, settings = "buzz", BuzzSettings

    with SOUNDS.having(Buzz()):
        room = Room.model_validate({"alarm": {"sound": "buzz", "teeth": 5}})
        assert room.alarm == BuzzSettings(teeth=5)
        assert room.alarm.entry.made(room.alarm) == "mmm"
    assert "buzz" not in SOUNDS
    with pytest.raises(ValidationError, match="unknown sound 'buzz'"):
        SoundSettings(sound="buzz")
    with pytest.raises(InputError, match="unknown sound 'buzz'"):
        room.alarm.entry.made(room.alarm)
    with pytest.raises(InputError, match="unknown sound 'buzz'"):
        SOUNDS.unregister("buzz")


def test_the_table_loads_its_home_at_the_first_look_up() -> None:
    table = Table("shape", Hum, home="privacy.nowhere")  # named before there is such a module
    with pytest.raises(ModuleNotFoundError):
        table["round"]


def test_a_name_that_ships_is_found_without_a_look_at_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[tuple[str, ...]] = []

    def installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
        looked.append(path)
        return (EntryPoint(name="theirs", value="nowhere_at_all:entry", group="edgefr.shapes"),)

    monkeypatch.setattr("privacy.table._installed", installed)
    table: Table[Hum] = Table("shape", Hum, group="edgefr.shapes")
    table.register(Hum())
    assert table["hum"].name == "hum"
    assert not looked
    with pytest.raises(InputError, match="the plug-in nowhere_at_all:entry of a package adds no shape"):
        table["hmu"]  # what nobody ships may be theirs
    assert len(looked) == 1


def test_settings_are_those_of_the_entry_that_is_named() -> None:
    assert isinstance(SoundSettings(), HumSettings)
    assert isinstance(SoundSettings(sound="beep"), BeepSettings)
    assert Room().alarm == HumSettings()
    room = Room.model_validate({"alarm": {"sound": "beep", "pitch": 100, "loudness": 2.0}})
    assert room.alarm == BeepSettings(pitch=100, loudness=2.0)
    assert Room.model_validate({"alarm": BeepSettings(pitch=1)}).alarm == BeepSettings(pitch=1)
    for dumped in (room.model_dump(), room.model_dump(mode="json")):
        assert Room.model_validate(dumped) == room, "written and read again"
    assert pickle.loads(pickle.dumps(room.alarm)) == room.alarm  # noqa: S301  # as it goes to a worker
    assert copy.deepcopy(room.alarm) == room.alarm
    assert room.alarm.model_copy(update={"pitch": 2}) == BeepSettings(pitch=2, loudness=2.0)


def test_a_key_of_another_entry_is_refused_with_the_reason() -> None:
    with pytest.raises(ValidationError) as error:
        Room.model_validate({"alarm": {"pitch": 3}})
    assert _problem(error) == "pitch belongs to beep, and sound is hum: drop it, or set sound to beep"
    assert error.value.errors()[0]["ctx"]["at"] == ("pitch",)
    with pytest.raises(ValidationError, match="pitch belongs to beep"):
        HumSettings(pitch=3)  # type: ignore[call-arg]
    assert SoundSettings(pitch=440) == HumSettings(), "left as it is: older files name every key"  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="unknown key 'loudnes'; did you mean 'loudness'"):
        SoundSettings(loudnes=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [{"sound": "bep"}, {"sound": None}, {"sound": ["hum"]}, "hum", None, 3])
def test_what_is_no_settings_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match=r"unknown sound|mapping with sound"):
        Room.model_validate({"alarm": value})

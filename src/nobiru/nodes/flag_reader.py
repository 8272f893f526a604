"""Typed access to what was given on the command line, over a release's defaults.

It refuses to know: which flags there are for what.  Invariant: every trouble is a ConfigError that names its flag.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from nobiru.kernel.duration import parse_duration
from nobiru.kernel.errors import ConfigError
from nobiru.nodes import flag_values as values
from nobiru.nodes.flags import Flag, by_name

Values = Mapping[str, Sequence[str]]  # what was given, by flag, in order
T = TypeVar("T")
Choice = TypeVar("Choice", bound=str)


class Reader:
    """Typed access to the flags' texts; every trouble names its flag."""

    def __init__(self, given: Values, fallback: Mapping[str, str], compat: tuple[int, int]) -> None:
        self._given, self._fallback, self.compat = given, fallback, compat

    def was_given(self, name: str) -> bool:
        return name in self._given

    def changed(self, name: str) -> bool:
        """Whether a number was given that is not the default."""
        return self.was_given(name) and self.whole(name) != values.parse_whole(self._fallback[name])

    def text(self, name: str) -> str:
        given = self._given.get(name)
        return given[-1] if given else self._fallback[name]

    def many(self, name: str) -> tuple[str, ...]:
        return tuple(self._given.get(name, ()))

    def parsed(self, name: str, parse: Callable[[str], T]) -> T:
        return _named(name, self.text(name), parse)

    def each(self, name: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        return tuple(_named(name, text, parse) for text in self.many(name))

    def flag(self, name: str) -> bool:
        return self.parsed(name, values.parse_bool)

    def whole(self, name: str, *, least: int | None = None) -> int:
        value = self.parsed(name, values.parse_whole)
        if least is not None and value < least:
            raise ConfigError(f"--{name}: {value} is too small: use {least} or more")
        return value

    def number(self, name: str) -> float:
        value = self.parsed(name, values.parse_float)
        if value < 0:
            raise ConfigError(f"--{name}: {self.text(name)} is negative: use 0 or more")
        return value

    def duration(self, name: str) -> int:
        value = self.parsed(name, parse_duration)
        if value < 0:
            raise ConfigError(f"--{name}: {self.text(name)} is negative: use 0s or more")
        return value

    def one_of(self, name: str, allowed: Sequence[Choice]) -> Choice:
        text = self.text(name)
        for choice in allowed:
            if choice == text:
                return choice
        raise ConfigError(f'--{name}: "{text}" is unknown: use {", ".join(allowed)}')

    def means(self, flag: Flag, text: str) -> bool:
        """Whether every text given for a flag means the same as `text`."""
        parse = _PARSERS.get(flag.kind)
        given = self.many(flag.name)
        return (
            all(each == text for each in given) if parse is None else all(parse(each) == parse(text) for each in given)
        )

    def check_types(self) -> None:
        """Check the type of everything that was given, also what is overridden later or has no effect."""
        known = by_name()
        for name in self._given:
            parse = _PARSERS.get(known[name].kind)
            if parse is not None:
                self.each(name, parse)


def _named(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"--{name}: {error}") from error


_PARSERS: dict[str, Callable[[str], object]] = {
    "bool": values.parse_bool,
    "int": values.parse_whole,
    "level": values.parse_level,
    "float": values.parse_float,
    "duration": parse_duration,
}

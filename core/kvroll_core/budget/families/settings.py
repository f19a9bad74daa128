"""Typed reading of a config.json: every value is checked where it is read, so that no text or fraction becomes a number of bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

_MOST = {
    "num_hidden_layers": 4096,
    "hidden_size": 1 << 20,
    "vocab_size": 1 << 28,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
}
"""The largest value that a size may have; ten times what any model of today has, and more."""
_MOST_OF_OTHERS = 1 << 32
_SHOWN_CHARACTERS = 60


class ShapeError(ValueError):
    """A config.json that we cannot count; the message names the key, what was expected and what to do."""


def shown(value: object) -> str:
    """A value as a message may hold it."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


class Settings:
    """The keys of a config.json under the names that we use, with what the family's configuration class fills in where a key is absent.

    `names`: other words of the family for ours; `defaults`: by our words. `derived` collects in plain sentences what was not read.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._config, self._defaults, self._names = config, defaults or {}, names or {}
        self.derived: list[str] = []

    def raw(self, key: str) -> Any:
        """The value as it stands, under our word or the family's, else the family's default; None where there is none."""
        theirs = self._names.get(key, key)
        for word in (theirs, key):
            if word in self._config:
                return self._config[word]
        found = self._defaults.get(key)
        if found is not None:
            said = f"{key} {found}: absent from the file, the family's default"
            if said not in self.derived:
                self.derived.append(said)
        return found

    def has(self, key: str) -> bool:
        """Whether the file says it, with a value other than null."""
        return any(self._config.get(word) is not None for word in (key, self._names.get(key, key)))

    def count(self, key: str, *, least: int = 1) -> int:
        """A whole number.

        Raises:
            ShapeError: absent, null, no whole number, too small, or larger than anything that exists.
        """
        found = self.raw(key)
        if found is None:
            raise ShapeError(f"expected {key}, as in the config.json of a decoder-only transformer, found none")
        return self.checked(key, found, least=least)

    def optional(self, key: str, *, least: int = 1) -> int | None:
        """A whole number, or None where it is absent or null.

        Raises:
            ShapeError: as `count`.
        """
        found = self.raw(key)
        return None if found is None else self.checked(key, found, least=least)

    def checked(self, key: str, found: Any, *, least: int = 1) -> int:
        """That value as a whole number.

        Raises:
            ShapeError: as `count`.
        """
        most = _MOST.get(key, _MOST_OF_OTHERS)
        if type(found) is not int or not least <= found <= most:
            raise ShapeError(f"{key}: expected a whole number from {least} to {most}, found {shown(found)}")
        return found

    def flag(self, key: str) -> bool:
        """True or false; false where it is absent or null.

        Raises:
            ShapeError: neither.
        """
        found = self.raw(key)
        if found is None:
            return False
        if not isinstance(found, bool):
            raise ShapeError(f"{key}: expected true or false, found {shown(found)}")
        return found

    def listed(self, key: str, of: type, length: int | None = None) -> list[Any] | None:
        """A list of such values, or None where it is absent or null.

        Raises:
            ShapeError: no list of such values, or of another length.
        """
        found = self.raw(key)
        if found is None:
            return None
        if not isinstance(found, Sequence) or isinstance(found, str) or not all(type(x) is of for x in found):
            raise ShapeError(f"{key}: expected a list of {of.__name__}, found {shown(found)}")
        if length is not None and len(found) != length:
            raise ShapeError(f"{key}: expected one for each of {length} layers, found {len(found)}")
        return list(found)

    def nested(self, key: str) -> "Settings":
        """The settings in an object of the file; empty where it is absent or null.

        Raises:
            ShapeError: no object.
        """
        found = self.raw(key)
        if found is not None and not isinstance(found, Mapping):
            raise ShapeError(f"{key}: expected an object, found {shown(found)}")
        return Settings(found or {})

    def divided(self, key: str, by: str) -> int:
        """One size over another.

        Raises:
            ShapeError: it does not go without a rest.
        """
        whole, part = self.count(key), self.count(by)
        if whole % part:
            raise ShapeError(
                f"{key} {whole} is no multiple of {by} {part}: expected head_dim in the file, or sizes that divide"
            )
        return whole // part

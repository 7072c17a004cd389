"""A keyring that is a dictionary, and ones that keep nothing safe."""

from __future__ import annotations

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class FakeKeyring(KeyringBackend):
    """By service and name."""

    # As no real one: it is never chosen by itself.
    priority = -1  # type: ignore[assignment]

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError("not found")

    def _check(self) -> None:
        if self.locked:
            raise RuntimeError("org.freedesktop.Secret.Error.IsLocked")


class PlaintextKeyring(FakeKeyring):
    """As that of keyrings.alt: a file that anybody with the disk reads."""


class NamedOtherwise(PlaintextKeyring):
    """One made from it."""


class AltKeyring(FakeKeyring):
    """Another of that package."""


AltKeyring.__module__ = "keyrings.alt.file"

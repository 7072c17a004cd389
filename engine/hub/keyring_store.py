"""Secrets in the system's keyring, where it has one that keeps them safe."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

_log = logging.getLogger(__name__)

_SERVICE = "greenroom"


class NoKeyringError(Exception):
    """The system offers no keyring that is safe, or it could not be written."""


def read_secret(name: str) -> str | None:
    """None also where the keyring is locked or missing. May wait for the user to unlock it."""
    try:
        found = _safe_keyring()
        return None if found is None else found.get_password(_SERVICE, name) or None
    except Exception as error:  # backends raise their own kinds, D-Bus errors among them
        _log.info("the keyring cannot be read: %s", error)
        return None


def write_secret(name: str, value: str) -> None:
    """An empty value removes it. May wait for the user to unlock the keyring. Raises NoKeyringError."""
    try:
        import keyring.errors

        found = _safe_keyring()
        if found is None:
            raise NoKeyringError
        if value:
            found.set_password(_SERVICE, name, value)
            return
        try:
            found.delete_password(_SERVICE, name)
        except keyring.errors.PasswordDeleteError:
            _log.info("there was nothing to remove from the keyring")
    except NoKeyringError:
        raise
    except Exception as error:
        _log.info("the keyring cannot be written: %s", error)
        raise NoKeyringError from error


def _safe_keyring() -> KeyringBackend | None:
    import keyring
    from keyring.backends.chainer import ChainerBackend

    found = keyring.get_keyring()
    choices = found.backends if isinstance(found, ChainerBackend) else [found]
    return next((each for each in choices if _is_safe(each)), None)


def _is_safe(backend: KeyringBackend) -> bool:
    """False for those that keep nothing, and for keyrings.alt: plain files and the like, not meant for general use."""
    for kind in type(backend).__mro__:
        module = kind.__module__
        if module in ("keyring.backends.fail", "keyring.backends.null") or module.split(".")[:2] == ["keyrings", "alt"]:
            return False
        if "plaintext" in kind.__name__.lower():
            return False
    return True

"""The access token for gated and private repositories: from HF_TOKEN, or kept in the system's keyring."""

from __future__ import annotations

import logging
import os

from engine.errors import GreenroomError
from engine.words import say

_log = logging.getLogger(__name__)

_SERVICE, _NAME = "greenroom", "hub-token"


def token() -> str | None:
    """HF_TOKEN, else the keyring's, else None. Never fails: a keyring that is locked or missing holds none."""
    given = os.environ.get("HF_TOKEN", "").strip()
    if given:
        return given
    try:
        import keyring

        return keyring.get_password(_SERVICE, _NAME) or None
    except Exception as error:  # backends raise their own kinds, D-Bus errors among them
        _log.info("the keyring cannot be read: %s", error)
        return None


def token_source() -> str:
    """ "environment", "keyring" or "none": what the settings page says."""
    if os.environ.get("HF_TOKEN", "").strip():
        return "environment"
    return "keyring" if token() else "none"


def save_token(value: str) -> None:
    """Keep the token in the keyring; an empty one removes it. Raises GreenroomError when there is no keyring."""
    value = value.strip()
    if not value.isprintable() or " " in value or len(value) > 512:
        raise GreenroomError(
            say("The token was not saved"), say("it is not a token"), say("Copy it again from the hub's settings page.")
        )
    try:
        import keyring
        import keyring.errors

        if value:
            keyring.set_password(_SERVICE, _NAME, value)
        else:
            try:
                keyring.delete_password(_SERVICE, _NAME)
            except keyring.errors.PasswordDeleteError:
                _log.info("there was no token to remove")
    except Exception as error:
        _log.info("the keyring cannot be written: %s", error)
        raise GreenroomError(
            say("The token was not saved"),
            say("this system offers no keyring that can be written"),
            say("Unlock it, or set the environment variable HF_TOKEN instead."),
        ) from error

"""The access token for gated and private repositories: from HF_TOKEN, or kept in the system's keyring."""

from __future__ import annotations

import os

from engine.errors import GreenroomError
from engine.hub.keyring_store import NoKeyringError, read_secret, write_secret
from engine.words import say

_NAME = "hub-token"


def token() -> str | None:
    """HF_TOKEN, else the keyring's, else None. Never fails: a keyring that is locked or missing holds none."""
    return os.environ.get("HF_TOKEN", "").strip() or read_secret(_NAME)


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
        write_secret(_NAME, value)
    except NoKeyringError as error:
        raise GreenroomError(
            say("The token was not saved"),
            say("this system offers no keyring that can be written"),
            say("Unlock it, or set the environment variable HF_TOKEN instead."),
        ) from error

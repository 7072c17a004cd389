"""The proxy's password: kept apart from its address, in the system's keyring or for this run only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from engine.hub.keyring_store import NoKeyringError, read_secret, write_secret

_NAME = "proxy"
#: A password may have any character, "@", "/" and ":" included: it ends at the last "@".
_WITH_PASSWORD = re.compile(
    r"(?P<scheme>(?>(?:[a-z][a-z0-9+.-]*://)?))(?P<user>[^:@/?#]*):(?P<password>.*)@", re.I | re.S
)


@dataclass(frozen=True)
class _Known:
    """address: without the password; in_keyring: it is there after this run as well."""

    address: str
    password: str
    in_keyring: bool


_known: _Known | None = None


def split_password(address: str) -> tuple[str, str]:
    """A proxy's address without its password, and the password as an address has it; "" for none."""
    found = _WITH_PASSWORD.match(address)
    if found is None:
        return address, ""
    # "%" stays: it begins what is quoted already.
    password = quote(found["password"], safe="%!$&'()*+,;=")
    return f"{found['scheme']}{found['user']}@{address[found.end() :]}", password


def join_password(address: str) -> str:
    """The address with the password that is kept for exactly this one. May wait for the user to unlock the keyring."""
    known = _find(address)
    if known is None:
        return address
    scheme, separator, rest = address.rpartition("://")
    user, _, host = rest.rpartition("@")
    return f"{scheme}{separator}{user}:{known.password}@{host}"


def hold_password(address: str, password: str) -> None:
    """Keep it for this run."""
    global _known
    _known = _Known(address, password, in_keyring=False)


def keep_password(address: str, password: str) -> bool:
    """Keep it in the keyring, in place of another. False where there is no safe one: it is kept for this run then."""
    global _known
    hold_password(address, password)
    try:
        # With its address, so that no other proxy is ever sent it.
        write_secret(_NAME, f"{password} {address}")
    except NoKeyringError:
        return False
    _known = _Known(address, password, in_keyring=True)
    return True


def forget_password() -> None:
    """Also in the keyring, where that can be written."""
    global _known
    _known = None
    try:
        write_secret(_NAME, "")
    except NoKeyringError:
        return


def password_place(address: str) -> str:
    """ "keyring", "run" or "none": what the settings page says. May wait for the user to unlock the keyring."""
    known = _find(address)
    return "none" if known is None else "keyring" if known.in_keyring else "run"


def _find(address: str) -> _Known | None:
    global _known
    if "@" not in address or split_password(address)[1]:
        return None
    if _known is None:
        password, _, stored_for = (read_secret(_NAME) or "").partition(" ")
        if password and stored_for:
            _known = _Known(stored_for, password, in_keyring=True)
    return _known if _known is not None and _known.address == address else None

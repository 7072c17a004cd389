"""Secrets go only where they are safe."""

from __future__ import annotations

import pytest
from fake_keyring import AltKeyring, FakeKeyring, NamedOtherwise, PlaintextKeyring
from keyring.backends import fail, null
from keyring.backends.chainer import ChainerBackend

from engine.hub.keyring_store import NoKeyringError, read_secret, write_secret


def test_a_secret_is_kept_read_and_removed(keyring: FakeKeyring) -> None:
    assert read_secret("a") is None
    write_secret("a", "one")
    write_secret("a", "two")
    assert read_secret("a") == "two"
    assert list(keyring.kept.values()) == ["two"]
    write_secret("a", "")
    write_secret("a", "")
    assert read_secret("a") is None


def test_a_locked_keyring_has_none_and_takes_none(keyring: FakeKeyring) -> None:
    keyring.locked = True
    assert read_secret("a") is None
    with pytest.raises(NoKeyringError):
        write_secret("a", "one")


UNSAFE = (fail.Keyring, null.Keyring, PlaintextKeyring, NamedOtherwise, AltKeyring)


@pytest.mark.parametrize("kind", UNSAFE, ids=lambda kind: kind.__name__ + " of " + kind.__module__)
def test_what_keeps_secrets_in_plain_text_or_not_at_all_is_no_keyring(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = kind()
    monkeypatch.setattr("keyring.core._keyring_backend", backend)
    with pytest.raises(NoKeyringError):
        write_secret("a", "one")
    assert not getattr(backend, "kept", {})
    if isinstance(backend, FakeKeyring):
        backend.set_password("greenroom", "a", "left there by somebody")
    assert read_secret("a") is None


def test_of_several_only_safe_ones_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, safe = PlaintextKeyring(), FakeKeyring()

    class Chain(ChainerBackend):
        priority = -1  # type: ignore[assignment]
        backends = (plain, safe)  # type: ignore[assignment]

    monkeypatch.setattr("keyring.core._keyring_backend", Chain())
    write_secret("a", "one")
    assert (plain.kept, list(safe.kept.values())) == ({}, ["one"])
    assert read_secret("a") == "one"


def test_a_backend_that_cannot_be_loaded_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyring.core._keyring_backend", None)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "nowhere.Keyring")
    assert read_secret("a") is None
    with pytest.raises(NoKeyringError):
        write_secret("a", "one")

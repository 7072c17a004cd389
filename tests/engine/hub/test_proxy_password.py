"""A proxy's password leaves its address, and goes to no other proxy."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import pytest
from fake_keyring import FakeKeyring
from fuzzing import Fuzzer

from engine.hub import proxy_password
from engine.hub.client import open_client
from engine.hub.network import NetworkSettings
from engine.hub.proxy_password import (
    forget_password,
    hold_password,
    join_password,
    keep_password,
    password_place,
    split_password,
)

ADDRESS = "http://me@proxy.example:3128"


def next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_password, "_known", None)


@pytest.mark.parametrize(
    ("entered", "address", "password"),
    [
        ("", "", ""),
        ("http://proxy.example:3128", "http://proxy.example:3128", ""),
        ("socks5h://localhost:1080", "socks5h://localhost:1080", ""),
        (ADDRESS, ADDRESS, ""),
        ("http://me:secret@proxy.example:3128", ADDRESS, "secret"),
        ("HTTP://me:secret@proxy.example:3128", "HTTP://me@proxy.example:3128", "secret"),
        ("http://me:p@ss/w:#?rd@proxy.example:3128", ADDRESS, "p%40ss%2Fw%3A%23%3Frd"),
        ("http://me:p%40ss@proxy.example:3128", ADDRESS, "p%40ss"),
        ("http://me:two words\n@proxy.example:3128", ADDRESS, "two%20words%0A"),
        ("http://:secret@proxy.example:3128", "http://@proxy.example:3128", "secret"),
        ("http://me:@proxy.example:3128", ADDRESS, ""),
        ("me:secret@proxy.example:3128", "me@proxy.example:3128", "secret"),
        ("http://me:secret@[::bad", "http://me@[::bad", "secret"),
    ],
)
def test_an_address_is_split(entered: str, address: str, password: str) -> None:
    assert split_password(entered) == (address, password)


def test_whatever_is_entered_the_rest_holds_no_password(fuzzer: Fuzzer, keyring: FakeKeyring) -> None:
    for rng in fuzzer.rounds():
        password = "".join(rng.choices('aé @:/?#[]%&=\\"\n\t한\0', k=rng.randint(1, 12))) + "SECRET"
        # Without a scheme, what begins with "//" would be one.
        scheme = rng.choice(["http://", "https://", "socks5h://", *([] if password.startswith("//") else [""])])
        entered = f"{scheme}{rng.choice(['me', 'a%20b', ''])}:{password}@{rng.choice(['h:1', '[::1]:80', 'h', '[x'])}"
        address, kept = split_password(entered)
        assert "SECRET" not in address
        assert split_password(address) == (address, ""), "once is enough"
        hold_password(address, kept)
        whole = join_password(address)
        assert split_password(whole) == (address, kept)
        if scheme and "[x" not in address:
            assert unquote(urlsplit(whole).password or "") == unquote(password)


def test_it_is_in_the_keyring_and_known_in_the_next_run(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep_password(ADDRESS, "secret")
    next_run(monkeypatch)
    assert password_place(ADDRESS) == "keyring"
    assert join_password(ADDRESS) == "http://me:secret@proxy.example:3128"
    forget_password()
    assert (join_password(ADDRESS), password_place(ADDRESS), keyring.kept) == (ADDRESS, "none", {})


def test_no_other_proxy_is_sent_it(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_password(ADDRESS, "secret")
    for other in ("http://me@evil.example:3128", "http://you@proxy.example:3128", "http://proxy.example:3128"):
        assert join_password(other) == other
        next_run(monkeypatch)
        assert join_password(other) == other
        assert password_place(other) == "none"
    own = "http://me:another@proxy.example:3128"
    assert join_password(own) == own


def test_without_a_safe_keyring_it_lasts_for_this_run(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.locked = True
    assert not keep_password(ADDRESS, "secret")
    assert password_place(ADDRESS) == "run"
    assert join_password(ADDRESS) == "http://me:secret@proxy.example:3128"
    next_run(monkeypatch)
    assert (password_place(ADDRESS), join_password(ADDRESS)) == ("none", ADDRESS)


def test_an_address_without_a_name_asks_no_keyring(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_password, "read_secret", lambda name: pytest.fail("the keyring was asked"))
    assert join_password("http://proxy.example:3128") == "http://proxy.example:3128"


def test_the_network_is_reached_with_it(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    real = httpx2.Client

    def client(**options: Any) -> httpx2.Client:
        given.append(options["proxy"])
        return real(**options)

    monkeypatch.setattr("httpx2.Client", client)
    keep_password(ADDRESS, "secret")
    for proxy in (ADDRESS, ""):
        with open_client(NetworkSettings(proxy=proxy)):
            pass
    assert given == ["http://me:secret@proxy.example:3128", None]

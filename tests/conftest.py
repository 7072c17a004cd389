"""Fixtures every part shares: a private data folder, and the demo model prepared once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_keyring import FakeKeyring
from fuzzing import Fuzzer
from hypothesis import settings

# Before anything imports Qt: tests never open a window on the user's screen.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

# No test asserts on time, property tests included: machines are shared and slow.
settings.register_profile("greenroom", deadline=None)
settings.load_profile("greenroom")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stress", type=float, default=5.0, help="seconds of the hybrid runtime's stress test")
    parser.addoption("--stress-seed", type=int, default=0, help="of its first round")
    parser.addoption("--fuzz", type=float, default=5.0, help="seconds of each fuzzer")
    parser.addoption("--fuzz-seed", type=int, default=0, help="of each fuzzer's first round")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run only where they are asked for. What uses the fuzzer is marked for `-m fuzz`."""
    for item in items:
        if "fuzzer" in getattr(item, "fixturenames", ()):
            item.add_marker("fuzz")
    if "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


_FUZZED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FUZZED] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[_FUZZED]:
        terminalreporter.write_line(line)


@pytest.fixture
def fuzzer(request: pytest.FixtureRequest) -> Iterator[Fuzzer]:
    """Rounds of hostile input for `--fuzz` seconds."""
    options = request.config.option
    made = Fuzzer(options.fuzz, options.fuzz_seed)
    yield made
    last = f"last seed {made.seed}"
    request.config.stash[_FUZZED].append(f"fuzzed {request.node.name}: {made.count:,} rounds, {last}")


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The prepared demo checkpoint in the user's own data folder, made if it is missing."""
    from engine.hub.demo import prepare_demo

    return prepare_demo()


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private GREENROOM_DATA for one test."""
    folder = tmp_path / "data"
    monkeypatch.setenv("GREENROOM_DATA", str(folder))
    return folder


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    """A keyring in the place of the system's, and a run of the program that knows no password yet."""
    made = FakeKeyring()
    monkeypatch.setattr("keyring.core._keyring_backend", made)
    monkeypatch.setattr("engine.hub.proxy_password._known", None)
    return made

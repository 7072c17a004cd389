"""A wizard on a fake engine, and a network that must see no request."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from fakes import FakeApi
from pytestqt.qtbot import QtBot
from wizard_fakes import MEASURED, Open

from app.settings.store import Settings
from app.wizard.study import Study
from app.wizard.wizard import SetupWizard


@pytest.fixture(autouse=True)
def asked_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every attempt to reach the hub, or anything else."""
    asked: list[object] = []

    def refuse(*what: object, **_: object) -> None:
        asked.append(what)
        raise OSError("a test must not reach the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("engine.hub.repository.Hub.__init__", refuse)
    return asked


@pytest.fixture
def open_wizard(api: FakeApi, qtbot: QtBot) -> Open:
    """The memory counts as measured unless a test says otherwise."""
    api.report = MEASURED

    def make(**changes: object) -> SetupWizard:
        study = Study(api, Settings(), lambda progress: MEASURED, lambda: True)
        wizard = SetupWizard(replace(study, **changes))
        qtbot.addWidget(wizard)
        wizard.show()
        return wizard

    return make

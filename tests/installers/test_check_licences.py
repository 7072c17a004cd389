"""Everything that is shipped or needed has a licence that fits."""

from __future__ import annotations

import sys

import check_licences
import pytest

from app.settings.licences import Component, components


def test_every_run_dependency_has_a_licence_that_fits() -> None:
    assert check_licences.problems(components()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems lack other packages")
def test_what_only_other_systems_need_was_looked_up() -> None:
    newer_pythons = {"backports-tarfile", "importlib-metadata", "zipp", "lazy-importer"}
    unknown = {
        name
        for name in check_licences.not_here(components())
        if name not in check_licences.ELSEWHERE and not check_licences.NOT_SHIPPED.match(name)
    }
    assert unknown <= newer_pythons


@pytest.mark.parametrize(
    ("licence", "fits"),
    [
        ("MIT", True),
        ("Apache-2.0 WITH LLVM-exception AND MIT", True),
        ("LGPL-3.0-only OR GPL-2.0-only OR GPL-3.0-only", True),
        ("(GPL-3.0-only OR MIT) AND BSD-3-Clause", True),
        ("MIT AND (GPL-2.0-only OR AGPL-3.0-only)", False),
        ("Mozilla Public License 2.0 (MPL 2.0)", True),
        ("MIT, GNU General Public v3 (GPLv3)", False),
        ("GPL-3.0-only", False),
        ("Other/Proprietary", False),
        ("", False),
    ],
)
def test_a_licence_fits_when_it_leaves_a_way(licence: str, fits: bool) -> None:
    assert check_licences.fits(licence) is fits


def test_what_does_not_fit_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Component("good", "1", "MIT"), Component("bad", "2", "GPL-3.0-only"), Component("mute", "3", "")]
    found.append(Component("nvidia-cublas", "13", "Other/Proprietary"))
    monkeypatch.setattr(check_licences, "components", lambda: found)
    assert check_licences.main() == 1
    captured = capsys.readouterr()
    assert [line.split(": ", 1)[1] for line in captured.err.splitlines()] == [
        "bad: GPL-3.0-only",
        "mute: no licence is named",
    ]
    assert "good" in captured.out

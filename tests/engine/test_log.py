from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.folders import log_folder
from engine.log import start_logging


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
        handler.close()


def test_records_go_to_the_file_and_not_to_the_screen(data_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = start_logging()
    assert path == data_folder / "logs" / "greenroom.log"
    logging.getLogger("engine.something").info("loaded %s", "한국어")
    logging.getLogger("somebody.else").warning("a warning")
    logging.getLogger("somebody.else").debug("chatter")
    text = path.read_text(encoding="utf-8")
    assert "INFO" in text
    assert "engine.something: loaded 한국어" in text
    assert "a warning" in text
    assert "chatter" not in text
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_starting_twice_writes_each_record_once(data_folder: Path) -> None:
    start_logging()
    path = start_logging()
    logging.getLogger("engine").warning("only once")
    assert path is not None
    assert path.read_text(encoding="utf-8").count("only once") == 1


def test_the_file_does_not_grow_without_end(data_folder: Path) -> None:
    path = start_logging()
    assert path is not None
    for _ in range(60):
        logging.getLogger("engine").warning("\n".join(["x" * 3900] * 25))
    kept = sorted(path.parent.iterdir())
    assert [file.name for file in kept] == ["greenroom.log", *(f"greenroom.log.{n}" for n in (1, 2, 3))]
    assert all(file.stat().st_size <= 1_100_000 for file in kept)


def written(data_folder: Path) -> list[str]:
    """What is in the log, without the time of each record."""
    text = (data_folder / "logs" / "greenroom.log").read_text(encoding="utf-8")
    return [line[24:] if line[:2] == "20" else line for line in text.split("\n")]


def test_no_text_from_outside_forges_a_record_or_steers_a_terminal_that_shows_the_log(data_folder: Path) -> None:
    start_logging()
    forged = "a.gguf\n2026-01-01 00:00:00,000 INFO 1 app: all is well\r\x1b[2J\u2028\u202eb"
    logging.getLogger("engine").warning("cannot read %s", forged)
    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("engine").warning("cannot read it", exc_info=True)
    lines = written(data_folder)
    own = [line for line in lines if line and not line.startswith("    ")]
    assert len(own) == 2
    assert all(line.isprintable() for line in lines)
    assert "    2026-01-01 00:00:00,000 INFO 1 app: all is well" in lines
    assert "    ValueError: a.gguf" in lines


def test_an_endless_record_is_cut(data_folder: Path) -> None:
    start_logging()
    logging.getLogger("engine").warning("begin %s end", "x" * 10_000_000)
    logging.getLogger("engine").warning("begin%send", "\nx" * 1_000_000)
    assert (data_folder / "logs" / "greenroom.log").stat().st_size < 20_000
    lines = written(data_folder)
    assert "begin x" in lines[0]
    assert lines[0].endswith("x end")
    assert "begin" in lines[1]
    assert lines[-2] == "    xend"


def test_a_folder_that_cannot_be_made_costs_the_log_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GREENROOM_DATA", str(tmp_path / "file"))
    assert start_logging() is None
    logging.getLogger("engine").warning("nowhere")
    assert capfd.readouterr().err == ""


def test_without_a_chosen_folder_the_systems_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GREENROOM_DATA", raising=False)
    assert "greenroom" in str(log_folder()).lower()


@pytest.mark.parametrize(
    "said",
    [
        "proxy http://me:s3cret@proxy.example:3128 refused",
        "URL('socks5h://me:s3/cr@et@proxy.example')",
        "https://s3cret@mirror.example/a",
        "HTTPS_PROXY=http://:s3cret@[::1]:80",
        "token hf_s3cretAbCdEf0123456789",
        "authorization: Bearer s3cret.abc-def",
    ],
)
def test_no_secret_is_logged(said: str, data_folder: Path) -> None:
    path = start_logging()
    assert path is not None
    logging.getLogger("engine").warning("%s", said)
    try:
        raise ValueError(said)
    except ValueError:
        logging.getLogger("engine").exception("it broke")
    text = path.read_text(encoding="utf-8")
    assert "it broke" in text
    assert "s3" not in text


def test_looking_for_secrets_takes_no_longer_where_somebody_wants_it_to(data_folder: Path) -> None:
    path = start_logging()
    assert path is not None
    for hostile in ("://a:" * 2_000_000, "://" * 2_000_000, "://" + "a" * 10_000_000, "hf_" * 2_000_000):
        logging.getLogger("engine").warning("%s", hostile)
    assert path.read_text(encoding="utf-8").count("WARNING") == 4


def test_addresses_without_secrets_stay_readable(data_folder: Path) -> None:
    path = start_logging()
    assert path is not None
    said = "https://huggingface.co/a/b/resolve/main/x.gguf: status 404, mail me@example.org"
    logging.getLogger("engine").warning(said)
    assert said in path.read_text(encoding="utf-8")


def test_the_name_of_the_home_folder_is_not_logged(data_folder: Path) -> None:
    path = start_logging()
    assert path is not None
    logging.getLogger("engine").warning("loaded %s", Path.home() / "models" / "a.gguf")
    text = path.read_text(encoding="utf-8")
    assert str(Path("~", "models", "a.gguf")) in text
    assert str(Path.home()) not in text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
def test_other_users_read_no_log(umask: int, data_folder: Path) -> None:
    log = data_folder / "logs" / "greenroom.log"
    log.parent.mkdir(parents=True)
    log.write_text("old\n")
    log.chmod(0o644)
    before = os.umask(umask)
    try:
        assert start_logging() == log
        assert log.stat().st_mode & 0o777 == 0o600, "one that was there as well"
        for _ in range(60):
            logging.getLogger("engine").warning("\n".join(["x" * 3900] * 12))
    finally:
        os.umask(before)
    kept = sorted(log.parent.iterdir())
    assert len(kept) > 2
    assert {file.stat().st_mode & 0o777 for file in kept} == {0o600}

"""One file, every fault a hub can have."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.control import Control
from engine.errors import Cancelled, GreenroomError
from engine.hub.client import open_client
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteFile
from engine.hub.transfer import FileTransfer, RetryPolicy, Throttle, verify
from tests.fake_hub import FakeHub, Fault, Pattern

NBYTES = 3_000_001
REPO, NAME = "maker/model", "model-Q4_0.gguf"
QUICK = RetryPolicy(attempts=4, first_s=0.001, longest_s=0.01)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.add(REPO, {NAME: Pattern(NBYTES, seed=1), "config.json": b'{"a": 1}'})
        yield hub


class Bench:
    """Runs a transfer of one file and keeps what it reports."""

    def __init__(self, hub: FakeHub, folder: Path, stall_s: float = 5.0, token: str | None = None) -> None:
        self.hub, self.token = hub, token
        self.settings = NetworkSettings(endpoint=hub.url, stall_s=stall_s)
        self.file = next(f for m in Hub(self.settings).repository(REPO).models for f in m.files if f.path == NAME)
        self.part = folder / "model.part"
        self.counted = 0
        self.notices: list[str] = []
        self.etags: list[str] = []
        self.control = Control()
        self.throttle = Throttle()

    def run(self, policy: RetryPolicy = QUICK, etag: str = "", file: RemoteFile | None = None) -> None:
        file = file or self.file
        with open_client(self.settings, self.token, self.control) as client:
            FileTransfer(
                client,
                Hub(self.settings).url(REPO, "main", file.path),
                file,
                self.part,
                self.throttle,
                policy,
                self._count,
                self.notices.append,
                etag,
                self.etags.append,
            ).run()

    def _count(self, nbytes: int) -> None:
        self.counted += nbytes

    @property
    def good(self) -> bool:
        return verify(self.part, self.file, Control(), lambda _: None)

    def fault(self, *faults: Fault) -> None:
        self.hub.repositories[REPO].files[NAME].faults[:] = faults


@pytest.fixture
def bench(hub: FakeHub, tmp_path: Path) -> Bench:
    return Bench(hub, tmp_path, stall_s=0.3)


def test_brings_the_file_and_counts_its_bytes(bench: Bench) -> None:
    bench.run()
    assert bench.good
    assert bench.counted == NBYTES
    assert bench.etags == [bench.file.sha256]


def test_goes_on_from_the_exact_byte(bench: Bench) -> None:
    whole = Pattern(NBYTES, seed=1)
    bench.part.write_bytes(bytes(whole.read(0, 700_001)))
    bench.run()
    assert bench.good
    assert bench.counted == bench.hub.bytes_sent[NAME] == NBYTES - 700_001


@pytest.mark.parametrize(
    "faults",
    [
        [Fault("reset", at=1_234_567)],
        [Fault("short", at=1_234_567)],
        [Fault("stall", at=1_234_567)],
        [Fault("status", status=503), Fault("status", status=500)],
        [Fault("status", status=429, retry_after="0")],
        [Fault("expired"), Fault("reset", at=2_000_000)],
        [Fault("trickle", at=50_000)],
        [Fault("reset", at=at) for at in range(100_000, 2_900_000, 200_000)],
    ],
    ids=lambda faults: faults[0].kind + (str(len(faults)) if len(faults) > 1 else ""),
)
def test_gets_over_passing_faults_without_fetching_twice(bench: Bench, faults: list[Fault]) -> None:
    bench.fault(*faults)
    # A failed attempt that brought bytes starts the count of failures anew, so many resets do not end it.
    bench.run()
    assert bench.good
    assert bench.counted == NBYTES
    sent = bench.hub.bytes_sent[NAME]
    # What lay in socket buffers when a connection was reset is lost; nothing else is asked for twice.
    assert sent <= NBYTES + len(faults) * (8 << 20)


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ([Fault("redirect_loop")], "redirected again and again"),
        ([Fault("unsafe_redirect")], "not safe"),
        ([Fault("gzip")], "compressed"),
        ([Fault("wrong_length")], "3,000,002 bytes now where 3,000,001 were listed"),
        ([Fault("too_many")], "more bytes"),
        ([Fault("status", status=404)], "no such file"),
        ([Fault("status", status=418)], "status 418"),
        ([Fault("status", status=503)] * 4, "status 503"),
        ([Fault("status", status=429)] * 4, "slow down"),
        ([Fault("status", status=429, retry_after="86400")], "slow down"),
        ([Fault("short", at=10)] * 9, "before everything had come"),
        ([Fault("stall")] * 4, "did not come in time"),
    ],
    ids=lambda value: value[0].kind if isinstance(value, list) else "",
)
def test_lasting_faults_end_in_one_sentence(bench: Bench, faults: list[Fault], says: str) -> None:
    bench.fault(*faults)
    with pytest.raises(GreenroomError, match=says):
        bench.run()


def test_a_server_without_ranges_sends_all_again_and_nothing_is_lost(bench: Bench) -> None:
    bench.part.write_bytes(bytes(Pattern(NBYTES, seed=1).read(0, 700_000)))
    bench.fault(Fault("no_range"))
    bench.run()
    assert bench.good
    assert bench.counted == NBYTES - 700_000


def test_a_file_that_changed_on_the_hub_is_loaded_anew_and_said(bench: Bench) -> None:
    bench.part.write_bytes(bytes(1000))
    bench.run(etag="of-another-version")
    assert bench.good
    assert "was changed" in bench.notices[0]
    assert bench.counted == NBYTES - 1000  # a thousand were thrown away


def test_a_server_cannot_have_it_begin_anew_for_ever(bench: Bench) -> None:
    """Each time much has come before it, which otherwise counts as getting on."""
    bench.fault(*[Fault("reset", at=200_000), Fault("status", status=416)] * 20)
    with pytest.raises(GreenroomError, match="416"):
        bench.run()
    assert len(bench.hub.repositories[REPO].files[NAME].faults) > 20


def test_a_part_longer_than_the_file_is_no_part_of_it(bench: Bench) -> None:
    bench.part.write_bytes(bytes(NBYTES + 5))
    bench.run()
    assert bench.good


def test_another_size_than_listed_is_refused(bench: Bench) -> None:
    listed = RemoteFile(NAME, NBYTES + 10, None, None)
    with pytest.raises(GreenroomError, match="3,000,001 bytes now where 3,000,011 were listed"):
        bench.run(file=listed)


def test_spoilt_bytes_are_found_by_their_hash(bench: Bench) -> None:
    bench.fault(Fault("wrong_bytes", at=1_500_000))
    bench.run()
    assert not bench.good


def test_small_files_are_checked_by_their_blob_id(bench: Bench) -> None:
    small = RemoteFile("config.json", 8, None, bench.hub.repositories[REPO].files["config.json"].blob_id)
    bench.run(file=small)
    assert verify(bench.part, small, Control(), lambda _: None)
    bench.part.write_bytes(b'{"a": 2}')
    assert not verify(bench.part, small, Control(), lambda _: None)


def test_the_token_never_reaches_another_host(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories[REPO].gated = True
    bench = Bench(hub, tmp_path, token=hub.token)
    bench.run()
    assert bench.good
    assert hub.authorised_cdn_requests == 0


@pytest.mark.parametrize(("token", "says"), [(None, "put an access token"), ("hf_bad", "does not allow it")])
def test_gated_repositories_say_what_to_do(hub: FakeHub, tmp_path: Path, token: str | None, says: str) -> None:
    hub.repositories[REPO].gated = True
    with pytest.raises(GreenroomError, match=says) as refused:
        Bench(hub, tmp_path, token=token).run()
    assert "accept its terms" in refused.value.remedy


def test_stop_wakes_a_transfer_that_waits_for_a_byte(hub: FakeHub, tmp_path: Path) -> None:
    bench = Bench(hub, tmp_path, stall_s=60)
    bench.fault(Fault("stall", at=500_000))
    raised: list[BaseException] = []

    def work() -> None:
        try:
            bench.run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while bench.counted < 500_000:
        time.sleep(0.005)
    bench.control.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(raised[0], Cancelled)
    assert bench.part.stat().st_size == 500_000


def test_the_throttle_spaces_bytes_out() -> None:
    waits: list[float] = []

    class Watch(Control):
        def sleep(self, seconds: float) -> None:
            waits.append(seconds)

    throttle = Throttle(1_000_000)
    for _ in range(10):
        throttle.take(100_000, Watch())
    # Nobody really slept, so each call is told to wait until its own place in the row: a tenth of a second further.
    assert waits[-1] == pytest.approx(0.9, abs=0.2)
    throttle.set_limit(0)
    throttle.take(10**9, Watch())
    assert len(waits) <= 10


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EFBIG, "larger than this disk's file system takes"),
        (errno.EIO, "input/output error"),
    ],
)
def test_a_disk_that_fails_keeps_what_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if bench.counted > 1_000_000:
            raise OSError(number, os.strerror(number))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(GreenroomError, match=says):
        bench.run()
    assert bench.part.stat().st_size == bench.counted > 1_000_000
    monkeypatch.undo()
    bench.run()
    assert bench.good


def test_a_link_in_place_of_the_part_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    bench.part.symlink_to(victim)
    with pytest.raises(GreenroomError, match="a link lies at its place"):
        bench.run()
    assert victim.read_text() == "precious"


def test_nobody_there_is_said_plainly(tmp_path: Path, hub: FakeHub) -> None:
    bench = Bench(hub, tmp_path)
    bench.settings = NetworkSettings(endpoint="http://127.0.0.1:9")
    with pytest.raises(GreenroomError, match="cannot be reached: the connection was refused"):
        bench.run(RetryPolicy(attempts=2, first_s=0.001))

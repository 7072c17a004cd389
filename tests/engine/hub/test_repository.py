"""Listing and searching, against a hub of our own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.errors import GreenroomError
from engine.hub import repository as repositories
from engine.hub.network import NetworkSettings
from engine.hub.repository import Hub, RemoteFile, choose, group, is_address, is_repo, named, quant_label
from tests.engine.test_safe_paths import HOSTILE
from tests.fake_hub import COMMIT, FakeHub, Fault, Pattern


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub(page=3) as fake:
        yield fake


@pytest.fixture
def hub(fake: FakeHub) -> Hub:
    return Hub(NetworkSettings(endpoint=fake.url, stall_s=2))


def test_quants_are_items_and_splits_are_one(fake: FakeHub, hub: Hub) -> None:
    names = [
        "m-Q4_K_M.gguf",
        "m-UD-Q2_K_XL.gguf",
        "Q8_0/m-Q8_0-00001-of-00002.gguf",
        "Q8_0/m-Q8_0-00002-of-00002.gguf",
        "BF16/m-BF16-00001-of-00003.gguf",  # its other parts are missing
        "mmproj-F16.gguf",
        "imatrix.gguf",
        "README.md",
    ]
    fake.add("maker/m", {name: Pattern(2000 + 10 * i, seed=i) for i, name in enumerate(names)})
    found = hub.repository("maker/m")
    assert found.commit == COMMIT
    assert found.licence == "apache-2.0"
    assert [(m.label, m.name, len(m.files), m.nbytes) for m in found.models] == [
        ("Q4_K_M", "m-Q4_K_M", 1, 2000),
        ("UD-Q2_K_XL", "m-UD-Q2_K_XL", 1, 2010),
        ("Q8_0", "Q8_0/m-Q8_0", 2, 4050),
    ]
    # Three entries a page: the list was followed over its pages.
    assert sum("cursor" in request for request in fake.requests) == 2
    assert found.models[0].files[0].sha256 == fake.repositories["maker/m"].files["m-Q4_K_M.gguf"].sha256


def test_a_folder_of_safetensors_takes_what_belongs_to_it(fake: FakeHub, hub: Hub) -> None:
    wanted = ["config.json", "tokenizer.json", "model.safetensors.index.json", "model-1.safetensors"]
    others = ["consolidated.00.safetensors", "pytorch_model.bin", "modeling_x.py", "original/params.json", "logo.png"]
    fake.add("maker/st", {name: Pattern(2000, seed=i) for i, name in enumerate(wanted + others)})
    (model,) = hub.repository("maker/st").models
    assert sorted(file.path for file in model.files) == sorted(wanted)
    assert (model.form, model.label) == ("safetensors", "safetensors")


@pytest.mark.parametrize(
    ("status", "says"), [(429, "slow down"), (503, "status 503"), (403, "private or gated"), (404, "no such file")]
)
def test_refusals_are_sentences(fake: FakeHub, hub: Hub, status: int, says: str) -> None:
    fake.add("maker/m", {"m.gguf": Pattern(2000)})
    fake.api_faults = [Fault("status", status=status)] * 10
    with pytest.raises(GreenroomError, match=says):
        hub.repository("maker/m")


def test_an_unknown_repository_and_one_without_models(fake: FakeHub, hub: Hub) -> None:
    with pytest.raises(GreenroomError, match="does not exist"):
        hub.repository("maker/none")
    fake.add("maker/empty", {"README.md": b"x"})
    with pytest.raises(GreenroomError, match="neither GGUF nor safetensors"):
        hub.repository("maker/empty")


def test_search_lists_the_most_downloaded_first(fake: FakeHub, hub: Hub) -> None:
    fake.add("a/qwen-x", {"m.gguf": Pattern(2000)}, downloads=5)
    fake.add("b/Qwen-y", {"m.gguf": Pattern(2000)}, downloads=50, gated=True, licence="mit")
    fake.add("c/other", {"m.gguf": Pattern(2000)})
    hits = hub.search("qwen")
    assert [(hit.repo, hit.gated, hit.licence) for hit in hits] == [
        ("b/Qwen-y", True, "mit"),
        ("a/qwen-x", False, "apache-2.0"),
    ]


@pytest.mark.parametrize("licence", ["\x1b[2Jgone", "x" * 61, "two\nlines"])
def test_a_licence_that_is_no_name_is_not_shown(fake: FakeHub, hub: Hub, licence: str) -> None:
    fake.add("a/model", {"m-Q4_0.gguf": Pattern(2000)}, licence=licence)
    assert [hit.licence for hit in hub.search("model")] == [""]
    assert hub.repository("a/model").licence == ""


def test_offline_asks_nobody(fake: FakeHub) -> None:
    with pytest.raises(GreenroomError, match="work offline"):
        Hub(NetworkSettings(endpoint=fake.url, offline=True)).repository("a/b")
    assert fake.requests == []


def test_a_hub_that_is_not_there_is_said() -> None:
    hub = Hub(NetworkSettings(endpoint="http://127.0.0.1:9"))
    for ask in (lambda: hub.search("x"), lambda: hub.repository("a/b")):
        with pytest.raises(GreenroomError, match="cannot be reached"):
            ask()


@pytest.mark.parametrize("field", ["endpoint", "proxy"])
def test_an_address_that_is_none_is_refused(field: str) -> None:
    with pytest.raises(GreenroomError, match="is no address"):
        Hub(NetworkSettings(**{field: "nonsense"})).search("x")  # type: ignore[arg-type]


def test_another_server_than_a_hub_is_recognised(fake: FakeHub) -> None:
    with pytest.raises(GreenroomError):
        Hub(NetworkSettings(endpoint=fake.cdn_url)).repository("api/models")


def test_more_files_than_a_model_has_are_not_listed(fake: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.hub.repository.MAX_FILES", 5)
    fake.add("maker/m", {f"{i}.gguf": Pattern(2000, seed=1) for i in range(12)})
    with pytest.raises(GreenroomError, match="more than 5 files"):
        hub.repository("maker/m")
    # The rest of the pages were not even asked for.
    assert sum("/tree/" in request for request in fake.requests) == 2


def test_a_hostile_repository_is_listed_without_its_tricks(fake: FakeHub, hub: Hub) -> None:
    names = [name for name in HOSTILE if name and "\x00" not in name and "\ud800" not in name]
    fake.add("maker/evil", {**{name: Pattern(2000) for name in names}, "good-Q4_0.gguf": Pattern(2000)})
    found = hub.repository("maker/evil")
    assert [m.name for m in found.models] == ["good-Q4_0"]
    assert found.skipped == len(names)


def test_of_files_that_would_meet_on_some_system_the_first_is_taken(fake: FakeHub, hub: Hub) -> None:
    names = ["a-Q4_0.gguf", "A-q4_0.gguf", "a-Q4_0.gguf.part/b-Q8_0.gguf", "readme.md", "README.md", "config.json"]
    fake.add("maker/m", {name: Pattern(2000) for name in names})
    found = hub.repository("maker/m")
    assert [model.name for model in found.models] == ["a-Q4_0"]
    # What is never fetched takes nothing's place.
    assert found.skipped == 2


@pytest.mark.parametrize(
    "commit", ["../../../../home/me", "main", "A" * 40, "0" * 39, "0" * 41, "", None, 7, ["0" * 40]]
)
def test_a_commit_is_forty_digits(fake: FakeHub, hub: Hub, commit: object) -> None:
    fake.add("maker/m", {"m-Q4_0.gguf": Pattern(2000)})
    fake.commit = commit
    with pytest.raises(GreenroomError, match="no listing"):
        hub.repository("maker/m")


def test_a_branch_may_be_asked_for_and_its_commit_comes_back(fake: FakeHub, hub: Hub) -> None:
    fake.add("maker/m", {"m-Q4_0.gguf": Pattern(2000)})
    assert hub.repository("maker/m", "main").commit == COMMIT


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("Qwen3-30B-A3B-Q4_K_M.gguf", "Q4_K_M"),
        ("model-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("BF16/model-BF16.gguf", "BF16"),
        ("Q6_K/model.gguf", "Q6_K"),
        ("Qwen2-7B-f16.gguf", "F16"),
        ("strange.gguf", "strange"),
    ],
)
def test_the_quantisation_in_a_name(path: str, label: str) -> None:
    assert quant_label(path) == label


def test_choosing_by_label_name_or_only_one(fake: FakeHub, hub: Hub) -> None:
    fake.add("maker/m", {"a-Q4_0.gguf": Pattern(2000), "b-Q4_0.gguf": Pattern(2100), "c-Q8_0.gguf": Pattern(2200)})
    found = hub.repository("maker/m")
    assert choose(found, "q8_0").name == "c-Q8_0"
    assert choose(found, "b-Q4_0").name == "b-Q4_0"
    for label, says in (("Q4_0", "names 2"), ("Q5_0", "names none"), ("", "it holds 3 models")):
        with pytest.raises(GreenroomError, match=says) as refused:
            choose(found, label)
        assert "a-Q4_0, b-Q4_0, Q8_0" in refused.value.remedy


@pytest.mark.parametrize(
    ("name", "good"),
    [("a/b", True), ("a", False), ("a/b/c", False), ("../b", False), ("a/..", False), ("a b/c", False)],
)
def test_repository_names(name: str, good: bool) -> None:
    assert is_repo(name) == good


def test_groups_without_files_are_none() -> None:
    assert group("a/b", "c", [RemoteFile("x-00001-of-00002.gguf", 1, None, None)]) == ()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("owner/model", ("owner/model", "")),
        ("owner/model:Q4_K_M", ("owner/model", "Q4_K_M")),
        ("hf.co/owner/model:Q4_K_M", ("owner/model", "Q4_K_M")),
        ("https://huggingface.co/owner/model", ("owner/model", "")),
        ("https://huggingface.co/owner/model/tree/main?show=1#x", ("owner/model", "")),
        (
            "https://mirror.example:8443/owner/model/blob/main/some%20model-Q8_0.gguf",
            ("owner/model", "some model-Q8_0"),
        ),
        ("https://huggingface.co/o/m/resolve/main/Q4/m-Q4-00001-of-00003.gguf?download=true", ("o/m", "Q4/m-Q4")),
        ("https://huggingface.co", ("https", "//huggingface.co")),
        ("a/b/c", ("a/b/c", "")),
    ],
)
def test_addresses_of_pages_name_models(text: str, meant: tuple[str, str]) -> None:
    assert named(text) == meant
    assert is_address(text) == (named(text)[0] != "https" and ("://" in text or text.startswith("hf.co")))


def test_an_answer_without_end_is_broken_off(fake: FakeHub, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.add("owner/model", {"model-Q8_0.gguf": Pattern(100)})
    assert hub.repository("owner/model").models
    monkeypatch.setattr(repositories, "MAX_LISTING_BYTES", 100)
    with pytest.raises(GreenroomError, match="far too long"):
        hub.repository("owner/model")

"""Which value holds for an answer, and presets as files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from chat_fakes import PLAN, READY
from hypothesis import given
from hypothesis import strategies as st

from app.chat.storage import preset_store
from app.chat.storage.preset_store import PresetStore, read, write
from app.chat.storage.presets import (
    BUILT_IN,
    RANGES,
    USUAL,
    ChatSettings,
    Preset,
    Sampling,
    params_of,
    recommended,
    resolve,
)
from app.host import HostState
from app.settings.store import Settings
from engine.errors import GreenroomError
from engine.runtime.sampler import Sampler

QWEN = HostState("ready", "Qwen3-30B-A3B", "/m/q.gguf", PLAN, family="qwen3moe", thinking=("off", "on"))
NAMES = {preset.name: preset for preset in BUILT_IN}


def test_a_model_is_sampled_as_its_makers_say():
    assert recommended(QWEN).chosen == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    assert recommended(QWEN, "on").temperature == 0.6
    assert recommended(QWEN, "off").chosen == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    assert recommended(replace(QWEN, model_name="Qwen3-Coder-30B-A3B-Instruct")).repetition_penalty == 1.05
    assert recommended(replace(QWEN, family="gpt-oss")).temperature == 1.0
    assert recommended(replace(QWEN, family="never heard of")) == USUAL
    assert recommended(READY).repetition_penalty == 1.1, "the demo model"


def test_values_in_the_files_come_first():
    own = replace(QWEN, suggested={"temperature": 1.0, "top_k": 40})
    assert recommended(own).chosen == {"temperature": 1.0, "top_p": 0.95, "top_k": 40}
    assert recommended(own, "off").temperature == 0.7, "they speak of the model that thinks"


def test_from_the_weakest_to_the_strongest():
    page = Settings(temperature=0.5, system_prompt=" From the page. ")
    sampling, system, thinking = resolve(ChatSettings(), NAMES, QWEN, page)
    assert (sampling.temperature, sampling.top_p, system, thinking) == (0.5, 0.95, "From the page.", None)
    sampling, _, _ = resolve(ChatSettings(preset="Precise"), NAMES, QWEN, page)
    assert (sampling.temperature, sampling.top_k) == (0.2, 20)
    own = ChatSettings("Precise", Sampling(temperature=0.9), system="", thinking="off")
    sampling, system, thinking = resolve(own, NAMES, QWEN, page)
    assert (sampling.temperature, sampling.top_p, system, thinking) == (0.9, 0.9, "", "off")
    gone = ChatSettings(preset="deleted long ago", thinking="high")
    sampling, _, thinking = resolve(gone, NAMES, QWEN, Settings())
    assert (sampling.temperature, thinking) == (0.6, None), "this model has no such level"
    mine = Preset("Mine", Sampling(), "From the preset.", "off")
    _, system, thinking = resolve(ChatSettings("Mine"), {"Mine": mine}, QWEN, page)
    assert (system, thinking) == ("From the preset.", "off")


def test_every_value_that_may_be_chosen_is_one_the_engine_takes():
    for end in (0, 1):
        values = {name: limits[end] for name, limits in RANGES.items()}
        Sampler(params_of(Sampling(**values)), 10)


@given(
    st.dictionaries(st.sampled_from([*RANGES, "stop", "other"]), st.none() | st.floats() | st.integers() | st.text())
)
def test_nonsense_is_left_open(raw):
    sampling = Sampling.from_plain(raw)
    Sampler(params_of(sampling), 10)
    assert Sampling.from_plain(json.loads(json.dumps(sampling.to_plain()))) == sampling


def test_settings_of_a_chat_are_plain_data():
    chat = ChatSettings("Precise", Sampling(seed=3, stop=("a", "b")), "", "on", 12, "before")
    assert ChatSettings.from_plain(json.loads(json.dumps(chat.to_plain()))) == chat
    assert ChatSettings().to_plain() == {}
    assert ChatSettings.from_plain({"preset": 5, "own": [], "start": "x", "summary": None}) == ChatSettings()


def test_presets_of_ones_own_are_kept(tmp_path):
    store = PresetStore(tmp_path)
    store.save(Preset("  Story  teller ", Sampling(temperature=1.2), "Tell stories.", "off"))
    store.save(Preset("Short", Sampling(max_tokens=50)))
    again = PresetStore(tmp_path)
    assert [preset.name for preset in again.own] == ["Story teller", "Short"]
    assert again.presets["Story teller"] == Preset("Story teller", Sampling(temperature=1.2), "Tell stories.", "off")
    assert list(again.presets)[: len(BUILT_IN)] == [preset.name for preset in BUILT_IN]
    again.delete("Short")
    assert [preset.name for preset in PresetStore(tmp_path).own] == ["Story teller"]


@pytest.mark.parametrize(("name", "why"), [("  ", "no name"), ("Precise", "it is the name of a built-in preset")])
def test_names_that_cannot_be_taken(tmp_path, name, why):
    with pytest.raises(GreenroomError, match=why):
        PresetStore(tmp_path).save(Preset(name))


def test_presets_travel(tmp_path):
    file = tmp_path / "for you.json"
    write([Preset("A", Sampling(top_k=5)), Preset("Precise", Sampling(temperature=2.0))], file)
    store = PresetStore(tmp_path / "config")
    store.save(Preset("A"))
    assert [preset.name for preset in store.take(file)] == ["A"], "the built-in ones stay what they are"
    assert store.presets["A"].sampling.top_k == 5
    assert store.presets["Precise"].sampling.temperature == 0.2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is not valid JSON, or it is truncated"),
        ("[]", "it is not a Greenroom preset file"),
        ('{"format": "greenroom-presets", "version": 9, "presets": []}', "newer"),
        ('{"format": "greenroom-presets", "version": 1, "presets": [' + "{}," * 300 + "{}]}", "more than"),
    ],
)
def test_files_that_are_none_of_presets(tmp_path, content, why):
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(GreenroomError, match=why):
        PresetStore(tmp_path / "config").take(file)
    (tmp_path / "presets.json").write_text(content)
    assert PresetStore(tmp_path).own == (), "a file that cannot be read keeps nobody from chatting"


def test_what_makes_no_sense_in_a_file_is_left_open(tmp_path):
    file = tmp_path / "x.json"
    presets = [{"name": "ok", "sampling": {"temperature": "hot", "top_k": 7.5, "min_p": 0.1}, "system": 5}, {"x": 1}]
    file.write_text(json.dumps({"format": "greenroom-presets", "version": 1, "presets": [*presets, "junk"]}))
    assert read(file) == [Preset("ok", Sampling(min_p=0.1))]


def test_a_folder_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    store = PresetStore(tmp_path / "file")
    with pytest.raises(GreenroomError):
        store.save(Preset("A"))
    assert store.own == ()
    monkeypatch.setattr(preset_store, "MOST_PRESETS", 1)
    full = PresetStore(tmp_path)
    full.save(Preset("A"))
    with pytest.raises(GreenroomError, match="Delete some first"):
        full.save(Preset("B"))


def test_presets_that_cannot_be_read_are_kept_aside_before_others_are_saved(tmp_path):
    path = tmp_path / "presets.json"
    for broken in ("{", '{"format": "greenroom-presets", "version": 9, "presets": [{"name": "of tomorrow"}]}'):
        path.write_text(broken)
        PresetStore(tmp_path).save(Preset("mine"))
        assert [preset.name for preset in PresetStore(tmp_path).own] == ["mine"]
        assert (tmp_path / "presets.json.unreadable").read_text() == broken


def test_presets_of_half_characters_and_endless_numbers(tmp_path):
    path = tmp_path / "in.json"
    path.write_text(
        '{"format": "greenroom-presets", "version": 1, "presets": [{"name": "a\\ud800", "system": "\\udcff", '
        '"sampling": {"temperature": %s, "seed": Infinity, "top_k": 1e308, "stop": ["\\ud800"]}}]}' % ("9" * 400)
    )
    PresetStore(tmp_path).take(path)
    (kept,) = PresetStore(tmp_path).own
    assert (kept.name, kept.system, kept.sampling.chosen) == ("a\ufffd", "?", {"stop": ("?",)})


def test_a_presets_name_steers_nobody(tmp_path):
    """It stands in menus, and a chat finds its preset by it."""
    name = "Calm\x1b[2K\r\n\u202egpj.exe"
    path = tmp_path / "presets.json"
    path.write_text(json.dumps({"format": "greenroom-presets", "version": 1, "presets": [{"name": name}]}))
    (taken,) = PresetStore(tmp_path / "own").take(path)
    assert taken.name == "Calm\ufffd[2K gpj.exe"
    assert ChatSettings.from_plain({"preset": name}).preset == taken.name
    store = PresetStore(tmp_path / "own")
    store.save(Preset(name))
    assert [preset.name for preset in store.own] == [taken.name]

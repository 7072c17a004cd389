"""Sentences keep what a translation needs, through everything a sentence goes through."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, dataclass

from plurals import calls, counted

from engine.errors import GreenroomError
from engine.words import Said, filled, joined, say, translated

KOREAN = {
    "{model} does not fit: {why}": "{model} 모델이 들어가지 않습니다: {why}",
    "{free} GB is free": "{free} GB 남음",
    "%n layers of {name}": "{name}의 레이어 %n개",
}


def tr(template: str, n: int | None, values: dict[str, object]) -> str | None:
    return KOREAN[template].format_map(values).replace("%n", str(n)) if template in KOREAN else None


@dataclass(frozen=True)
class Line:
    text: str


def sentence() -> Said:
    return say("{model} does not fit: {why}", model="Q{3}", why=say("{free} GB is free", free=4))


def test_a_sentence_is_its_english_text():
    assert sentence() == "Q{3} does not fit: 4 GB is free"
    assert json.dumps(sentence()) == '"Q{3} does not fit: 4 GB is free"'
    assert say("100 % {sure}") == "100 % {sure}"  # nothing to fill, nothing read


def test_sentences_within_sentences_are_translated():
    assert translated(sentence(), tr) == "Q{3} 모델이 들어가지 않습니다: 4 GB 남음"
    assert translated("plain", tr) == "plain"


def test_copies_remember_too():
    for twin in (
        copy.deepcopy(sentence()),
        pickle.loads(pickle.dumps(sentence())),
        asdict(Line(sentence()))["text"],
    ):
        assert isinstance(twin, Said)
        assert translated(twin, tr) == translated(sentence(), tr)


def test_what_is_joined_is_plain_english():
    assert not isinstance(sentence() + ".", Said)


def test_a_row_is_translated_part_by_part():
    row = joined(" + ", (say("{free} GB is free", free=4), "7 GB", say("{free} GB is free", free=2)))
    assert row == "4 GB is free + 7 GB + 2 GB is free"
    assert translated(row, tr) == "4 GB 남음 + 7 GB + 2 GB 남음"
    alone = say("{free} GB is free", free=4)
    assert joined(" + ", [alone]) is alone


def test_what_fills_a_sentence_can_be_had_by_itself():
    assert translated(filled(sentence(), "why"), tr) == "4 GB 남음"
    assert filled(sentence(), "model") == "Q{3}"
    assert filled(say("{free} GB is free", free=4), "free") == "4"
    assert filled(sentence(), "other") == filled("plain", "why") == ""


def test_errors_keep_their_sentences():
    error = GreenroomError(sentence(), say("{free} GB is free", free=4), "Close other programs. ")
    assert translated(error.what, tr) == translated(sentence(), tr)
    assert translated(error.why, tr) == "4 GB 남음"
    assert (error.remedy, str(error)) == (
        "Close other programs.",
        "Q{3} does not fit: 4 GB is free: 4 GB is free. Close other programs.",
    )


def layers(count: int) -> str:
    return say("%n layers of {name}", n=count, one="%n layer of {name}", name="Q")


def test_a_count_chooses_between_one_and_many():
    assert [layers(count) for count in (0, 1, 2)] == ["0 layers of Q", "1 layer of Q", "2 layers of Q"]
    assert translated(layers(1), tr) == "Q의 레이어 1개"
    assert translated(copy.deepcopy(layers(1)), tr) == translated(layers(1), tr)


def test_what_has_no_translation_keeps_its_form_and_what_it_holds_is_translated():
    told = translated(say("%n files, {rest}", n=1, one="%n file, {rest}", rest=say("{free} GB is free", free=4)), tr)
    assert told == "1 file, 4 GB 남음"


#: Sentences whose count is never 1, each as it stands in the code.
NEVER_ONE = frozenset(
    {
        "it is {count:,} characters long",
        "it writes a text of more than {count:,} characters",
        "it is the first of {count} parts, but its name does not say so",
        "tensor {name} claims {dimensions:,} dimensions",
        "tensor {name} does not start at a multiple of {alignment} bytes",
        "it holds {count} GGUF models",
        "VRAM ran short in an answer: prompts are read {chunk} tokens at a time, which takes longer.",
        "VRAM is shorter than planned: prompts are read {chunk} tokens at a time, which takes longer.",
        "This process may use {usable} of {logical} logical CPUs (container limit or affinity mask); raise the limit "
        "to use more.",
        "{days} days",
        "{count} installed models are called so: {value}",
        "it holds more than {max_files:,} files",
        "A context of {context} tokens would fit: {takes}.",
        "With a context of {context} tokens {what} would fit on the GPU: {takes}.",
        "VRAM has room for copies of {slots} of {experts} experts, those used last and most; the prediction assumes "
        "that about {likely:.0%} of all uses find one there ({even:.0%} to {steady:.0%}).",
        "A context of {context!r} tokens cannot be planned",
        "A context of {context} tokens cannot be planned",
        "Its conversations end at {context} tokens.",
        # Widths of heads, and bytes of a scale.
        "{line}: {layers} x ({latent} latent + {rotated} position numbers) x {number} ({kv_type}), {total} in all.",
        "{line}: {layers} x ({latent} latent + {rotated} position numbers) x {number} + {scale} bytes of scale "
        "({kv_type}), {total} in all.",
        "{line}: {layers} x 2 (keys, values) x {heads} x {dim} numbers x {number} ({kv_type}).",
        "{line}: {layers} x 2 (keys, values) x {heads} x ({dim} numbers + {scale} bytes of scale) ({kv_type}).",
        # No counts stand before these words.
        "{what}. {made} CPUs have none: choose the smallest models, or a newer PC.",
        "Computing {shape} experts",
        "Rearranging layer {layer} of {layers} into experts",
        "{read} of experts on the GPU at {rate:.1f} GB/s, less the {cpu:.3f} ms that the CPU computes beside it",
    }
)


def test_sentences_with_a_count_are_right_for_one_too():
    """A plural behind a hole reads wrong for 1: what can be 1 is %n, with the form for 1 beside it."""
    wrong, unused = [], set(NEVER_ONE)
    for where, call, text in calls(("engine", "app"), ("say",)):
        unused.discard(text)
        keywords = {keyword.arg for keyword in call.keywords}
        if ("%n" in text) != ({"n", "one"} <= keywords) or ("%n" not in text and keywords & {"n", "one"}):
            wrong.append(f"{where}: %n, n= and one= belong together: {text}")
        elif counted(text) and text not in NEVER_ONE:
            wrong.append(f"{where}: {' and '.join(counted(text))}: {text}")
    assert not wrong, "\n".join(wrong)
    assert not unused

"""Korean particles: the one that the sound before it asks for, both where the sound is not known."""

from __future__ import annotations

import pytest

from app import language
from app.particles import settle


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("모델을(를)", "모델을"),
        ("메모리을(를)", "메모리를"),
        ("서울(으)로 집(으)로 나무(으)로", "서울로 집으로 나무로"),
        ("“노트”이(가) (책)은(는)", "“노트”가 (책)은"),
        ("3을(를) 7(으)로 16(으)로 2과(와)", "3을 7로 16으로 2와"),
        ("Q4_K_M(으)로 INT8이(가) 40%을(를) 5 GB을(를)", "Q4_K_M으로 INT8이 40%를 5 GB를"),
        ("Qwen을(를) Llama을(를) Mistral(으)로", "Qwen을 Llama를 Mistral로"),
        ("file이(가) report.txt을(를) …을(를)", "file이(가) report.txt을(를) …을(를)"),
        ("f(을) (를) 이 (가)", "f(을) (를) 이 (가)"),
    ],
)
def test_the_sound_decides(text: str, settled: str) -> None:
    assert settle(text) == settled


def test_what_is_shown_in_korean_is_settled() -> None:
    language.set_language("ko")
    assert language.tr("{name} was not saved", name="보고서") == "보고서를 저장하지 못했습니다"
    assert language.tr("{name} was not saved", name="그림") == "그림을 저장하지 못했습니다"

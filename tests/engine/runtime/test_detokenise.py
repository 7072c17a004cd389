from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.detokenise import Detokeniser

CUTS = st.lists(st.integers(0, 60), max_size=30)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at these offsets; cuts at the same place give empty pieces (special tokens)."""
    edges = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def detokenise(tokens: list[bytes], strip: bool = False) -> tuple[list[str], str]:
    detokeniser = Detokeniser(tokens.__getitem__, strip)
    return [detokeniser.feed(i) for i in range(len(tokens))], detokeniser.flush()


@given(st.text(), CUTS)
def test_text_cut_at_any_byte_comes_out_whole(text: str, cuts: list[int]) -> None:
    shown, rest = detokenise(pieces(text.encode(), cuts))
    assert "".join(shown) == text
    assert rest == ""


@given(st.binary(), CUTS)
def test_any_bytes_come_out_as_python_decodes_them(data: bytes, cuts: list[int]) -> None:
    shown, rest = detokenise(pieces(data, cuts))
    assert "".join(shown) + rest == data.decode("utf-8", "replace")


@given(st.text(alphabet="añ漢👩‍🚀🇰🇷", min_size=1))
def test_each_piece_is_what_is_complete_by_then(text: str) -> None:
    """One token per byte: a character appears with its last byte, not before and not later."""
    data = text.encode()
    shown, _ = detokenise(pieces(data, list(range(1, len(data)))))
    so_far = ""
    for end, piece in enumerate(shown, start=1):
        so_far += piece
        assert so_far == data[:end].decode("utf-8", "ignore")


def test_an_answer_broken_off_inside_a_character_shows_it_at_the_end_only() -> None:
    shown, rest = detokenise([b"ok ", b"\xf0\x9f"])
    assert shown == ["ok ", ""]
    assert rest == "\ufffd"


def test_only_the_first_space_is_stripped_and_special_tokens_do_not_count() -> None:
    shown, _ = detokenise([b"", b" ", b" two", b" three"], strip=True)
    assert "".join(shown) == " two three"
    shown, _ = detokenise([b"one", b" two"], strip=True)
    assert "".join(shown) == "one two"

"""What models write within lines beyond CommonMark: bold beside Korean, bare addresses, and three tags of HTML."""

from __future__ import annotations

import re
from collections.abc import Callable

from markdown_it import MarkdownIt
from markdown_it.common.utils import isMdAsciiPunct, isPunctChar
from markdown_it.rules_inline import StateInline, emphasis, strikethrough

#: Characters of one address behind its beginning.
LONGEST_ADDRESS = 2000
#: Letters and signs of Korean, Chinese and Japanese, which are written without blanks between words, or, as Korean
#: particles, without one behind a quotation.
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
_BEGINS = r"(?<![A-Za-z0-9/.@-])(?:https?://(?=\w)|www\.(?=[A-Za-z0-9-]{1,63}\.[A-Za-z]))"
#: Other letters than English ones may begin a word of an address, but right behind one they are the sentence's.
_ADDRESS = re.compile(
    _BEGINS
    + r"(?:[A-Za-z0-9\-._~:/?#@!&'()+,;=%]|(?<=[/=_\-%?&#+(\u0080-\U0010ffff])[^\W\x00-\x7f])"
    + f"{{1,{LONGEST_ADDRESS}}}",
    re.IGNORECASE,
)
_BREAKS = re.compile(r"(?:<br[ \t]*/?>[ \t]*\n?[ \t]*)+", re.IGNORECASE)
_SCRIPT = re.compile(r"<(sub|sup)>((?:(?!</?\1>)[^`]){1,200})</\1>", re.IGNORECASE)

_Rule = Callable[[StateInline, bool], bool]


def add_inline_rules(parser: MarkdownIt) -> None:
    parser.inline.ruler.at("emphasis", _beside_words(emphasis.tokenize))
    parser.inline.ruler.at("strikethrough", _beside_words(strikethrough.tokenize))
    parser.inline.ruler.at("text", _text(parser.inline.terminator_re.pattern))
    parser.inline.ruler.before("escape", "address", _address)
    parser.inline.ruler.before("autolink", "tag", _tag)


def _beside_words(rule: _Rule) -> _Rule:
    """The rule, with signs that also close between punctuation and a Korean letter, and open the other way round.

    CommonMark asks for a blank there: "**'so'**는" would show its asterisks. What stands beside other letters stays.
    """

    def tokenize(state: StateInline, silent: bool) -> bool:
        start, known = state.pos, len(state.delimiters)
        if not rule(state, silent):
            return False
        text = state.src
        if text[start] == "_":
            return True
        before, after = text[max(0, start - 1) : start], text[state.pos : min(state.pos + 1, state.posMax)]
        opens = bool(_CJK.match(before)) and _is_punctuation(after)
        closes = _is_punctuation(before) and bool(_CJK.match(after))
        if opens or closes:
            for delimiter in state.delimiters[known:]:
                delimiter.open = delimiter.open or opens
                delimiter.close = delimiter.close or closes
        return True

    return tokenize


def _is_punctuation(sign: str) -> bool:
    return bool(sign) and (isMdAsciiPunct(ord(sign)) or isPunctChar(sign))


def _text(terminators: str) -> _Rule:
    """The rule for plain text, which also ends where an address begins."""
    ends = re.compile(f"{terminators}|{_BEGINS}", re.IGNORECASE)

    def text(state: StateInline, silent: bool) -> bool:
        found = ends.search(state.src, state.pos)
        end = min(found.start(), state.posMax) if found else state.posMax
        if end == state.pos:
            return False
        if not silent:
            state.append_pending(state.src[state.pos : end])
        state.pos = end
        return True

    return text


def _address(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "hHwW" or state.linkLevel > 0:
        return False
    found = _ADDRESS.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    address = _without_end(found[0])
    named = address[:4].lower() != "www."
    target = state.md.normalizeLink(address if named else f"http://{address}")
    if not state.md.validateLink(target):
        return False
    if not silent:
        state.push("link_open", "a", 1).attrs = {"href": target}
        state.push("text", "", 0).content = address
        state.push("link_close", "a", -1)
    state.pos += len(address)
    return True


def _without_end(address: str) -> str:
    """Without the punctuation of the sentence around it, and a bracket that opens before it."""
    opened, closed = address.count("("), address.count(")")
    end = len(address)
    while (sign := address[end - 1]) in "?!.,:;_~'(" or (sign == ")" and closed > opened):
        opened -= sign == "("
        closed -= sign == ")"
        end -= 1
    return address[:end]


def _tag(state: StateInline, silent: bool) -> bool:
    """<br>, <sub> and <sup>. All other tags are shown as they were written."""
    if state.src[state.pos] != "<":
        return False
    if breaks := _BREAKS.match(state.src, state.pos, state.posMax):
        # At the end of a line they say nothing.
        if not silent and breaks.end() < state.posMax:
            for _ in range(breaks[0].lower().count("<br")):
                state.push("hardbreak", "br", 0)
        state.pos = breaks.end()
        return True
    script = _SCRIPT.match(state.src, state.pos, state.posMax)
    if script is None:
        return False
    if not silent:
        name, whole = script[1].lower(), state.posMax
        state.push(f"{name}_open", name, 1)
        state.pos, state.posMax = script.span(2)
        state.md.inline.tokenize(state)
        state.posMax = whole
        state.push(f"{name}_close", name, -1)
    state.pos = script.end()
    return True

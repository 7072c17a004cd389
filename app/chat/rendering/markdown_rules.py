"""What models write beyond CommonMark, as rules of markdown-it: formulas, footnotes and alerts.

Formulas stand between $ $, $` `$, $$ $$, \\( \\) and \\[ \\], or are an equation's environment on lines of their own.
They may begin right below a line of text. Half a formula is text, and so is money: "$5 and $10".
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, list_block, reference
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from app.language import mark, tr

#: Lines of one formula, and characters of one within a line.
MOST_LINES, LONGEST_INLINE = 120, 1500
#: Signs in one paragraph that may open something; with more of them it is shown as it was written. What a bracket opens
#: is looked for up to every other bracket.
MOST_SIGNS, MOST_BRACKETS = 2000, 600
#: Blocks around a quote and around a list from which on they are the text that they look like. A quote is one block, a
#: list two. Each reads all of its lines again, and what stands deeper than `maxNesting` the parser would leave out.
DEEPEST_QUOTE, DEEPEST_LIST = 10, 16
_ENVIRONMENTS = (
    "equation|displaymath|align|alignat|flalign|gather|multline|eqnarray|split|aligned|alignedat|gathered|[dr]?cases"
    "|[pbvBV]?matrix|array"
)
_OPENING = re.compile(rf"\$\$|\\\[|\\begin\{{((?:{_ENVIRONMENTS})\*?)\}}")
#: The same at the beginning of a line, within quotes and lists too.
_LINE_OPENING = re.compile(rf"^[ \t>]*(?:(?:[-*+]|\d{{1,9}}[.)])[ \t]+)*({_OPENING.pattern})", re.MULTILINE)
_BLANK_LINE = re.compile(r"^[ \t]*\n", re.MULTILINE)
#: What may follow a formula on its line without making it part of a sentence.
_ENDS = re.compile(r"\s*([.,;:]?)\s*$")
#: Words in a row: nobody writes them into a formula without \text, but between two prices.
_PROSE = re.compile(r"[^\W\d_]{2,}\s+[^\W\d_]{2,}")
_TEX = re.compile(r"[\\^_={}]")
_FOOTNOTE = re.compile(r"\[\^([^\]\s]{1,40})\]")
#: The line with which a quote says what kind of remark it is.
_ALERT = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*(?:\n|$)", re.IGNORECASE)
_ALERTS = {
    "NOTE": mark("Note"),
    "TIP": mark("Tip"),
    "IMPORTANT": mark("Important"),
    "WARNING": mark("Warning"),
    "CAUTION": mark("Caution"),
}


def open_formula(text: str) -> tuple[int, bool] | None:
    """The line of a formula that the end of the text may still change, and whether it is closed as things stand.

    Until it is closed its lines look like other blocks: "- b" like a list. Closed in the last line, it may still turn
    out to be none: "$$" may become "$$ x". None when there is no such formula.
    """
    start = max((blank.end() for blank in _BLANK_LINE.finditer(text, max(0, text.rfind("\n\n") - 1))), default=0)
    at = start
    while opening := _LINE_OPENING.search(text, at):
        mark = opening[1]
        closing = "$$" if mark == "$$" else "\\]" if mark == "\\[" else f"\\end{{{opening[2]}}}"
        found = text.find(closing, opening.end())
        signs = text.count(">", text.rfind("\n", 0, opening.start(1)) + 1, opening.start(1))
        if signs and not _all_quoted(text[opening.end() : found if found >= 0 else len(text)], signs, found < 0):
            # Where the quote ends no formula goes on.
            at = opening.end()
        elif found < 0 or text.find("\n", found) < 0:
            line = text.count("\n", 0, opening.start(1))
            return (line, found >= 0) if text.count("\n", opening.end()) <= MOST_LINES else None
        else:
            end = text.index("\n", found)
            # With nothing between them, or words behind them, two marks are no formula, and the second may open one.
            closes = text[opening.end() : found].strip(" \t\n>") and _ENDS.match(text[found + len(closing) : end])
            at = end if closes else opening.end()
    return None


def _all_quoted(text: str, signs: int, growing: bool) -> bool:
    """Whether every further line has at least so many signs of a quote. growing: the last may get more of them."""
    lines = text.split("\n")[1:]
    if growing and lines and not lines[-1].strip(" \t>"):
        lines.pop()
    return all(line[: len(line) - len(line.lstrip(" \t>"))].count(">") >= signs for line in lines)


def add_rules(parser: MarkdownIt) -> None:
    interrupts = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.at("blockquote", _quote, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.block.ruler.at("list", _list, {"alt": ["paragraph", "reference", "blockquote"]})
    parser.block.ruler.at("reference", _definition)
    parser.block.ruler.before("fence", "math_block", _math_block, interrupts)
    parser.block.ruler.before("reference", "footnote", _footnote, interrupts)
    parser.inline.ruler.before("escape", "math_inline", _math_inline)
    parser.inline.ruler.before("link", "footnote_reference", _footnote_reference)
    parser.core.ruler.at("inline", _inline)


def _quote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < DEEPEST_QUOTE and blockquote(state, start, end, silent)


def _list(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    return state.level < DEEPEST_LIST and list_block(state, start, end, silent)


def _definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """What a link refers to. It shows nothing, but whoever reads a text bit by bit is to know where one was."""
    if not reference(state, start, end, silent):
        return False
    if not silent:
        state.push("definition", "", 0).map = [start, state.line]
    return True


def _inline(state: StateCore) -> None:
    """Look for what stands within lines. A model that repeats itself endlessly writes signs that open nothing."""
    around: list[str] = []
    for token in state.tokens:
        if token.type in ("blockquote_open", "list_item_open"):
            around.append(token.type)
        elif token.type in ("blockquote_close", "list_item_close"):
            around.pop()
        if token.type != "inline":
            continue
        token.children = []
        if around and around[-1] == "blockquote_open" and (alert := _ALERT.match(token.content)):
            token.content = token.content[alert.end() :]
            token.children += _alert(alert[1], bool(token.content))
        count = token.content.count
        if sum(map(count, "[*_`$~<&\\")) > MOST_SIGNS or count("[") > MOST_BRACKETS:
            token.children.append(Token("text", "", 0, content=token.content))
        else:
            state.md.inline.parse(token.content, state.md, state.env, token.children)


def _alert(kind: str, goes_on: bool) -> list[Token]:
    """The bold word that stands for "[!NOTE]" in the first line of a quote."""
    made = [
        Token("strong_open", "strong", 1),
        Token("text", "", 0, content=tr(_ALERTS[kind.upper()])),
        Token("strong_close", "strong", -1),
    ]
    return [*made, Token("softbreak", "br", 0)] if goes_on else made


def _math_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.is_code_block(start):
        return False
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    opening = _OPENING.match(first)
    if opening is None:
        return False
    environment = opening[1]
    closing = f"\\end{{{environment}}}" if environment else "$$" if opening[0] == "$$" else "\\]"
    line, text, at = start, first, opening.end()
    while (found := text.find(closing, at)) < 0:
        line, at = line + 1, 0
        # An empty line ends it, as in TeX: what stands above one must not change when more text comes.
        if line >= end or line - start > MOST_LINES or state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return False
        text = state.src[state.bMarks[line] : state.eMarks[line]]
    after = _ENDS.match(text, found + len(closing))
    whole = state.getLines(start, line + 1, state.blkIndent, False).strip()
    content = whole[: whole.rindex(closing) + (len(closing) if environment else 0)]
    if after is None or not content[2:].strip():
        return False
    if silent:
        return True
    token = state.push("math_block", "math", 0)
    token.content = (content if environment else content[2:]).strip() + after[1]
    token.block = True
    token.map = [start, line + 1]
    state.line = line + 1
    return True


def _math_inline(state: StateInline, silent: bool) -> bool:
    text, at = state.src, state.pos
    if text.startswith(("\\(", "\\[", "$$"), at):
        display = text[at] == "$" or text[at + 1] == "["
        closing = "$$" if text[at] == "$" else "\\)" if text[at + 1] == "(" else "\\]"
        found = text.find(closing, at + 2, min(state.posMax, at + LONGEST_INLINE))
        content = text[at + 2 : found].strip() if found >= 0 else ""
        after = found + 2
    elif text[at] == "$":
        display = False
        found = closing_dollar(text, at, min(state.posMax, at + LONGEST_INLINE))
        content = text[at + 1 : found] if found >= 0 else ""
        if content.startswith("`") and content.endswith("`"):
            content = content[1:-1].strip()
        after = found + 1
    else:
        return False
    if not content:
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content = content
        token.meta["display"] = display
    state.pos = after
    return True


def closing_dollar(text: str, at: int, end: int) -> int:
    """Where the formula that may begin at this dollar ends; -1 when it is money, or a variable of a shell."""
    before, first = text[at - 1 : at], text[at + 1 : at + 2]
    if (before.isascii() and before.isalnum()) or not first or first.isspace():
        return -1
    found = at
    while (found := text.find("$", found + 1, end)) >= 0:
        if text[found - 1] == "\\":
            continue
        content, following = text[at + 1 : found], text[found + 1 : found + 2]
        money = content[-1:].isspace() or re.match("[0-9A-Z]", following)
        prose = _PROSE.search(content) and not _TEX.search(content)
        return -1 if money or prose else found
    return -1


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A footnote's text is a paragraph that knows its label, in the place where it was written."""
    if state.is_code_block(start):
        return False
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    label = _FOOTNOTE.match(first)
    if label is None or first[label.end() : label.end() + 1] != ":":
        return False
    if silent:
        return True
    line = start + 1
    while line < end and not state.isEmpty(line) and state.sCount[line] >= state.blkIndent:
        if _FOOTNOTE.match(state.src, state.bMarks[line] + state.tShift[line]):
            break
        line += 1
    opening = state.push("paragraph_open", "p", 1)
    opening.map = [start, line]
    opening.meta["footnote"] = label[1]
    inline = state.push("inline", "", 0)
    inline.content = state.getLines(start, line, state.blkIndent, False).strip()[label.end() + 1 :].strip()
    inline.map = [start, line]
    inline.children = []
    state.push("paragraph_close", "p", -1)
    state.line = line
    return True


def _footnote_reference(state: StateInline, silent: bool) -> bool:
    label = _FOOTNOTE.match(state.src, state.pos)
    if label is None or state.src[label.end() : label.end() + 1] == "(":
        return False
    if not silent:
        state.push("footnote_reference", "sup", 0).content = label[1]
    state.pos = label.end()
    return True

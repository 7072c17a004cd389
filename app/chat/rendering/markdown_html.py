"""Markdown as HTML that runs nothing and loads nothing, read as the window reads it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from app.chat.rendering.markdown import PARSER


def to_html(text: str) -> str:
    """Markup in the text stays text, a picture is a link to it, and a formula is its source in <code class="math">."""
    env: dict[str, Any] = {}
    tokens = PARSER.parse(text, env)
    return str(_Renderer().render(tokens, PARSER.options, env))


class _Renderer(RendererHTML):
    """Each method writes the tokens of its name."""

    def __init__(self) -> None:
        super().__init__()
        self._within_link = False

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        self._within_link = True
        return self.renderToken(tokens, idx, options, env)

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        self._within_link = False
        return self.renderToken(tokens, idx, options, env)

    def math_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        mark = "$$" if tokens[idx].meta["display"] else "$"
        return f'<code class="math">{escape(mark + tokens[idx].content + mark)}</code>'

    def math_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return _formula(tokens[idx].content)

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        if token.info.strip().lower() == "math" and token.content.strip():
            return _formula(token.content.strip())
        return str(super().fence(tokens, idx, options, env))

    def paragraph_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        label = str(tokens[idx].meta.get("footnote", ""))
        return self.renderToken(tokens, idx, options, env) + (f"<sup>{escape(label)}</sup> " if label else "")

    def footnote_reference(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<sup>{escape(tokens[idx].content)}</sup>"

    def definition(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """What links refer to shows nothing."""
        return ""

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        address = str(tokens[idx].attrGet("src") or "")
        name = escape(tokens[idx].content or address)
        return name if self._within_link else f'<a href="{escape(address)}">{name}</a>'

    def html_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """The box of a task, the only one that the parser makes."""
        return "☑" if "checked=" in tokens[idx].content else "☐"

    def softbreak(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Models end lines where they mean to."""
        return "<br>\n"

    hardbreak = softbreak


def _formula(source: str) -> str:
    """A formula on lines of its own."""
    whole = source if source.startswith("\\begin{") else f"$$\n{source}\n$$"
    return f'<pre><code class="math">{escape(whole)}</code></pre>\n'

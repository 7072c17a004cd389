"""An exported page shows what the window shows, with formulas undamaged, and runs and loads nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.rendering.markdown_html import to_html
from app.chat.storage import exporting
from app.chat.storage.portable import PortableChat, PortableMessage


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"so \(a_1 \\ b\) is", r'so <code class="math">$a_1 \\ b$</code> is'),
        ("so $a<b$ is", '<code class="math">$a&lt;b$</code>'),
        ("$$\na \\\\ b\n$$", '<pre><code class="math">$$\na \\\\ b\n$$</code></pre>'),
        (
            "\\begin{align}\na &= b \\\\\nc &= d\n\\end{align}",
            '<pre><code class="math">\\begin{align}\na &amp;= b \\\\\nc &amp;= d\n\\end{align}</code></pre>',
        ),
        ("```math\nx_1\n```", '<pre><code class="math">$$\nx_1\n$$</code></pre>'),
        ("```py\na < b\n```", '<pre><code class="language-py">a &lt; b\n</code></pre>'),
        ("| a | b |\n|--:|---|\n| $|x|$ | 1 |", '<td style="text-align:right"><code class="math">$|x|$</code></td>'),
        ("Said[^1].\n\n[^1]: one *day*", "<p>Said<sup>1</sup>.</p>\n<p><sup>1</sup> one <em>day</em></p>"),
        ("- [x] done", "☑ done"),
        ("- [ ] open", "☐ open"),
        ("H<sub>2</sub>O<br>b\nc", "H<sub>2</sub>O<br>\nb<br>\nc"),
        ("![a <cat>](https://e.org/c.png)", '<a href="https://e.org/c.png">a &lt;cat&gt;</a>'),
        ("[![cat](/c.png)](/d)", '<a href="/d">cat</a>'),
        ("[r]: /x\n\nsee [r]", '<p>see <a href="/x">r</a></p>'),
        ("https://e.org/a", '<a href="https://e.org/a">https://e.org/a</a>'),
        ("> [!NOTE]\n> so", "<strong>Note</strong><br>\nso"),
        ("**결론:**이것은", "<strong>결론:</strong>이것은"),
        ("<script>a</script>", "&lt;script&gt;a&lt;/script&gt;"),
    ],
)
def test_what_an_answer_says_is_on_the_page(text, shown):
    assert shown in to_html(text)


def test_an_exported_chat_is_written_so():
    answer = PortableMessage("assistant", r"so \(a \\ b\) and $$\begin{pmatrix} 1 \\ 2 \end{pmatrix}$$", None, 1.0)
    page = exporting.to_html([PortableChat("t", 1.0, 1.0, (answer,))])
    assert r'<code class="math">$a \\ b$</code>' in page
    assert r"1 \\ 2" in page


PIECES = [
    "<script>",
    "<img src=x onerror=y>",
    "![x](https://e.org/p.png)",
    "[y](javascript:a)",
    '"',
    "'",
    "&",
    "<",
    ">",
]
PIECES += [
    "$",
    "$$\n",
    "`",
    "```math\n",
    "[^1]",
    "\n[^1]: ",
    "| ",
    "\n|-|\n",
    "- [x] ",
    "\n",
    "<sub>",
    "</sub>",
    "<br>",
    "a",
]
PIECES += ["https://e.org/", "](", "> [!NOTE]\n", "\\(", "\\)", "[r]: javascript:a\n"]
TAGS = "p|h[1-6]|pre|code|a|em|strong|s|sub|sup|br|ul|ol|li|blockquote|table|thead|tbody|tr|th|td|hr"


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_no_text_becomes_a_tag_that_does_anything(text):
    page = to_html(text)
    for tag in re.findall(r"<[^>]*>", page):
        assert re.fullmatch(rf'</?(?:{TAGS})(?: (?:class|href|title|style|start)="[^"<>]*")*(?: /)?>', tag), tag
    assert not re.search(r'href="\s*(?:javascript|data|vbscript):', page, re.IGNORECASE)


def test_a_picture_in_a_link_is_its_name_and_after_it_a_link_again() -> None:
    html = to_html("[![a](http://x/b.png)](http://y) ![c](http://z/d.png)")
    assert '<a href="http://y">a</a> <a href="http://z/d.png">c</a>' in html

"""Answers of any length and of every kind that models write, or could when they are caught in a loop."""

from __future__ import annotations

from collections.abc import Callable

SECTION = r"""## Section {n}

Each new token reads every **active** weight once and uses it for a *single* multiply and add, see `experts.cpp` and
[the notes](https://example.org/{n}). With $b = {n}$ bits a token reads $\frac{{w b}}{{8}}$ bytes.

$$
t_{{{n}}} = \frac{{\sum_{{i=1}}^{{k}} w_i b}}{{8 \, B}}
$$

- first point about the cache
- second point, with **emphasis**
  - and a deeper one
1. one
2. two

| layers | experts | share |
|:--|--:|--:|
| 48 | 128 | {n} % |
| 61 | 384 | 7 % |

```python
def bytes_per_token(weights: float, bits: float) -> float:
    # routed experts only, number {n}
    return weights * bits / 8
```

한국어 문단도 있습니다. And a closing sentence that is long enough to be broken over a few lines of the column.

"""


def repeated(*pieces: str, first: str = "") -> Callable[[int], str]:
    """A text of any size. {n} in a piece is its number."""

    def make(size: int) -> str:
        text, number = [first], 0
        left = size - len(first)
        while left > 0:
            text.append(pieces[number % len(pieces)].replace("{n}", str(number)))
            left -= len(text[-1])
            number += 1
        return "".join(text)[:size]

    return make


KINDS = {
    "mixed": repeated(SECTION.replace("{{", "{").replace("}}", "}")),
    "code": repeated("value = compute(a, b) + 1  # a comment\n", first="```python\n"),
    "table": repeated("| one | **two** | 3 |\n", first="| a | b | c |\n|---|---|---|\n"),
    "wide table": repeated(
        "| {n} | " + "a few words in a cell, `code` | " * 5 + "\n", first="|a" * 6 + "|\n" + "|-" * 6 + "|\n"
    ),
    "loop": repeated("They are going to find something evermore. "),
    "paragraphs": repeated("They are going to find something evermore. " * 9 + "\n\n"),
    "list": repeated("- an item of a long list with `code`\n"),
    "nested list": repeated("- item {n}\n", "  - an item below\n", "    1. and one with **emphasis** below that\n"),
    "one item": repeated(
        "- The first and only item\n\n", "  has paragraph {n}, that goes on for a line or two, and then another.\n\n"
    ),
    "quote": repeated("> Somebody said that, and he said it {n} times; then he went on to\n"),
    "quoted list": repeated("> - Somebody said that {n} times\n"),
    "one formula": repeated("x_{{n}} + \\frac{{n}}{2} + ", first="$$\n"),
    "lines of a formula": repeated("x_{{n}} &= \\frac{{n}}{2} \\\\\n", first="$$\n\\begin{aligned}\n"),
    "formulas": repeated("$$\nx_{{n}} = \\frac{{n}}{2}\n$$\n\n"),
    "formulas in lines": repeated("The value $x_{{n}}$ of \\(\\frac{{n}}{2}\\) is known. "),
    "one word": repeated("abcdefghijklmnopqrstuvwxyz0123456789"),
    "Korean": repeated("한국어로 쓴 글은 글자마다 줄이 바뀔 수 있습니다. "),
    "Chinese": repeated("每一个字都可以换行，所以这一段没有空格。"),
    "Arabic": repeated("هذا نص طويل يكتب من اليمين إلى اليسار ولا ينتهي. "),
    "Hebrew and English": repeated("זה טקסט ארוך with English words בתוך השורה. "),
    "emoji": repeated("👩‍👩‍👧‍👦🏳️‍🌈👍🏽"),
    "small codes": repeated("Step {n}:\n\n```sh\nmake all -j{n}\n```\n\n"),
    "footnotes": repeated("A claim[^{n}].\n\n[^{n}]: its source, see <https://example.org/{n}>\n\n"),
    "item of paragraphs": repeated("  Paragraph {n} of it that goes on for a line or two.\n\n", first="- One\n\n"),
    "headings": repeated("### Heading {n}\n"),
    "tags": repeated("<tag{n}> & &amp; </tag{n}> \\* "),
    "stars": repeated("*a **b _c "),
    "spaces": repeated("      "),
    "newlines": repeated("\n"),
    "html": repeated("<div class='a{n}'>\n<p>text</p>\n</div>\n"),
    "indented": repeated("    value = {n}\n"),
    "links": repeated("[name {n}][ref] and ", first="[ref]: https://example.org\n\n"),
    "links defined late": repeated("[name {n}][ref] and **more**.\n\n", "[ref]: https://example.org\n\n"),
    "definitions": repeated("[name {n}]: https://example.org/{n}\n"),
    "numbers in one item": repeated("   1. below {n}\n", first="1. one\n"),
    "tables and formulas": repeated("| a | b |\n|---|---|\n| {n} | two |\n$$\nx_{{n}}\n$$\n\n"),
    "autolinks": repeated("<https://example.org/{n}>\n"),
    "images": repeated("![picture {n}](https://example.org/{n}.png) "),
    "task list": repeated("- [x] done {n}\n", "- [ ] to do\n"),
    "deep list": repeated(*("  " * depth + "- deeper {n}\n" for depth in range(40))),
    "one deep list": lambda size: "".join("  " * depth + f"- {depth}\n" for depth in range(300))[:size],
    "deep quote": repeated(*(">" * depth + " said {n}\n" for depth in range(1, 40))),
    "one deep quote": repeated(">" * 40 + " Somebody said that {n} times\n"),
    "lazy quote": repeated("Somebody said that {n} times\n", first="> "),
    "quoted code": repeated("> value = {n}\n", first="> ```python\n"),
    "quoted table": repeated("> | {n} | two |\n", first="> | a | b |\n> |---|---|\n"),
    "item with code": repeated("  value = {n}\n", first="- so:\n\n  ```python\n"),
    "item with a table": repeated("  | {n} | two |\n", first="- so:\n\n  | a | b |\n  |---|---|\n"),
    "item without end": repeated("words of the only item, ", first="- "),
    "list without end": repeated("- words", first=""),
    "heading without end": repeated("words of the heading ", first="# "),
    "footnote without end": repeated("words of the note ", first="[^1]: "),
    "bold without end": repeated("bold words ", first="**"),
    "bold words": repeated("**bold {n}** and *slanted* ~~gone~~ "),
    "codes in lines": repeated("call `function_{n}` or "),
    "line of code": repeated("value = compute(a, b); ", first="```python\n"),
    "code of empty lines": repeated("\n", first="```\n"),
    "code of one string": repeated("words in a string\n", first='```python\n"""'),
    "code without language": repeated("value = {n}\n", first="```\n"),
    "short lines": repeated("word {n}\n"),
    "hard breaks": repeated("word {n}  \n"),
    "long cells": repeated("words in a cell that is never closed, ", first="| a | b |\n|---|---|\n| "),
    "one row": repeated("{n} | ", first="| a | b |\n|---|---|\n| "),
    "columns without end": repeated("a | ", first="| "),
    "tables": repeated("| a | b |\n|---|---|\n| {n} | two |\n\n"),
    "cells of formulas": repeated("| $x_{{n}}$ | $\\frac{{n}}{2}$ |\n", first="| a | b |\n|---|---|\n"),
    "rules": repeated("---\n\n"),
    "open brackets": repeated("["),
    "open parentheses": repeated("[a](("),
    "open images": repeated("!["),
    "open links": repeated("[a](<b"),
    "open codes": repeated(*("`" * count + " " for count in range(1, 60))),
    "open tags": repeated("<"),
    "open comments": repeated("<!--"),
    "entities": repeated("&amp;&lt;&#1234;"),
    "ampersands": repeated("&"),
    "backslashes": repeated("\\"),
    "underscores": repeated("_a "),
    "tildes": repeated("~~a "),
    "dollars": repeated("$a "),
    "open formula": repeated("x + ", first="\\["),
    "open formulas in lines": repeated("\\(x "),
    "open environments": repeated("\\begin{aligned}\n"),
    "hashes": repeated("#"),
    "quote signs": repeated(">"),
    "minus signs": repeated("-"),
    "list signs": repeated("- "),
    "numbers": repeated("1. "),
    "pipes": repeated("|"),
    "tabs": repeated("\t"),
    "Thai": repeated("ภาษาไทยเขียนติดกันโดยไม่เว้นวรรคระหว่างคำ"),
    "Hindi": repeated("यह एक लंबा पाठ है जो कभी समाप्त नहीं होता। "),
    "Arabic with code": repeated("هذا `code_{n}` نص **طويل** $x_{{n}}$ من اليمين. "),
    "combining marks": repeated("e\u0301\u0302\u0303\u0304"),
    "one combined letter": repeated("\u0301", first="e"),
    "joiners": repeated("\u200d"),
    "joined emoji": repeated("👩\u200d"),
    "controls": repeated("\x01\x02\x1b[0m\x7f\u202e\u2066 "),
    "surrogates": repeated("\ud83d \udc4d"),
    "separators": repeated("words\u2028words\u2029words\x0c"),
}

KINDS |= {
    # As DeepSeek, Qwen and GPT-OSS write.
    "steps with formulas": repeated(
        "{n}. **Step {n}**: so we have  \n   \\[\n   x_{{n}} = \\frac{{n}}{2}\n   \\]\n   and then $\\sqrt{{n}}$.\n\n"
    ),
    "titles and points": repeated(
        "---\n\n### ✅ {n}. **Title {n}**\n\n", "- **Point {n}**: words ($x_{{n}}$), `code_{n}` – more\n" * 3 + "\n"
    ),
    "tables with breaks": repeated(
        "| **{n}** | one<br>• two<br>• three – “four”\u202f% | 【{n}†source】 |\n",
        first="| a | b | c |\n|---|:--|--:|\n",
    ),
    "reasoning": repeated(
        "Wait, let me check {n}: $a_{{n}} < b$. So a = {n}, or maybe not? Hmm.\n\n", "Alternatively,\n"
    ),
    "aligned": repeated("\\begin{align*}\nf_{{n}}(x) &= x^{{n}} \\\\\n&= \\text{so } {n}\n\\end{align*}\n\n"),
    "formulas one below the other": repeated("$$x_{{n}}$$\n"),
    "the same formula": repeated("The value $\\frac{a}{b}$ is known.\n"),
    "list of formulas": repeated("- $x_{{n}}$\n", "  - and \\(\\frac{{n}}{2}\\) below\n", "    $$y_{{n}}$$\n"),
    "chemistry": repeated("$\\ce{2H2 + O2 -> {n} H2O}$ and "),
    "matrices": repeated(
        "$$\n\\begin{pmatrix}\n" + "1 & 2 & 3 & 4 & 5 & 6 & {n} \\\\\n" * 7 + "\\end{pmatrix}\n$$\n\n"
    ),
    "one matrix": repeated("1 & {n} & 3 \\\\\n", first="$$\n\\begin{pmatrix}\n"),
    "wide formulas": repeated("$$\n" + "x_{{n}} + " * 60 + "1\n$$\n\n"),
    "long formula in a line": repeated("x_{{n}} + ", first="$"),
    "fractions in fractions": repeated("$" + "\\frac{1}{1 + " * 6 + "{n}" + "}" * 6 + "$ and "),
    "cells of many formulas": repeated("|" + " $x_{{n}}$ |" * 10 + "\n", first="|a" * 10 + "|\n" + "|-" * 10 + "|\n"),
    "LaTeX document": repeated(
        "\\section{Part {n}}\nWords \\emph{so} \\cite{a}.\n\\begin{itemize}\n\\item {n}\n\\end{itemize}\n"
    ),
    "mermaid": repeated("  A{n}[Start {n}] --> B{n}\n", first="```mermaid\ngraph TD\n"),
    "diff": repeated("-old line {n}\n", "+new line {n}\n", " same\n", first="```diff\n"),
    "JSON in one line": repeated('{"id": {n}, "name": "value {n}", "list": [1, 2.5, null]}, ', first="```json\n["),
    "JSON without a fence": repeated('{"id": {n}, "name": "value {n}", "list": [1, 2.5, null]}, ', first="["),
    "JSON": repeated('  {"id": {n}, "name": "value"},\n', first="```json\n[\n"),
    "base64": repeated("iVBORw0KGgoAAAANSUhEUgAAAAUA"),
    "base64 code": repeated("iVBORw0KGgoAAAANSUhEUgAAAAUA", first="```\n"),
    "base64 picture": repeated("iVBORw0KGgoAAAANSUhEUgAAAAUA", first="![a](data:image/png;base64,"),
    "terminal": repeated("\x1b[31m{n} red\x1b[0m \x1b[1mbold\x1b[0m\r\n", first="```console\n$ make\n"),
    "terminal without a fence": repeated("\x1b[31m{n} red\x1b[0m \x1b[1mbold\x1b[0m\n"),
    "SVG": repeated('<path d="M{n} 10 L20 {n} Z" fill="#abc"/>', first="```svg\n<svg>"),
    "HTML code": repeated('<div class="a{n}"><p>words</p><script>let a = {n};</script></div>\n', first="```html\n"),
    "Vue": repeated('<template><p :a="b{n}">{{ c }}</p></template>\n', first="```vue\n"),
    "C comment": repeated("words in a comment {n}\n", first="```c\n/* "),
    "JavaScript": repeated("const f{n} = (a) => `${a}` + /x[y]/.test(a) ? {b: {n}} : [];\n", first="```js\n"),
    "TypeScript": repeated("export interface A{n}<T> { readonly a?: T[]; b(): Promise<void> }\n", first="```ts\n"),
    "shell": repeated('for a in "$@"; do echo "${a%.*}" | sed \'s/{n}//\'; done\n', first="```sh\n"),
    "shell of one string": repeated("words {n}\n", first='```sh\necho "'),
    "Rust": repeated("fn f{n}<'a>(x: &'a str) -> Option<u32> { x.parse().ok() }\n", first="```rust\n"),
    "Haskell": repeated("f{n} :: Int -> [a] -> Maybe a\nf{n} n xs = listToMaybe (drop n xs)\n", first="```haskell\n"),
    "SQL": repeated(
        "SELECT a.{n}, COUNT(*) FROM t{n} a LEFT JOIN b ON a.id = b.id WHERE x LIKE '%y%';\n", first="```sql\n"
    ),
    "LaTeX code": repeated("\\begin{align} x_{n} &= \\frac{1}{2} \\end{align} % words\n", first="```latex\n"),
    "Perl": repeated("my %h{n} = map { $_ => m/^(\\w+)$/ } qw(a b); print <<EOT;\nwords\nEOT\n", first="```perl\n"),
    "PHP": repeated("<?php $a{n} = [\"b\" => $c->d('e')]; ?>\n<p>words</p>\n", first="```php\n"),
    "assembly": repeated("    mov rax, [rbx+{n}] ; words\nlabel{n}:\n", first="```asm\n"),
    "CSS": repeated(".a{n} > b:hover { color: #abc; margin: 0 {n}px }\n", first="```css\n"),
    "YAML": repeated("key{n}:\n  - a: {n}\n    b: 'c'\n", first="```yaml\n"),
    "Markdown code": repeated("# Head {n}\n\n```py\nx = {n}\n```\n\n- a\n", first="````markdown\n"),
    "code of an unknown language": repeated("words {n}\n", first="```brainwave\n"),
    "code of wide letters": repeated("print('한국어 {n} 日本語 👍🏽')  # عربي\n", first="```python\n"),
    "code of tabs": repeated("\tif (a)\t{\t// {n}\n", first="```go\n"),
    "fences in fences": repeated("```python\n"),
    "quoted quotes of code": repeated("> > ```\n> > x = {n}\n> > ```\n"),
    "code in an item at the wrong place": repeated("- so:\n ```py\n x = {n}\n ```\n"),
    "trees of folders": repeated("│   ├── file_{n}.py\n", "│   └── folder_{n}/\n"),
    "boxes": repeated("+------+------+\n| {n} | two |\n"),
    "claims and their notes": lambda size: (
        repeated("A claim that needs a source[^{n}]. ")(size // 2)
        + "\n\n"
        + repeated("[^{n}]: its source\n")(size // 2)
    ),
    "table of links defined late": lambda size: (
        repeated("| [name {n}][ref] | two |\n", first="| a | b |\n|---|---|\n")(size - 40)
        + "\n\n[ref]: https://example.org\n"
    ),
    "list of links defined late": lambda size: (
        repeated("- [name {n}][ref] and more\n")(size - 40) + "\n[ref]: https://example.org\n"
    ),
    "many words of links defined late": lambda size: repeated("[a][r] ")(size - 40) + "\n\n[r]: https://example.org\n",
    "definitions in an item": repeated("  [name {n}]: https://example.org/{n}\n", first="- [name 1]\n\n"),
    "details": repeated("<details>\n<summary>Part {n}</summary>\n\nwords\n\n</details>\n\n"),
    "HTML table": repeated("<tr><td>{n}</td><td>two</td></tr>\n", first="<table>\n"),
    "HTML comment": repeated("words {n}\n", first="<!--\n"),
    "escaped pipes": repeated("| `a \\| {n}` | b\\|c |\n", first="| a | b |\n|---|---|\n"),
    "cells in bold without end": repeated("| **{n} | *two |\n", first="| a | b |\n|---|---|\n"),
    "tables of one row in lists": repeated("- so:\n\n  | a | b |\n  |---|---|\n  | {n} | two |\n\n"),
    "a table and a list by turns": repeated("| a | b |\n|---|---|\n- item {n}\n"),
    "forty columns": repeated("|" + " {n} |" * 40 + "\n", first="|a" * 40 + "|\n" + "|-" * 40 + "|\n"),
    "CSV": repeated("{n},name,2024-01-01,3.5,words\n"),
    "address without end": repeated("path{n}/", first="https://example.org/"),
    "addresses": repeated("See https://example.org/{n}?a=b&c=d and a@example.org\n"),
    "link without end": repeated("words {n} ", first="[a]("),
    "code in a line without end": repeated("words ", first="`"),
    "emphasis in emphasis": repeated("***a** b* __c _d_ e__ "),
    "setext headings": repeated("Heading {n}\n===\n"),
    "bold lines": repeated("**Bold {n}**\n"),
    "one number a line": repeated("{n}\n"),
    "loose list": repeated("{n}. item {n} with words\n\n"),
    "mixed bullets": repeated("* a {n}\n", "+ b\n", "- c\n"),
    "items of quotes of items": repeated("- > - {n} words\n"),
    "Arabic list": repeated("- بند {n} مع `code` و **غامق** و $x_{{n}}$\n"),
    "Arabic table": repeated("| قيمة {n} | `code` | نص |\n", first="| أ | ب | ج |\n|---|---|---|\n"),
    "Arabic without spaces": repeated("هذانصطويلبلامسافات"),
    "Persian": repeated("می\u200cخواهم {n} کتاب\u200cها را بخوانم. "),
    "Hebrew and formulas": repeated("הערך $x_{{n}}$ של \\(\\frac{{n}}{2}\\) ידוע, ראו `code`. "),
    "directions": repeated("\u202eabc\u202c \u2067עברית {n}\u2069 \u200fword\u200e "),
    "one line of directions": repeated("\u2067א\u2066a"),
    "Japanese": repeated("これは長い文章で、「引用{n}」や漢字（かんじ）を含みます。"),
    "Korean list": repeated("- **제목 {n}**: 한국어 설명이 `code`와 함께 이어집니다.\n"),
    "Chinese table": repeated("| 第{n}行 | 每一个字 | `code` |\n", first="| 一 | 二 | 三 |\n|---|---|---|\n"),
    "flags": repeated("🇰🇷🇯🇵🇫🇷"),
    "emoji of a table": repeated("| ✅ {n} | 👩‍👩‍👧‍👦 | 🏳️‍🌈 |\n", first="| a | b | c |\n|---|---|---|\n"),
    "keycaps": repeated("1️⃣ ☑️ ⚠️ ©️ "),
    "letters with many marks": repeated("Z̷͚̈́a̶̛̬l̴̰̈́g̵̢̛ö̸́ "),
    "Burmese": repeated("မြန်မာစာသည်ရှည်လျားသော"),
    "Tamil": repeated("தமிழ் நீண்ட வாக்கியம் {n}. "),
    "mathematical letters": repeated("𝑥₁ = 𝐀⋅𝛽², ∑ᵢ 𝔼[𝑋ᵢ] ≤ ∞ "),
    "zeros": repeated("\x00words"),
    "soft hyphens": repeated("won\u00adder\u00adful"),
    "narrow spaces": repeated("a\u202fb\u00a0c\u2009"),
    "thinking": repeated(SECTION.replace("{{", "{").replace("}}", "}")),
    "thinking in a loop": repeated("Wait, but maybe I should check again. "),
    "thinking with code": repeated("Let me write it:\n\n```python\nx = {n}\n```\n\nHmm, $x_{{n}}$ is wrong.\n\n"),
}
#: Those that a model says to itself.
THOUGHTS = frozenset(kind for kind in KINDS if kind.startswith("thinking"))

"""What the chat adds to the window's style sheet, built from the same tokens."""

from __future__ import annotations

from dataclasses import asdict
from string import Template

from app.theme import Tokens, theme

_SHEET = Template("""
QTextBrowser, QTextBrowser:focus, #codeBlock QPlainTextEdit, #codeBlock QPlainTextEdit:focus {
    background: transparent; border: none; border-radius: 0; padding: 0; }
#bubble { background: $soft; border: none; border-radius: 14px; }
#codeBlock { background: $code; border: 1px solid $line; border-radius: 10px; }
#thought { background: transparent; border: 1px solid $line; border-radius: 10px; }
#thoughtToggle { background: transparent; border: 1px solid transparent; border-radius: 9px; color: $muted;
    text-align: left; padding: 7px 10px; font-size: ${px13}px; font-weight: 400; }
#thoughtToggle:hover { color: $text; background: $hover; }
#thoughtToggle:focus { border-color: $accent; }
#rule { background: $line; border: none; }
#composer { background: $panel; border: 1px solid $line; border-radius: 14px; }
#composer[focused="true"] { border-color: $accent; }
#composer QPlainTextEdit, #composer QPlainTextEdit:focus {
    background: transparent; border: none; padding: 0; font-size: ${px15}px; }
#attachment { background: $bg; border: 1px solid $line; border-radius: 8px; }
#attachment QPushButton { padding: 0; min-height: 0; border: 1px solid transparent; }
#attachment QPushButton:focus { border-color: $accent; padding: 0; }
#bubble #attachment { background: transparent; border-color: $line; }
#attachment:hover, #attachment:focus, #bubble #attachment:hover, #bubble #attachment:focus { border-color: $accent; }
#meter[full="true"]::chunk { background: $warn; }
#composer QPushButton[kind="ghost"] { color: $muted; font-weight: 400; }
#composer QPushButton[kind="ghost"]:hover { color: $text; }
#findBar { background: $panel; border: 1px solid $line; border-radius: 10px; }
#example { background: $panel; border: 1px solid $line; border-radius: 10px; padding: 10px 14px;
    text-align: left; font-weight: 400; }
#example:hover { border-color: $accent; background: $panel; }
#example:focus { border: 2px solid $accent; padding: 9px 13px; }
#jump { background: $panel; border: 1px solid $line; border-radius: 16px; padding: 0; }
#jump:hover { background: $hover; }
#jump:focus { border: 2px solid $accent; }
#hint { font-size: ${px22}px; font-weight: 600; }
""")


def chat_style(tokens: Tokens) -> str:
    sizes = {f"px{pixels}": theme().px(pixels) for pixels in (13, 15, 22)}
    return _SHEET.substitute(asdict(tokens), **sizes)

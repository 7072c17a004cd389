"""Files: attached, found again, exported, imported, dropped and pasted; and an answer of every kind of text."""

from __future__ import annotations

import json
import re
import time

from screen import NotSeen
from user import User

NEWEST = "SELECT title FROM chats WHERE deleted IS NULL ORDER BY id LIMIT 1"
#: Every kind of text an answer may hold.
ANSWER = r"""<think>
The user wants to see everything. A short plan, then the answer.
</think>
# Half of it

Some **bold** and *slanted* words, `code`, a [link](https://example.org), ~~struck~~ and a literal <tag>.

- a half is $\frac{1}{2}$, and
- a third is $\frac{1}{3}$ of it;
- nothing special here,
  1. one below,
  2. another with $\sqrt{x^2 + y^2}$ in it
- [x] done
- [ ] not done

$$\sum_{i=1}^{n} \frac{w_i}{\lVert w \rVert} = \int_0^1 f(x)\,dx$$

| Model | Experts | tok/s |
|:------|:-------:|------:|
| Qwen3-30B-A3B | 128 | 57.0 |
| 한국어 이름 | 64 | 9.4 |

> A quote of two lines,
> and its end.

```python
def half(number: float) -> float:
    '''Half of it.'''
    return number / 2  # never more
```

안녕하세요, 이것은 한국어입니다. 日本語も。 مرحبا بالعالم

A claim with a note[^1].

[^1]: The note.
"""


def files(user: User) -> None:
    s = user.screen
    user.answered()
    note = user.papers / "note.txt"
    note.write_text("The greenroom is the room where actors wait before they go on stage.\n" * 12)
    s.key("ctrl+n")
    s.click("Attach text files")
    user.file_dialog(note)
    s.find("note.txt.*", enabled=False)
    s.shoot("25-attachment")
    user.ask("What is a greenroom?")
    user.answered()
    s.key("ctrl+f")
    s.type("actors wait")
    s.find("What is a greenroom.*", kind="row")
    s.shoot("26-found-in-a-file")
    s.key("ctrl+a", "BackSpace")
    target = user.papers / "exported"
    for ending, entry in ((".json", "JSON.*"), (".md", "Markdown.*"), (".html", "Web page.*")):
        title = user.rows(NEWEST)[0][0]
        s.click(re.escape(title), 3, kind="row")
        s.click("Export", kind="entry")
        s.click(entry, kind="entry")
        user.file_dialog(target.with_suffix(ending))
        s.find(f"Saved as exported{ending}", 20, enabled=False)
        if title not in target.with_suffix(ending).read_text(encoding="utf-8"):
            raise NotSeen(f"the chat in exported{ending}")
    s.shoot("26-exported")
    before = user.count("chats")
    user.palette("import chats", "Import chats")
    user.file_dialog(target.with_suffix(".json"))
    s.find("1 chat was imported", 20, enabled=False)
    s.shoot("27-imported")
    if user.count("chats") != before + 1:
        raise NotSeen("the imported chat")
    s.key("ctrl+n")


def every_text(user: User) -> None:
    """A chat from a file with every kind of text, in both themes."""
    s = user.screen
    user.answered()
    stats = {"prompt_tokens": 30, "completion_tokens": 245, "first_token_s": 0.8, "decode_tps": 12.4}
    messages = [
        {"role": "user", "text": "Show me everything.", "created": 1.7e9},
        {"role": "assistant", "text": ANSWER, "parent": 0, "created": 1.7e9, "stats": stats, "stop_reason": "end"},
    ]
    chat = {"title": "Every kind of text", "created": 1.7e9, "updated": 1.7e9, "messages": messages, "leaf": 1}
    path = user.papers / "every-text.json"
    path.write_text(json.dumps({"format": "greenroom-chats", "version": 1, "chats": [chat]}), encoding="utf-8")
    user.palette("import chats", "Import chats")
    user.file_dialog(path)
    s.find("1 chat was imported", 20, enabled=False)
    s.click("Every kind of text", kind="row")
    for theme in ("", "-other-theme"):
        s.xdotool("mousemove", "700", "400", "click", "--repeat", "60", "4")
        time.sleep(0.5)
        s.shoot(f"29-every-text{theme}-1")
        s.xdotool("click", "--repeat", "60", "5")
        time.sleep(0.5)
        s.shoot(f"29-every-text{theme}-2")
        user.toggle_theme()


def drag_and_paste(user: User) -> None:
    """From another program: a file is dropped, then pasted; a picture and a very long text are pasted."""
    s = user.screen
    user.answered()
    dropped, copied = user.papers / "dropped.txt", user.papers / "copied.csv"
    dropped.write_text("The curtain rises at eight.\n" * 20)
    copied.write_text("animal,sound\ncow,moo\n" * 20)
    s.key("ctrl+n")
    with s.other_program("file", str(dropped)):
        s.drag((60, 330), s.find("Message"))
        s.find("dropped.txt, .* tokens")
    with s.other_program("file", str(copied)):
        s.key("ctrl+l", "ctrl+v")
        s.find("copied.csv, .* tokens")
    s.shoot("28-dropped-and-pasted")
    with s.other_program("image"):
        s.key("ctrl+v")
        s.find("The picture was not attached.*", enabled=False)
        s.shoot("28-pasted-picture")
    with s.other_program("text", "200000"):
        s.key("ctrl+v")
        s.find("Pasted text, .* (tokens|characters)", 30)
        s.find("Pasted text has ~?[0-9.k]+ tokens, and .* are free in this chat.", 60, enabled=False)
        s.shoot("28-pasted-too-much")
    s.click("Remove file", kind="QPushButton")
    user.gone("Pasted text")
    s.click("Remove dropped.txt")
    s.click("Remove copied.csv")
    user.gone("dropped.txt|copied.csv")
    s.key("ctrl+l")
    s.type("What is a stage?")
    s.find("What is a stage\\?")
    s.key("ctrl+a", "BackSpace")

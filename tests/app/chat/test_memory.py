"""Answers that were shown leave no memory behind: neither Qt's nor what lies in an open chat far from sight."""

from __future__ import annotations

import ctypes
import gc
import sys

import pytest
from chat_fakes import fill
from PySide6.QtCore import QCoreApplication, QEvent, QObject
from PySide6.QtWidgets import QApplication

from app import tasks
from app.chat.page import ChatPage

ANSWER = """## A heading

Words with **emphasis** and `code`.

| a | b |
|---|--:|
| 1 | 2 |

```python
value = 1
```

$$
x_1
$$

The end.
"""


def bytes_in_use():
    """What the C library has given out, free blocks and Python's small objects not counted."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("only glibc 2.33 and later says it")
    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    info = type("Info", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names]})
    libc.mallinfo2.restype = info
    said = libc.mallinfo2()
    return said.uordblks + said.hblkhd


def settle():
    tasks.finish()
    QApplication.processEvents()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    gc.collect()


@pytest.fixture
def page(qtbot, host, store):
    page = ChatPage(host, store)
    qtbot.addWidget(page)
    page.resize(800, 600)
    page.show()
    QApplication.processEvents()
    yield page
    page.shutdown()
    page.close()


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_memory_is_flat_over_streamed_answers(page, host, store):
    # The database's own cache fills up to its bound; here that is low.
    store._db.execute("PRAGMA cache_size = 10")

    def write_answers(count):
        for number in range(count):
            page.send("q")
            for start in range(0, len(ANSWER), 60):
                host.say(ANSWER[start : start + 60])
                QApplication.processEvents()
            host.end()
            host.asked.clear()
            host.wished.clear()
            if number % 5 == 4:
                page.new_chat()
            QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        settle()
        return bytes_in_use()

    before = write_answers(25)
    assert (write_answers(40) - before) / 40 < 1500


def test_messages_far_from_sight_have_no_widgets(page, store):
    """Each would have its styles, some kilobytes: thousands of messages may lie above the one that is read."""

    def widgets(count):
        page.open_chat(fill(store, count))
        bar = page.transcript.verticalScrollBar()
        while bar.value() > 0:
            bar.setValue(bar.value() - 400)
        bar.setValue(bar.maximum())
        page.transcript.release_far()
        settle()
        return len(page.findChildren(QObject))

    assert widgets(80) == widgets(40)

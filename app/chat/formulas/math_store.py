"""Formulas that are laid out once, off the UI thread, and then kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakMethod

from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal

from app import tasks
from app.chat.formulas.math_layout import Formula, FormulaError, lay_out

#: Formulas kept, some kilobytes each.
KEPT = 600
#: Formulas laid out between two deliveries.
BATCH = 4


@dataclass(frozen=True)
class FormulaKey:
    """size: of the font, in logical pixels. display: in a line of its own."""

    source: str
    size: float
    display: bool = False


class FormulaStore(QObject):
    """One per application, reached through `formulas()`."""

    #: Some formulas that were asked for have been laid out, or turned out to be none, and those who wait for them know.
    delivered = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._known: OrderedDict[FormulaKey, Formula | None] = OrderedDict()
        self._wanted: OrderedDict[FormulaKey, None] = OrderedDict()
        self._waiting: dict[FormulaKey, list[WeakMethod[Callable[[], object]]]] = {}
        self._working = False

    def get(self, key: FormulaKey) -> Formula | None:
        """The formula; None while it is laid out, and for good when it is none."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        self._wanted[key] = None
        self._work()
        return None

    def pending(self, key: FormulaKey) -> bool:
        return key in self._wanted

    def wait(self, key: FormulaKey, ready: Callable[[], object]) -> None:
        """Call a method of an object of Qt, if it still lives, when a pending formula is no longer pending."""
        self._waiting.setdefault(key, []).append(WeakMethod(ready))

    def _work(self) -> None:
        """One batch at a time: the library that does it is not made for two."""
        if self._working or not self._wanted:
            return
        batch = list(self._wanted)[:BATCH]
        self._working = True
        tasks.run(_lay_out_all, batch, done=self._take)

    def _take(self, made: dict[FormulaKey, Formula | None]) -> None:
        for key, formula in made.items():
            self._known[key] = formula
            self._wanted.pop(key, None)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        self._working = False
        self._work()
        calls = (call() for key in made for call in self._waiting.pop(key, ()))
        # Who waits for several of them is called once.
        ready = {id(call.__self__): call for call in calls if call is not None}
        for call in ready.values():
            if tasks.alive(call):
                call()
        self.delivered.emit()


def _lay_out_all(keys: list[FormulaKey]) -> dict[FormulaKey, Formula | None]:
    """On the background thread."""
    made: dict[FormulaKey, Formula | None] = {}
    for key in keys:
        try:
            made[key] = lay_out(key.source, key.size, key.display)
        except FormulaError:
            made[key] = None
    return made


def formulas() -> FormulaStore:
    """The store of the running application, made on first use."""
    app = QCoreApplication.instance()
    assert app is not None
    found = app.findChild(FormulaStore, options=Qt.FindChildOption.FindDirectChildrenOnly)
    return found if found is not None else FormulaStore(app)

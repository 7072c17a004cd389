"""Asks where chats are to be exported, and in which form."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QWidget

from app.language import mark, tr
from app.widgets.file_dialog import FileDialog
from engine.safe_paths import offered_name

#: What a form is called, and the ending of its files.
KINDS = (
    (mark("Markdown"), ".md"),
    (mark("Web page"), ".html"),
    (mark("JSON, with all versions"), ".json"),
)


def export_dialog(parent: QWidget, title: str, name: str, ending: str) -> FileDialog:
    """Offers every form. ending: of the one that is offered first; name: of the file, as a title may be."""
    dialog = FileDialog(parent, title)
    dialog.setAcceptMode(FileDialog.AcceptMode.AcceptSave)
    first_is_wanted = sorted(KINDS, key=lambda kind: kind[1] != ending)
    filters = {f"{tr(kind)} (*{its})": its for kind, its in first_is_wanted}
    dialog.setNameFilters(list(filters))
    dialog.setDefaultSuffix(ending[1:])
    dialog.selectFile(offered_name(name, "chat") + ending)

    def choose(said: str) -> None:
        chosen = filters.get(said)
        if chosen is None:
            return
        dialog.setDefaultSuffix(chosen[1:])
        # The name that stands there has the ending of another form.
        for path in map(Path, dialog.selectedFiles()[:1]):
            if path.suffix in filters.values():
                dialog.selectFile(path.with_suffix(chosen).name)

    dialog.filterSelected.connect(choose)
    return dialog

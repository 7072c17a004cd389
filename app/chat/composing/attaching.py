"""Text files that go with a question: how they are read, and how the model sees them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.chat.storage.records import Attachment
from app.folders import holds_chats
from app.language import mark, tr
from engine.clean_text import clean_text
from engine.errors import GreenroomError
from engine.regular_files import read_bounded

#: Bytes of a file; far more than any model's context holds.
MOST_BYTES = 20_000_000
#: Pasted text longer than this becomes an attachment: nobody reads it in the composer.
LONG_PASTE = 10_000
#: Of text that is pasted where no files go: more would keep the window busy for seconds.
MOST_INSERT = 1_000_000
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
#: Characters that a cut may go back to end with a line, or a hundredth of them all.
NEAR_END = 100
#: Bytes looked at to tell text from everything else.
_HEAD = 8192
#: Signs of the formats people try most.
_KNOWN = (
    (b"%PDF", mark("a PDF")),
    (b"PK\x03\x04", mark("an archive")),
    (b"\x89PNG", mark("a picture")),
    (b"\xff\xd8\xff", mark("a picture")),
)


def read_text_file(path: Path) -> Attachment:
    """Raises GreenroomError for what is no text, too large, or cannot be read."""
    name = clean_text(path.name)
    try:
        if path.is_dir():
            raise _refused(name, tr("it is a folder"), tr("Attach the files in it."))
        if path.exists() and not path.is_file():
            raise _refused(name, tr("it is not a regular file"), tr("Choose another file."))
        if holds_chats(path):
            raise _refused(
                name, tr("Greenroom stores its chats in it"), tr("Export the chat and attach the exported file.")
            )
        data = read_bounded(path, MOST_BYTES)
        if len(data) > MOST_BYTES:
            raise _refused(
                name,
                tr("it is larger than {size} MB", size=MOST_BYTES // 1_000_000),
                tr("Attach only the part you need."),
            )
    except OSError as error:
        raise _refused(name, (error.strerror or str(error)).lower(), tr("Choose another file.")) from error
    text = _decode(data, name).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise _refused(name, tr("it is empty"), tr("Choose another file."))
    return Attachment(name, text, len(text))


def _decode(data: bytes, name: str) -> str:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, "replace")
    for sign, kind in _KNOWN:
        if data.startswith(sign):
            raise _refused(
                name,
                tr("it is {kind}, not a text file", kind=tr(kind)),
                tr("Save its text as a .txt file and attach that."),
            )
    if b"\x00" in data[:_HEAD]:
        raise _refused(name, tr("it is not a text file"), tr("Attach a text, code or .csv file."))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        # What Windows wrote before UTF-8; every byte is some character there.
        return data.decode("cp1252", "replace")


def beginning(attachment: Attachment, characters: int) -> Attachment:
    """The first part of an attachment, cut at the end of a line where there is one near."""
    head = attachment.text[: max(1, characters)]
    if len(head) == len(attachment.text):
        return attachment
    line = head.rfind("\n")
    near = line > len(head) // 2 and len(head) - line <= max(NEAR_END, len(head) // 100)
    return Attachment(attachment.name, head[:line] if near else head, attachment.length)


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """A question as the model sees it: each file in a frame that names it, then the question."""
    parts = []
    for a in attachments:
        quoted = a.name.replace('"', "'")
        part = "" if a.whole else ' part="beginning"'
        parts.append(f'<file name="{quoted}"{part}>\n{a.text.rstrip()}\n</file>')
    return "\n\n".join([*parts, text] if text else parts)


def pasted(text: str) -> Attachment:
    """Raises GreenroomError for what is too large."""
    if len(text) > MOST_BYTES:
        raise too_long(MOST_BYTES)
    return Attachment(tr("Pasted text"), text, len(text))


def too_long(most: int) -> GreenroomError:
    return GreenroomError(
        tr("The text was not pasted"),
        tr("it is longer than {most} characters", most=f"{most:,}".replace(",", "\u202f")),
        tr("Paste only the part you need."),
    )


def no_picture() -> GreenroomError:
    """A picture came without a file and without text."""
    return GreenroomError(
        tr("The picture was not attached"),
        tr("models in Greenroom read text only"),
        tr("Paste the text in it instead."),
    )


def _refused(name: str, why: str, remedy: str) -> GreenroomError:
    return GreenroomError(tr("{name} was not attached", name=name), why, remedy)

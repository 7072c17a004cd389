"""Gather the texts: what the demo was fitted on and, apart from it, what it was measured on.

    python texts.py FOLDER DENSE.gguf

Needs Debian's `apt-get download` and `dpkg-deb`. Writes FOLDER/fit/*.txt, FOLDER/measure/*.txt (plain UTF-8) and
FOLDER/chats.json (answers that the dense model gives to our questions, as token ids, fitted and held-out ones apart).
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path

import torch
from dense import Dense, chat_prompt, load_tokenizer, load_weights, sample
from questions import FITTED, HELD_OUT

PACKAGES = (  # Debian 12
    "debian-handbook",
    "debian-reference-en",
    "anarchism",
    "jargon-text",
    "fortunes",
    "fortunes-min",
    "r-cran-tokenizers",
    "developers-reference",
    "r-cran-janeaustenr",
)
MEASURED_CHARACTERS = 90_000
ANSWER_TOKENS, TEMPERATURE, BATCH = 220, 0.8, 48

log = logging.getLogger("texts")


def download(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True, capture_output=True)
        (file,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", file, folder / package], check=True)


class _Prose(HTMLParser):
    """The running text of a page, paragraphs apart, code blocks as they are."""

    HIDDEN = ("script", "style", "head", "nav")
    LINES = ("br", "li", "tr")
    PARAGRAPHS = ("p", "h1", "h2", "h3", "h4", "div", "pre", "dt", "dd", "blockquote")

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.hidden = self.code = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden += tag in self.HIDDEN
        self.code += tag == "pre"
        if tag in self.LINES or tag in self.PARAGRAPHS:
            self.pieces.append("\n" if tag in self.LINES else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in self.HIDDEN
        if tag == "pre":
            self.code -= 1
            self.pieces.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.pieces.append(data if self.code else re.sub(r"\s+", " ", data))


def prose(pages: Iterable[Path]) -> str:
    texts = []
    for page in sorted(pages):
        parser = _Prose()
        parser.feed(page.read_text("utf-8", "replace"))
        text = re.sub(r"[ \t]+\n", "\n", "".join(parser.pieces))
        text = re.sub(r"\n[ \t]+(?=\S)", "\n", text)
        texts.append(re.sub(r"\n{3,}", "\n\n", text).strip())
    return "\n\n".join(texts)


def unwrapped(text: str) -> str:
    """One line for each paragraph."""
    return "\n\n".join(re.sub(r"\s*\n\s*", " ", part).strip() for part in re.split(r"\n\s*\n", text))


def gunzipped(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode("utf-8", "replace")


def strings(data: Path) -> list[list[str]]:
    """The strings of each entry of an R data file."""
    raw, place, entries = data.read_bytes(), 0, []
    while place < len(raw) - 4:
        unpacker = zlib.decompressobj()
        try:  # entries are a 4-byte length and a zlib stream
            entry = unpacker.decompress(raw[place + 4 :])
        except zlib.error:
            place += 1
            continue
        place = len(raw) - len(unpacker.unused_data)
        found = []
        # a string is written as flags ending in type 9, a 4-byte length, its bytes
        for match in re.finditer(rb"\x00[\x00-\x0f][\x00-\xff]\x09(?=(....))", entry, re.DOTALL):
            start, length = match.end() + 4, struct.unpack(">i", match[1])[0]
            if 0 <= length <= len(entry) - start:
                found.append(entry[start : start + length].decode("utf-8", "replace"))
        entries.append(found)
    return entries


def write_texts(packages: Path, folder: Path) -> None:
    def installed(package: str, path: str = "usr/share/doc") -> Path:
        return packages / package / path

    quotes = [
        file.read_text("utf-8", "replace").replace("\n%\n", "\n\n")
        for package in ("fortunes", "fortunes-min")
        for file in sorted(installed(package, "usr/share/games/fortunes").iterdir())
        if file.is_file() and not file.is_symlink() and not file.suffix
    ]
    handbook = installed("debian-handbook") / "debian-handbook/html/en-US"
    ((melville, *_),) = strings(installed("r-cran-tokenizers", "usr/lib/R/site-library/tokenizers/data") / "Rdata.rdb")
    fit = {
        "debian-handbook": prose(page for page in handbook.glob("*.html") if page.name != "index.html"),
        "debian-reference": prose(installed("debian-reference-en", "usr/share/debian-reference").glob("ch*.en.html")),
        "anarchism": prose((installed("anarchism") / "anarchism/html").glob("sec*.html")),
        "jargon": unwrapped(gunzipped(installed("jargon-text") / "jargon-text/jargon.txt.gz")),
        "fortunes": "\n\n".join(quotes),
        "moby-dick": melville.replace("\r\n", "\n"),
    }
    austen = strings(installed("r-cran-janeaustenr", "usr/lib/R/site-library/janeaustenr/data") / "Rdata.rdb")
    persuasion = next("\n".join(lines) for lines in austen if lines[:1] == ["Persuasion"])
    reference = gunzipped(
        installed("developers-reference", "usr/share/developers-reference") / "developers-reference.txt.gz"
    )
    contents = 30_000  # characters of the table of contents
    measure = {
        "persuasion": persuasion[:MEASURED_CHARACTERS],
        "developers-reference": reference[contents : contents + MEASURED_CHARACTERS],
    }
    for kind, texts in {"fit": fit, "measure": measure}.items():
        (folder / kind).mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / kind / f"{name}.txt").write_text(text, "utf-8")


def write_chats(path: Path, model_file: Path) -> None:
    tokenizer, model = load_tokenizer(model_file), Dense(load_weights(model_file), torch.bfloat16)
    chats: dict[str, list[list[int]]] = {"fit": [], "measure": []}
    newline = tokenizer.encode("\n").ids
    batches = [
        (kind, questions[first : first + BATCH])
        for kind, questions in (("fit", FITTED), ("measure", HELD_OUT))
        for first in range(0, len(questions), BATCH)
    ]
    for seed, (kind, questions) in enumerate(batches, start=1):
        prompts = [chat_prompt(tokenizer, question) for question in questions]
        answers = sample(model, prompts, ANSWER_TOKENS, TEMPERATURE, seed=seed)
        chats[kind] += [answer + newline for answer in answers]
        path.write_text(json.dumps(chats), "utf-8")
        log.info("%d of %d batches answered", seed, len(batches))


def main(folder: Path, model_file: Path) -> None:
    packages = folder / "packages"
    if not packages.exists():
        download(packages)
    write_texts(packages, folder)
    write_chats(folder / "chats.json", model_file)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(2)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

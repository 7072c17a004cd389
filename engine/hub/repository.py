"""What a repository of the hub holds: its models, each as one item, with sizes and hashes.

Nothing of a model's weights is fetched here. What a hub answers is anybody's text: each field's type is looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard
from urllib.parse import quote, unquote, urlencode

from engine.errors import GreenroomError
from engine.hub.client import ANSWER_S, HubClient, next_address, open_client
from engine.hub.network import NetworkSettings, status_error
from engine.safe_paths import Places, is_safe
from engine.words import say

#: A repository with more files than this is no model (the largest have a few hundred).
MAX_FILES = 20_000
#: One page of a listing, or what is known of one repository, takes 2 MB at most. Read, it may take 20 times as much.
MAX_LISTING_BYTES = 8_000_000
#: A hub sends 1,000 files a page.
_MAX_PAGES = 500
#: Larger figures are no figures.
_MAX_BYTES, _MAX_COUNT = 1 << 53, 1 << 53
#: A model's page as a browser or another program writes it, with or without the file on it.
_ADDRESS = re.compile(r"(?:https?://[^/\s]+|hf\.co|huggingface\.co)/([^/\s?#:]+/[^/\s?#:]+)([^\s?#]*)\S*\Z")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|FP16|F32|FP32|FP8))(?=$|[-._/])",
    re.IGNORECASE,
)
#: What a folder of safetensors needs beside its weights to be opened and to chat.
COMPANIONS = {
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tiktoken.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
}


@dataclass(frozen=True)
class RemoteFile:
    """sha256 is the hub's id of a large file; small ones have git's blob id instead."""

    path: str
    nbytes: int
    sha256: str | None
    blob_id: str | None


@dataclass(frozen=True)
class RemoteModel:
    """One thing to download: a GGUF file with all its parts, or a folder of safetensors with what belongs to it.

    label: what tells it from its siblings: the quantisation ("Q4_K_M"), or "safetensors"
    name:  its first file without ending and part number, or the folder
    """

    repo: str
    commit: str
    label: str
    name: str
    form: str
    files: tuple[RemoteFile, ...]

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)


@dataclass(frozen=True)
class Repository:
    """gated: terms must be accepted on its page first

    skipped: files that are left out: their names cannot be files on every system, or not in one folder together
    """

    repo: str
    commit: str
    licence: str
    gated: bool
    models: tuple[RemoteModel, ...]
    skipped: int


@dataclass(frozen=True)
class SearchHit:
    repo: str
    downloads: int
    likes: int
    gated: bool
    licence: str


class Hub:
    """The hub or a mirror. Calls block; every failure is a GreenroomError."""

    def __init__(self, settings: NetworkSettings, token: str | None = None) -> None:
        self.settings = settings
        self._token = token

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """GGUF repositories that match, most downloaded first."""
        asked = [("search", text), ("filter", "gguf"), ("sort", "downloads"), ("limit", limit)]
        asked += [("expand", field) for field in ("downloads", "likes", "gated", "tags")]
        what = f'"{text}" was not searched'
        with open_client(self.settings, self._token) as client:
            found, _ = self._listed(client, f"{self.settings.hub}/api/models?{_query(asked)}", what)
        if not isinstance(found, list):
            raise self._no_listing(what)
        return [
            SearchHit(
                model["id"],
                _count(model.get("downloads")),
                _count(model.get("likes")),
                _is_gated(model.get("gated")),
                _licence(model.get("tags")),
            )
            for model in found[:limit]
            if isinstance(model, dict) and isinstance(model.get("id"), str) and is_repo(model["id"])
        ]

    def repository(self, repo: str, revision: str | None = None) -> Repository:
        """Every model in it. Raises GreenroomError for a wrong name, one that may not be read, or holds no model."""
        from engine.hub.connections import within

        if not is_repo(repo):
            raise GreenroomError(
                say("{value} is not a repository", value=ascii(repo)[:80]),
                say('its name is not "owner/model"'),
                say("Write it like owner/model."),
            )
        what = say("{repo} cannot be listed", repo=repo)
        address = f"{self.settings.hub}/api/models/{repo}"
        with open_client(self.settings, self._token) as client, within(ANSWER_S):
            info, _ = self._listed(
                client,
                f"{address}/revision/{quote(revision, safe='', errors='replace')}" if revision else address,
                what,
                repo,
            )
            if not isinstance(info, dict):
                raise self._no_listing(what)
            commit = info.get("sha")
            if not is_commit(commit):
                raise self._no_listing(what)
            files, skipped = _files(self._tree(client, repo, commit, what), what)
        models = group(repo, commit, files)
        if not models:
            raise GreenroomError(
                what, say("it holds neither GGUF nor safetensors files"), say("Choose a repository with one of these.")
            )
        return Repository(repo, commit, _licence(info.get("tags")), _is_gated(info.get("gated")), models, skipped)

    def page(self, repo: str) -> str:
        """Where a person looks at the repository; the hub's own page for no repository."""
        return f"{self.settings.hub}/{repo}" if repo else self.settings.hub

    def url(self, repo: str, commit: str, path: str) -> str:
        """Where a file's bytes are asked for; the answer may be a redirect."""
        return f"{self.settings.hub}/{repo}/resolve/{quote(commit, safe='')}/{quote(path)}"

    def _tree(self, client: HubClient, repo: str, commit: str, what: str) -> Iterator[Any]:
        """What the hub says of each file and folder."""
        address = f"{self.settings.hub}/api/models/{repo}/tree/{quote(commit, safe='')}?recursive=True"
        for _ in range(_MAX_PAGES):
            rows, address = self._listed(client, address, what, repo)
            if not isinstance(rows, list):
                raise self._no_listing(what)
            yield from rows
            if not address:
                return
        raise _too_many(what)

    def _listed(self, client: HubClient, address: str, what: str, repo: str = "") -> tuple[Any, str]:
        """What the hub says there, and the address of the next page or ""."""
        import httpx2

        failed, host = partial(GreenroomError, what), self.settings.host
        response, content = client.whole(address, failed, MAX_LISTING_BYTES)
        if response.status_code != 200:
            raise status_error(response.status_code, what, host, self.page(repo), client.signed_in)
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._no_listing(what) from error
        following = response.links.get("next", {}).get("url", "")
        if following:
            following = next_address(str(response.url), following, failed)
            if httpx2.URL(following).origin != httpx2.URL(self.settings.hub).origin:
                raise GreenroomError(
                    what,
                    say("the next page of its list is on another server"),
                    say("Check the hub's address in Settings, Network (or HF_ENDPOINT)."),
                )
        return document, following

    def _no_listing(self, what: str) -> GreenroomError:
        return GreenroomError(
            what,
            say("{host} answered with something that is no listing", host=self.settings.host),
            say("Check the hub's address in Settings, Network (or HF_ENDPOINT)."),
        )


def _query(fields: list[tuple[str, Any]]) -> str:
    return urlencode(fields, errors="replace")


def _too_many(what: str) -> GreenroomError:
    return GreenroomError(
        what, say("it holds more than {max_files:,} files", max_files=MAX_FILES), say("Choose another repository.")
    )


def is_repo(name: str) -> bool:
    return bool(_REPO.match(name)) and ".." not in name and "--" not in name


def named(text: str) -> tuple[str, str]:
    """Repository and label that "owner/model", "owner/model:Q4_K_M" or the address of a model's page or file means.

    The repository is not checked, see `is_repo`; the label is "" where none is named.
    """
    if (found := _ADDRESS.match(text)) is None:
        repo, _, label = text.partition(":")
        return repo, label
    repo, rest = found[1], found[2]
    if rest.lower().endswith(".gguf"):
        # /blob/main/folder/model-00001-of-00002.gguf
        path = _SPLIT.sub(".gguf", "/".join(unquote(rest).split("/")[3:]))
        return repo, path.removesuffix(".gguf")
    return repo, rest[1:] if rest.startswith(":") else ""


def is_address(text: str) -> bool:
    """Whether that is the address of a model's page."""
    return bool(_ADDRESS.match(text)) and is_repo(named(text)[0])


def _files(entries: Iterable[Any], what: str) -> tuple[list[RemoteFile], int]:
    files: list[RemoteFile] = []
    places = Places()
    skipped = count = 0
    for entry in entries:
        count += 1
        if count > MAX_FILES:
            raise _too_many(what)
        if not isinstance(entry, dict) or entry.get("type") != "file":
            continue
        large = entry.get("lfs") or entry
        if not isinstance(large, dict):
            skipped += 1
            continue
        path, size, blob_id = entry.get("path"), large.get("size"), entry.get("oid")
        sha256 = None if large is entry else large.get("oid")
        if (
            not isinstance(path, str)
            or not is_safe(path)
            or type(size) is not int
            or not 0 <= size < _MAX_BYTES
            or not is_hash(sha256, 64)
        ):
            skipped += 1
            continue
        if not _is_wanted(path):
            continue
        if not places.take(path):
            skipped += 1
            continue
        files.append(RemoteFile(path, size, sha256, blob_id if is_hash(blob_id, 40) else None))
    return files, skipped


def _is_wanted(path: str) -> bool:
    """Whether a file can belong to a model; no other is ever fetched."""
    name = path.rpartition("/")[2]
    return name.lower().endswith((".gguf", ".safetensors")) or name in COMPANIONS


def is_hash(value: Any, digits: int) -> bool:
    """Whether it is a hash in hexadecimal digits, or none is given."""
    return value is None or (isinstance(value, str) and bool(re.fullmatch(rf"[0-9a-f]{{{digits}}}", value)))


def is_commit(value: object) -> TypeGuard[str]:
    """Whether it is a commit's id: all of its 40 digits, and no name of a branch."""
    return isinstance(value, str) and is_hash(value, 40)


def group(repo: str, commit: str, files: list[RemoteFile]) -> tuple[RemoteModel, ...]:
    """Files as models, smallest first: a split GGUF is one (left out if incomplete), so is a folder of safetensors."""
    ggufs: dict[str, list[RemoteFile]] = {}
    folders: dict[str, list[RemoteFile]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        lower = name.lower()
        if lower.endswith(".gguf"):
            # A vision projector is a part of some other model, an importance matrix of none.
            if not lower.startswith(("mmproj", "imatrix")) and "-mmproj" not in lower:
                ggufs.setdefault(_SPLIT.sub(".gguf", file.path), []).append(file)
        elif lower.endswith(".safetensors") or name in COMPANIONS:
            folders.setdefault(folder, []).append(file)
    models = [
        RemoteModel(repo, commit, quant_label(stem), stem.removesuffix(".gguf"), "gguf", tuple(parts))
        for stem, found in ggufs.items()
        if (parts := _all_parts(found))
    ]
    for folder, found in folders.items():
        names = {file.path.rpartition("/")[2] for file in found}
        weights = [file for file in found if file.path.endswith(".safetensors")]
        # Some publishers add the same weights once more, in one file and in a format of their own.
        if "model.safetensors.index.json" in names or "model.safetensors" in names:
            weights = [file for file in weights if not file.path.rpartition("/")[2].startswith("consolidated")]
        if "config.json" not in names or not weights:
            continue
        others = [file for file in found if not file.path.endswith(".safetensors")]
        label = f"{folder} safetensors" if folder else "safetensors"
        name = folder or repo.partition("/")[2]
        models.append(RemoteModel(repo, commit, label, name, "safetensors", tuple(others + weights)))
    return tuple(sorted(models, key=lambda model: (model.nbytes, model.name)))


def _all_parts(files: list[RemoteFile]) -> list[RemoteFile]:
    """In the order of their numbers; empty when one is missing."""
    numbered = [(match, file) for file in files if (match := _SPLIT.search(file.path))]
    if not numbered:
        return files[:1]
    total = int(numbered[0][0][2])
    have = {int(match[1]): file for match, file in numbered if int(match[2]) == total}
    return [have[i] for i in sorted(have)] if sorted(have) == list(range(1, total + 1)) else []


def quant_label(path: str) -> str:
    """ "Q4_K_M" out of "Q4_K_M/model-Q4_K_M.gguf": the last quantisation its name says, else the whole stem."""
    stem = path.removesuffix(".gguf")
    found = _QUANT.findall(stem.rpartition("/")[2]) or _QUANT.findall(stem)
    return found[-1].upper() if found else stem.rpartition("/")[2]


def choose(repository: Repository, label: str) -> RemoteModel:
    """The model that `label` names: its label or name, or the only one. Raises GreenroomError when it isn't clear."""
    models = repository.models
    wanted = label.casefold()
    if not label:
        found = list(models) if len(models) == 1 else []
    else:
        found = [m for m in models if wanted in (m.label.casefold(), m.name.casefold())]
    if len(found) == 1:
        return found[0]
    labels = ", ".join(m.label if len([o for o in models if o.label == m.label]) == 1 else m.name for m in models[:24])
    if not label:
        why = say("it holds %n models", n=len(models), one="it holds %n model")
    elif found:
        why = say('"{label}" names {count} of its models', label=label, count=len(found))
    else:
        why = say('"{label}" names none of its models', label=label)
    raise GreenroomError(
        say("{repo} was not downloaded", repo=repository.repo),
        why,
        say("Choose one as {repo}:LABEL. Labels: {labels}.", repo=repository.repo, labels=labels),
    )


def _licence(tags: Any) -> str:
    """ "" also for what is no name: tags are anybody's text, and this one reaches terminals."""
    texts = (tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()
    found = next((tag.partition(":")[2] for tag in texts if tag.startswith("license:")), "")
    return found if found.isprintable() and len(found) <= 60 else ""


def _count(value: Any) -> int:
    """0 for what is no count."""
    return value if type(value) is int and 0 <= value < _MAX_COUNT else 0


def _is_gated(value: Any) -> bool:
    """The hub says "auto" or "manual", or false."""
    return value is True or (isinstance(value, str) and bool(value))

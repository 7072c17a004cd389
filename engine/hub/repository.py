"""What a repository of the hub holds: its models, each as one item, with sizes and hashes.

Search, metadata and listing go through huggingface_hub; nothing of a model's weights is fetched here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from engine.errors import GreenroomError
from engine.hub.network import NetworkSettings, network_error, open_client, status_error
from engine.words import say

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import HfApi

#: A repository with more files than this is no model (the largest have a few hundred).
MAX_FILES = 20_000
#: One page of a listing, or what is known of one repository, takes a few MB at most.
MAX_LISTING_BYTES = 64_000_000
#: A model's page as a browser or another program writes it, with or without the file on it.
_ADDRESS = re.compile(r"(?:https?://[^/\s]+|hf\.co|huggingface\.co)/([^/\s?#:]+/[^/\s?#:]+)([^\s?#]*)\S*\Z")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|FP16|F32|FP32|FP8))(?=$|[-._/])",
    re.IGNORECASE,
)
#: What a folder of safetensors needs beside its weights to be opened and to chat.
_COMPANIONS = {
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
    """gated: terms must be accepted on its page first. skipped: files whose names cannot be files on every system."""

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
    updated: str


class Hub:
    """The hub or a mirror. Calls block; every failure is a GreenroomError."""

    def __init__(self, settings: NetworkSettings, token: str | None = None) -> None:
        self.settings = settings
        self._token = token

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """GGUF repositories that match, most downloaded first."""
        with self._api(f'"{text}" was not searched') as api:
            found = api.list_models(
                search=text,
                filter="gguf",
                sort="downloads",
                limit=limit,
                expand=["downloads", "likes", "gated", "tags", "lastModified"],
            )
            return [
                SearchHit(
                    model.id,
                    model.downloads or 0,
                    model.likes or 0,
                    bool(model.gated),
                    _licence(model.tags or []),
                    model.last_modified.date().isoformat() if model.last_modified else "",
                )
                for model in itertools.islice(found, limit)
                if is_repo(model.id)
            ]

    def repository(self, repo: str, revision: str | None = None) -> Repository:
        """Every model in it. Raises GreenroomError for a wrong name, one that may not be read, or holds no model."""
        if not is_repo(repo):
            raise GreenroomError(
                say("{value} is not a repository", value=ascii(repo)[:80]),
                say('its name is not "owner/model"'),
                say("Write it like owner/model."),
            )
        what = say("{repo} cannot be listed", repo=repo)
        with self._api(what, repo) as api:
            info = api.model_info(repo, revision=revision)
            commit = info.sha or revision or "main"
            entries = api.list_repo_tree(repo, revision=commit, recursive=True)
            files, skipped = _files(itertools.islice(entries, MAX_FILES + 1), what)
        models = group(repo, commit, files)
        if not models:
            raise GreenroomError(
                what, say("it holds neither GGUF nor safetensors files"), say("Choose a repository with one of these.")
            )
        return Repository(repo, commit, _licence(info.tags or []), bool(info.gated), models, skipped)

    def page(self, repo: str) -> str:
        """Where a person looks at the repository; the hub's own page for no repository."""
        return f"{self.settings.hub}/{repo}" if repo else self.settings.hub

    def url(self, repo: str, commit: str, path: str) -> str:
        """Where a file's bytes are asked for; the answer may be a redirect."""
        return f"{self.settings.hub}/{repo}/resolve/{quote(commit, safe='')}/{quote(path)}"

    @contextlib.contextmanager
    def _api(self, what: str, repo: str = "") -> Iterator[HfApi]:
        # Read when the library is imported; nothing about this machine leaves it.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
        import httpx2
        from huggingface_hub import HfApi, set_client_factory
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        def client() -> httpx2.Client:
            opened = open_client(self.settings)
            opened.follow_redirects = True
            opened.event_hooks = {"response": [_bound]}
            send = opened.send

            def send_once(*args: Any, **options: Any) -> httpx2.Response:
                # The library would try a hub that is not there for half a minute before it says so.
                try:
                    return send(*args, **options)
                except httpx2.TransportError as error:
                    raise network_error(error, self.settings.host) from error

            opened.send = send_once  # type: ignore[method-assign]
            return opened

        open_client(self.settings).close()  # refuses here, not in the midst of the library
        set_client_factory(client)
        host = self.settings.host
        try:
            yield HfApi(self.settings.hub, token=self._token or False)
        except HfHubHTTPError as error:
            status = error.response.status_code if error.response is not None else 0
            raise status_error(status, what, host, self.page(repo), bool(self._token)) from error
        except httpx2.HTTPError as error:
            raise network_error(error, host) from error
        except (HFValidationError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            why = say("{host} answered with something that is no listing", host=host)
            raise GreenroomError(
                what, why, say("Check the hub's address in Settings, Network (or HF_ENDPOINT).")
            ) from error


def _bound(response: httpx2.Response) -> None:
    """The library reads an answer whole before it looks at it: one without end is broken off with a ValueError."""
    import httpx2

    assert isinstance(response.stream, httpx2.SyncByteStream)
    stream: httpx2.SyncByteStream = response.stream

    class Bounded(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            nbytes = 0
            for piece in stream:
                nbytes += len(piece)
                if nbytes > MAX_LISTING_BYTES:
                    raise ValueError("the answer is too long for a listing")
                yield piece

        def close(self) -> None:
            stream.close()

    response.stream = Bounded()

"""Models folder: where Greenroom looks for models and puts those it downloads."""

from __future__ import annotations

from app.language import mark
from app.settings.models_folder import ModelsFolder
from app.settings.options import Group, Option, Page

PAGE = Page(
    "models",
    mark("Models folder"),
    "folder",
    (
        Group(
            (
                Option(
                    "models_folder",
                    mark("Models folder"),
                    mark("Where Greenroom looks for models and puts downloads. Files elsewhere can be opened as well."),
                    ModelsFolder,
                    ModelsFolder.show_values,
                    ("models_folder",),
                    "directory path disk",
                ),
            ),
        ),
    ),
    mark("Models of LM Studio, Ollama and Hugging Face are found where they are, and used in place."),
)

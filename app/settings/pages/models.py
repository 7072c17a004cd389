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
                    mark(
                        "Where Greenroom looks for models and saves downloads. You can also open files from elsewhere."
                    ),
                    ModelsFolder,
                    ModelsFolder.show_values,
                    ("models_folder",),
                    "directory path disk",
                ),
            ),
        ),
    ),
    mark("Models from LM Studio, Ollama and Hugging Face are found and used in place."),
)

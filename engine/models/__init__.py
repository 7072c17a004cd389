"""What does a model compute? One file per family turns a checkpoint's header into a `ModelSpec`."""

from engine.models.families import model_spec
from engine.models.spec import ModelSpec

__all__ = ["ModelSpec", "model_spec"]

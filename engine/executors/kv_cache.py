"""Keys and values of the tokens so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from engine import _native
from engine.errors import GreenroomError
from engine.models.spec import LayerSpec


class KvCache:
    """Static buffers for full attention, one per layer. Appending and truncating move only `length`."""

    def __init__(self, context: int, buffers: list[torch.Tensor]) -> None:
        self.context = context
        self.length = 0
        self.buffers = buffers

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def advance(self, tokens: int) -> None:
        """Count tokens that every layer has appended."""
        if self.length + tokens > self.context:
            raise ValueError(f"{self.length} + {tokens} tokens in a cache of {self.context}")
        self.length += tokens

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot keep {length} of {self.length} tokens")
        self.length = length


class NativeKvCache(KvCache):
    """In the CPU's memory, for our own attention: bytes in its layout. An untouched part is not committed.

    kv_type: "f32", "bf16" or "f16"
    """

    def __init__(self, layers: Sequence[LayerSpec], context: int, kv_type: str) -> None:
        with _enough_memory(context):
            super().__init__(
                context,
                [
                    torch.empty(_native.kv_cache_nbytes(a.kv_heads, a.head_dim, context, kv_type), dtype=torch.uint8)
                    for a in (layer.mixer for layer in layers)
                ],
            )


class TorchKvCache(KvCache):
    """On a torch device: [2 * kv_heads, context, head_dim] per layer, keys before values."""

    def __init__(self, layers: Sequence[LayerSpec], context: int, dtype: torch.dtype, device: torch.device) -> None:
        #: What attention computes in: where the CPU plays the accelerator the cache is widened, because that costs
        #: less than half-precision attention there.
        self.arithmetic = torch.float32 if device.type == "cpu" else dtype
        with _enough_memory(context):
            super().__init__(
                context,
                [
                    torch.empty((2 * a.kv_heads, context, a.head_dim), dtype=dtype, device=device)
                    for a in (layer.mixer for layer in layers)
                ],
            )

    def append(self, layer: int, keys_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [T, 2 * kv_heads, head_dim] behind the tokens so far; `advance` makes them count.

        Returns keys and values of all tokens up to these, [kv_heads, length + T, head_dim], in `arithmetic`.
        """
        buffer, tokens = self.buffers[layer], keys_values.shape[0]
        buffer.narrow(1, self.length, tokens).copy_(keys_values.transpose(0, 1))
        used = buffer.narrow(1, 0, self.length + tokens).to(self.arithmetic)
        kv_heads = buffer.shape[0] // 2
        return used.narrow(0, 0, kv_heads), used.narrow(0, kv_heads, kv_heads)


@contextmanager
def _enough_memory(context: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise GreenroomError(
            "The model cannot be loaded",
            f"there is no room for the memory of a conversation of {context} tokens",
            "Choose a shorter context.",
        ) from error

"""What config.json says about a quantised model, as far as its tensors do not show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from engine.checkpoints.file_bytes import shown
from engine.errors import GreenroomError
from engine.words import say

#: quant_method -> what it is called. The tensors of each are recognised in `engine.checkpoints.quantised`.
_METHODS: Mapping[str, str] = {
    "fp8": "FP8",
    "fbgemm_fp8": "FP8",
    "gptq": "GPTQ",
    "awq": "AWQ",
    "auto-round": "AutoRound",
    "compressed-tensors": "compressed-tensors",
    "mxfp4": "MXFP4",
    "mxfp8": "MXFP8",
    "modelopt": "ModelOpt (NVFP4, FP8)",
}
_SUPPORTED = ", ".join(dict.fromkeys(_METHODS.values()))

#: Layouts of GPTQ's tensors -> what is to be added to a stored zero point. The first version kept it one lower.
_GPTQ_OFFSETS: Mapping[str, int] = {
    "gptq": 1,
    "gptq_v2": 0,
    "auto_round:auto_gptq": 1,
    "auto_round:gptqmodel": 0,
    "auto_round:gptq": 0,
    "auto_round": 0,
}
_COMPRESSED_FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
    "dense",
)
_MAX = 1 << 20


@dataclass(frozen=True)
class QuantisationConfig:
    """zero_offset: what GPTQ's stored zero points lack; None when the model is not GPTQ's
    awq:           whether qweight tensors are AWQ's
    symmetric:     whether every GPTQ zero point is the middle code
    group_size:    of GPTQ and AWQ, in columns; 0 for a whole row
    bits:          of GPTQ codes, for tensors that do not show it
    block:         rows and columns of FP8 weights that share a scale
    packed:        (bits, columns per scale or 0 for a whole row) that compressed-tensors may have packed
    """

    zero_offset: int | None = None
    awq: bool = False
    symmetric: bool = False
    group_size: int = 0
    bits: int = 0
    block: tuple[int, int] = (128, 128)
    packed: tuple[tuple[int, int], ...] = ()


def read_config(config: Mapping[str, Any], folder: Path) -> QuantisationConfig:
    """Raises GreenroomError, naming the method, when it is none that can be read."""
    found = _section(config)
    if found is None:
        return QuantisationConfig()
    reader = _Reader(found, folder)
    method = reader.method()
    if method == "gptq":
        return reader.gptq(reader.text("checkpoint_format", "gptq"))
    if method == "auto-round":
        packing = reader.text("packing_format", "auto_round:auto_gptq")
        if packing == "auto_round:auto_awq":
            return QuantisationConfig(awq=True, group_size=reader.group_size())
        return reader.gptq(packing)
    if method == "awq":
        version = reader.text("version", "gemm").lower()
        if version != "gemm":
            reader.unknown(say("AWQ of version {version}", version=shown(version)))
        return QuantisationConfig(awq=True, group_size=reader.group_size())
    if method == "compressed-tensors":
        return reader.compressed()
    return QuantisationConfig(block=reader.block(found.get("weight_block_size")))


def _section(config: Mapping[str, Any]) -> Any:
    """The part of config.json that tells the quantisation; models that also see keep it with the language model."""
    inner = config.get("text_config")
    for place in (config, inner if isinstance(inner, Mapping) else {}):
        for key in ("quantization_config", "compression_config", "quantization"):
            if place.get(key) is not None:
                return place[key]
    return None


class _Reader:
    def __init__(self, section: Any, folder: Path) -> None:
        self._folder = folder
        if not isinstance(section, Mapping):
            self._broken(say("it is not an object"))
        self._section: Mapping[str, Any] = section

    def method(self) -> str:
        given = self._section.get("quant_method")
        if given is None:
            if "quant_algo" in self._section:
                return "modelopt"
            if "bits" in self._section and "group_size" in self._section:
                self.unknown("MLX")
            self._broken(say("it names no quant_method"))
        if not isinstance(given, str):
            self._broken(say("its quant_method is no name"))
        if given not in _METHODS:
            self.unknown(shown(given))
        return given

    def gptq(self, layout: str) -> QuantisationConfig:
        if layout not in _GPTQ_OFFSETS:
            if layout.startswith("auto_round:llm_compressor") or layout == "auto_round:fp8_static":
                return QuantisationConfig()
            self.unknown(say("GPTQ in the layout {layout}", layout=shown(layout)))
        return QuantisationConfig(
            zero_offset=_GPTQ_OFFSETS[layout],
            symmetric=self._section.get("sym", True) is True,
            group_size=self.group_size(),
            bits=self._integer("bits", self._section.get("bits", 4)),
        )

    def compressed(self) -> QuantisationConfig:
        groups = self._section.get("config_groups")
        schemes = list(groups.values()) if isinstance(groups, Mapping) else []
        formats = [self.text("format", "dense")]
        packed: dict[tuple[int, int], None] = {}
        block = None
        for scheme in schemes:
            weights = scheme.get("weights") if isinstance(scheme, Mapping) else None
            if weights is None:
                continue
            if not isinstance(weights, Mapping):
                self._broken(say("a group of its config_groups is no object"))
            if isinstance(scheme.get("format"), str):
                formats.append(scheme["format"])
            if weights.get("type", "int") == "int":
                size = weights.get("group_size")
                size = 0 if size in (None, -1) else self._integer("group_size", size)
                packed[self._integer("num_bits", weights.get("num_bits", 8)), size] = None
            block = weights.get("block_structure") or block
        for name in formats:
            if name not in _COMPRESSED_FORMATS:
                self.unknown(say("compressed-tensors in the format {name}", name=shown(name)))
        return QuantisationConfig(block=self.block(block), packed=tuple(packed))

    def block(self, value: Any) -> tuple[int, int]:
        if value is None:
            return 128, 128
        if not isinstance(value, list) or len(value) != 2:
            self._broken(say("its weight blocks are not given as rows and columns"))
        return self._integer("weight_block_size", value[0]), self._integer("weight_block_size", value[1])

    def group_size(self) -> int:
        value = self._section.get("group_size", 128)
        return 0 if value in (None, -1) else self._integer("group_size", value)

    def text(self, key: str, default: str) -> str:
        value = self._section.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self._broken(say("its {key} is no name", key=key))
        return value

    def _integer(self, key: str, value: Any) -> int:
        if type(value) is not int or not 0 < value <= _MAX:
            self._broken(say("its {key} is no sensible number", key=key))
        return value

    def unknown(self, name: str) -> NoReturn:
        why = say("it is quantised as {name}, which is not supported", name=name)
        remedy = say(
            "Choose a GGUF file of this model, the plain model, or one quantised with {supported}.",
            supported=_SUPPORTED,
        )
        raise GreenroomError(say("{name} cannot be used", name=self._folder.name), why, remedy)

    def _broken(self, why: str) -> NoReturn:
        what = say("The quantisation in {name}'s config.json makes no sense", name=self._folder.name)
        raise GreenroomError(what, why, say("Download the model again."))

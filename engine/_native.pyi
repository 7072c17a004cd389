"""The compiled kernels. All arrays are C-contiguous; every call that works releases the GIL.

Numerics. int4 and int8 weights meet activations rounded to int8 (symmetric, per group of 32); float weights meet
float32 activations, except bf16 and e4m3 weights on the tiers "avx512bf16" and "amx", where activations are rounded to
bfloat16 in decode and prefill alike. Sums are float32. On one tier a token's result has the same bits for any number of
threads, whatever other tokens are in the call; tiers differ in the last bits ("amx" and "avx512vnni" do not for integer
codes). A NaN or an infinity spoils the token it is in, no other.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

class CpuFeatures:
    """CPU detection: CPUID and XCR0 (and, for AMX on Linux, the kernel's permission)."""

    vendor: str
    brand: str
    family: int
    model: int
    #: What CPUID reports / what the operating system lets us use, by short name: "sse2", "avx2", "fma", "f16c",
    #: "avxvnni", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx512bf16", "amx_tile",
    #: "amx_int8", "amx_bf16".
    cpu: list[str]
    usable: list[str]

def cpu_features() -> CpuFeatures: ...
def tiers() -> list[str]:
    """Kernel tiers this CPU and OS can run and this build has, best first, e.g. ["avx512vnni", "avx2", "portable"].

    GREENROOM_ISA caps the list; an unknown name in it raises ValueError.
    """

def kernel_tier(code: str, isa: str | None = None) -> str:
    """The tier a weight code's kernels run on here, at most `isa`: "int4", "int8", "e4m3", "bf16", "f16" or "f32"."""

class ThreadPool:
    """Own workers; the calling thread works too, so threads=1 starts none. Idle workers spin about 1 ms, then sleep.

    cpus: cores to pin to, one per thread; None leaves them free. The first is for the caller, which is never moved.
    nodes: the memory node of each thread, counted from 0; None is one node for all. See `Experts`.
    One call runs at a time; others wait. Raises ValueError for impossible counts or cores, RuntimeError once closed.
    """

    def __init__(self, threads: int, cpus: Sequence[int] | None = None, nodes: Sequence[int] | None = None) -> None: ...
    @property
    def threads(self) -> int: ...
    def tallies(self) -> list[tuple[int, int]]:
        """Per thread, the tiles it has run of layers spread over several nodes: (of its own node, of others).

        Counts from when the pool was made or resized.
        """

    def resize(self, threads: int) -> None: ...
    def cancel(self) -> None:
        """Makes the call running now return early: its result is then undefined and it raises `Interrupted`.

        Without a running call it does nothing. Any thread may call it.
        """

    def close(self) -> None: ...

class Interrupted(RuntimeError): ...
class EndOfFile(EOFError): ...

class Matrix:
    """One packed weight matrix [rows, columns]: y = x @ W.T (+ nothing else).

    format: how the given bytes are stored: "F32", "F16", "BF16", a GGUF type ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
        "IQ4_NL", "MXFP4", "NVFP4", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"), or blocks as
        `engine.checkpoints.blocks` names them: {I4, I8, E4M3}_G{16, 32, 64, 128}_{F16, BF16, F32}, with _Z behind
        integers that have zero points. All are kept in as many bytes as the file takes.
    recode: None keeps the stored bits; "int8" (groups of 32), "int4" (groups of 32, IQ4_NL's table), "int4_g128" (of
        128, codes -8 .. 7; both with searched scales) or "float32" re-codes. Codes of the width asked for are kept as
        they are.
    Raises ValueError for unknown names and for columns that are no multiple of the format's block, MemoryError.
    """

    def __init__(
        self, rows: int, columns: int, format: str, recode: str | None = None, isa: str | None = None
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def code(self) -> str:
        """ "int4" (codes of two and three bits too), "int8" (of five and six), "e4m3", "bf16", "f16" or "f32"."""

    def load(self, pool: ThreadPool, data: npt.NDArray[np.uint8], first_row: int = 0) -> None:
        """Pack stored rows (a whole number of them) starting at first_row. Raises ValueError on any size mismatch."""

    def load_file(self, pool: ThreadPool, path: Path, offset: int, nbytes: int, first_row: int = 0) -> None:
        """The same, reading the rows from a file in cache-sized pieces, in parallel.

        Raises also OSError, EndOfFile when the file is too short, and Interrupted after pool.cancel().
        """

    def set_columns(self, order: npt.NDArray[np.int32]) -> None:
        """Columns are stored in another order: stored column c meets element order[c] of x.

        order: a permutation of the columns; ValueError otherwise. Dequantised, they stand as usual.
        """

    def set_factor(self, first_row: int, rows: int, factor: float) -> None:
        """Multiply the product of some rows by a factor, in float32. Raises ValueError when it is not finite."""

    def forward(self, pool: ThreadPool, x: int, tokens: int, y: int) -> None:
        """x, y: addresses of float32 [tokens, columns] and [tokens, rows]."""

    def dequantise(self) -> npt.NDArray[np.float32]: ...
    def dequantise_rows(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """float32 [len(rows), columns]. Raises ValueError for a row that is not there."""

class Experts:
    """The routed experts of one MoE layer, packed: down(act(gate x, up x)), weighted and summed in the order
    of their numbers.

    gate_format, up_format, down_format: as in Matrix; they may differ. gate and up [intermediate, hidden], down
        [hidden, intermediate].
    nodes: the system's numbers of memory nodes. Node i of the list holds its share of the rows of every expert's three
        matrices; threads of a pool whose `nodes` say i read only that, until they have nothing left to do. Results
        are the same bits as without.
    activation: "silu" silu(gate) * up, "gelu_tanh" gelu(gate) * up by the tanh formula, or "oai" gate *
        sigmoid(1.702 gate) * (up + 1)
    limit: before that gate is cut above at limit, and up on both sides; 0 for not
    bias: all three projections have one, zero until it is loaded
    """

    def __init__(
        self,
        experts: int,
        hidden: int,
        intermediate: int,
        gate_format: str,
        up_format: str,
        down_format: str,
        recode: str | None = None,
        isa: str | None = None,
        nodes: Sequence[int] = (),
        *,
        activation: str = "silu",
        limit: float = 0.0,
        bias: bool = False,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def bound(self) -> bool:
        """True when the system keeps every slice on its node; False without nodes."""

    def touch(self, node: int) -> None:
        """Before loading, on systems that refuse to bind: place slice `node` where the calling thread runs."""

    @property
    def codes(self) -> tuple[str, str, str]: ...
    @property
    def tier(self) -> str:
        """What the gate projection's kernel runs on; the others may differ when their codes do."""

    @property
    def formats(self) -> tuple[str, str, str]:
        """Whose packed form gate, up and down have: as stored, or what they were re-coded to ("Q8_0", "IQ4_NL",
        "I4_G128_F16" or "F32").
        """

    @property
    def strip_nbytes(self) -> tuple[int, int, int]:
        """Bytes of one strip (16 rows) of gate, up and down."""

    @property
    def strips(self) -> list[tuple[int, int]]:
        """Of each memory node's slice of an expert: pairs of a gate and an up strip, then strips of down."""

    def pieces(self, expert: int) -> list[npt.NDArray[np.uint8]]:
        """The packed bytes of one expert, one read-only view per memory node. Raises ValueError for no such expert."""

    @property
    def reordered(self) -> bool:
        """True when some expert's columns are stored in an order of their own."""

    def factors(self, part: str) -> npt.NDArray[np.float32]:
        """[experts], what each one's products with this part are multiplied by."""

    def biases(self, part: str) -> npt.NDArray[np.float32] | None:
        """[experts, rows of the part]"""

    @property
    def counts(self) -> npt.NDArray[np.uint64]:
        """[experts] how many tokens have gone to each since the layer was made, through `forward` or a
        `Decoder`. A copy; any thread may ask, also during a call.
        """

    @property
    def locked(self) -> bool:
        """True when the arena is locked in RAM (mlock)."""

    def lock(self) -> bool:
        """Try to lock the arena in RAM; False when the system's limit forbids it."""

    def load(self, pool: ThreadPool, expert: int, part: str, data: npt.NDArray[np.uint8]) -> None:
        """part: "gate", "up" or "down". Raises ValueError on any size mismatch."""

    def set_factor(self, expert: int, part: str, factor: float) -> None:
        """Multiply the product of one expert's gate, up or down by a factor, before any bias, in float32."""

    def set_columns(self, expert: int, part: str, order: npt.NDArray[np.int32]) -> None:
        """Gate's or up's columns are stored in another order: stored column c meets element order[c] of x.

        order: a permutation of the hidden size; ValueError otherwise, and for down, whose columns stand in the order
        of gate's and up's rows.
        """

    def load_bias(self, expert: int, part: str, bias: npt.NDArray[np.float32]) -> None:
        """bias float32 [rows of the part]. Raises ValueError for another size, or when the layer has none."""

    def load_file(self, pool: ThreadPool, expert: int, part: str, path: Path, offset: int, nbytes: int) -> None:
        """The same, reading from a file. Raises what Matrix.load_file raises."""

    def forward(
        self,
        pool: ThreadPool,
        x: int,
        tokens: int,
        expert_ids: int,
        expert_weights: int,
        top_k: int,
        y: int,
        accumulate: bool = False,
    ) -> None:
        """Addresses of: x float32 [tokens, hidden]; expert_ids int32 [tokens, top_k]; expert_weights float32
        [tokens, top_k]; y float32 [tokens, hidden]. An id < 0 is skipped (computed elsewhere). accumulate adds to y
        instead of overwriting it. Raises ValueError for an id >= experts.
        """

    def dequantise(self, expert: int, part: str) -> npt.NDArray[np.float32]: ...

class Attention:
    """One layer's attention: bias, norm and rotation of q and k, the KV cache, and softmax(scale q k) v.

    Grouped query (head h reads the keys of head h * kv_heads // heads), causal. head_dim 1 to 512; the first `rotated`
    dimensions of each head are turned in pairs of neighbours. float32 arithmetic; keys and values are stored as
    kv_type: "f32", "bf16" or "f16", rounded to nearest, or "q8", int8 with a scale per head and token. A token's result
    has the same bits whether the sequence came in one piece, in chunks or token by token. A NaN or an infinity spoils
    no token that does not see it.

    context: tokens of a conversation
    bias: float32 [(heads + 2 kv_heads) * head_dim], added to qkv
    q_norm, k_norm: float32 weights of RMS norms, which use norm_eps: of each head [head_dim] with qk_norm "head", of
        all heads as one vector [heads * head_dim] with "full"; with "l2" each head is normed without a weight
    norm_after_rope: that norm follows the rotation ("full" cannot)
    v_norm: RMS norm of each value head, without weight
    clip: q, k and v are clamped to +-clip, after a "full" norm and before anything else; 0 for none
    window: a token sees so many tokens, itself included; chunk: a token sees those from the last multiple of chunk on.
        0 for all. Such a layer's cache keeps no more than window (chunk) + rollback tokens (and one block of 64): a
        call takes at most `rollback` tokens, and a conversation may be taken back by so many.
    sinks: float32 [heads], logits that take a share of each softmax's weight
    temperature_interval, temperature_strength: q is multiplied by 1 + strength * ln(1 + floor((position + 1) /
        interval)); 0 for not
    Raises ValueError for impossible sizes and unknown names.
    """

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rotated: int,
        context: int,
        scale: float,
        kv_type: str,
        bias: npt.NDArray[np.float32] | None = None,
        q_norm: npt.NDArray[np.float32] | None = None,
        k_norm: npt.NDArray[np.float32] | None = None,
        norm_eps: float = 0.0,
        isa: str | None = None,
        *,
        qk_norm: str = "head",
        norm_after_rope: bool = False,
        v_norm: bool = False,
        clip: float = 0.0,
        window: int = 0,
        chunk: int = 0,
        rollback: int = 1024,
        sinks: npt.NDArray[np.float32] | None = None,
        temperature_interval: int = 0,
        temperature_strength: float = 0.0,
    ) -> None: ...
    @property
    def tier(self) -> str:
        """ "avx512", "avx2" or "portable"; "avx512bf16" for keys and values in bf16, which are multiplied by queries
        and weights in bf16, subnormal numbers taken for 0, and summed in float32.
        """

    def forward(self, pool: ThreadPool, qkv: int, tokens: int, turns: int, start: int, cache: int, y: int) -> None:
        """Tokens at positions start .. start + tokens - 1 join the cache and attend to everything up to themselves.

        Addresses of: qkv float32 [tokens, heads + 2 kv_heads, head_dim], which is overwritten; turns float32 [tokens,
        rotated / 2, 2], cosine and sine of each pair's angle, ignored where nothing is rotated; cache
        [kv_cache_nbytes], with the positions below start; y float32 [tokens, heads * head_dim]. Raises ValueError when
        the cache has no room.
        """

def kv_cache_nbytes(
    kv_heads: int, head_dim: int, context: int, kv_type: str, reach: int = 0, rollback: int = 1024
) -> int:
    """Bytes of one layer's KV cache: the caller's memory, of any contents, in a layout of the kernel's own.

    reach: window or chunk of the layer, 0 for none. The context is rounded up to 64 tokens, values to 16 per head.
    """

def rms_norm(pool: ThreadPool, x: int, added: int, tokens: int, hidden: int, weight: int, eps: float, y: int) -> None:
    """y = x / sqrt(mean(x^2) + eps) * weight per token, after x += added; added 0 adds nothing.

    Addresses of: x, added and y float32 [tokens, hidden], y may be x; weight float32 [hidden]. Keeps the GIL for a
    single token.
    """

def layer_norm(
    pool: ThreadPool, x: int, added: int, tokens: int, hidden: int, weight: int, bias: int, eps: float, y: int
) -> None:
    """y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias per token; otherwise as `rms_norm`."""

class Router:
    """Which experts a token goes to, and how much each counts. Names and order of work as in MoeSpec.

    bias, choice_bias, expert_scale: float32 [experts] or None
    shared_gate: one more logit, the shared expert's
    Raises ValueError for names and numbers that make no sense.
    """

    def __init__(
        self,
        experts: int,
        top_k: int,
        score: str,
        *,
        groups: int = 1,
        top_groups: int = 1,
        group_score: str = "top2",
        renormalise: bool = False,
        renormalise_eps: float = 0.0,
        renormalise_min: float = 0.0,
        scale: float = 1.0,
        jitter: float = 0.0,
        shared_gate: bool = False,
        bias: npt.NDArray[np.float32] | None = None,
        choice_bias: npt.NDArray[np.float32] | None = None,
        expert_scale: npt.NDArray[np.float32] | None = None,
    ) -> None: ...
    def choose(self, logits: int, tokens: int, ids: int, weights: int, factors: int) -> None:
        """Addresses of: logits float32 [tokens, experts], one more column with a shared gate; ids int32 and weights
        float32 [tokens, top_k], best first, lower ids first among equals; factors float32 [tokens], the sigmoid of the
        shared gate, ignored without one. Keeps the GIL.
        """

def rope_turns(
    frequencies: Sequence[float] | npt.NDArray[np.float64], magnitude: float, start: int, tokens: int
) -> npt.NDArray[np.float32]:
    """[tokens, frequencies, 2]: magnitude times cosine and sine of position * frequency, from position start on."""

class NormBlock:
    """weight, bias float32 [hidden]; without a bias a root mean square norm, with one a layer norm."""

    def __init__(self, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32] | None, eps: float) -> None: ...

class LinearBlock:
    """Matrices stacked in rows, and a bias float32 [rows]."""

    def __init__(self, parts: Sequence[Matrix], bias: npt.NDArray[np.float32] | None = None) -> None: ...

class AttentionBlock:
    """o(attention(qkv(x))). rope: its place in the Decoder's list, or None where nothing is rotated. cache: address of
    the layer's KV cache, which must outlive this.
    """

    def __init__(
        self, qkv: LinearBlock, attention: Attention, o: LinearBlock, rope: int | None, cache: int
    ) -> None: ...

class ShortConv:
    """Gates and a causal depthwise convolution between them (LFM2).

    The state is saved at multiples of `interval`, and calls of at most `draft` tokens leave all of their inputs.
    kernel: float32 [width, channels], the oldest token's weights first; bias float32 [channels]
    """

    def __init__(
        self,
        channels: int,
        width: int,
        interval: int,
        draft: int,
        kernel: npt.NDArray[np.float32],
        bias: npt.NDArray[np.float32] | None = None,
    ) -> None: ...
    def forward(
        self,
        pool: ThreadPool,
        projected: int,
        tokens: int,
        start: int,
        past: int,
        recent: int,
        saved: int,
        y: int,
    ) -> None:
        """All addresses of float32. projected [tokens, 3 channels]: b, c and x of each token, overwritten; y [tokens,
        channels] = c * (conv(b * x) + bias).

        past [width - 1, channels]: the inputs before the call. recent [width - 1 + draft, channels] gets these and the
        call's, or after more than `draft` tokens the last width - 1; saved [1 + context / interval, width - 1,
        channels] those before every multiple of `interval`.
        """

class ConvBlock:
    """out(conv(inputs(x))). past, recent, saved: addresses as of `ShortConv.forward`, which must outlive this."""

    def __init__(
        self, inputs: LinearBlock, conv: ShortConv, out: LinearBlock, past: int, recent: int, saved: int
    ) -> None: ...

class MlpBlock:
    """expert: of one."""

    def __init__(self, expert: Experts) -> None: ...

class MoeBlock:
    """router_norm: of the residual stream, which the router then reads. weigh_input: the router's weights multiply the
    experts' input instead of their output.
    """

    def __init__(
        self,
        logits: LinearBlock,
        router: Router,
        router_norm: NormBlock | None,
        experts: Experts,
        weigh_input: bool,
        shared: MlpBlock | None,
    ) -> None: ...

class ParallelBlock:
    """A dense MLP and routed experts side by side, each with norms of its own; the experts read the residual stream."""

    def __init__(
        self, dense: MlpBlock, dense_post_norm: NormBlock, norm: NormBlock, experts: MoeBlock, post_norm: NormBlock
    ) -> None: ...

class LayerBlock:
    """x += multiplier * mixer(norm x); x += multiplier * ffn(norm x); x *= output_scale. Post norms act on the results
    before they are added.
    """

    def __init__(
        self,
        mixer_norm: NormBlock,
        mixer: AttentionBlock | ConvBlock,
        ffn_norm: NormBlock,
        ffn: MlpBlock | MoeBlock | ParallelBlock,
        mixer_post_norm: NormBlock | None = None,
        ffn_post_norm: NormBlock | None = None,
        multiplier: float = 1.0,
        output_scale: float | None = None,
    ) -> None: ...

class Decoder:
    """Every layer, the last norm and the output head, in one call without the GIL.

    ropes: (angle from one position to the next of each pair, magnitude)
    Raises ValueError for parts that do not fit each other. The same bits as its parts called one by one.
    """

    def __init__(
        self,
        ropes: Sequence[tuple[Sequence[float], float]],
        layers: Sequence[LayerBlock],
        norm: NormBlock,
        head: LinearBlock,
    ) -> None: ...
    def forward(self, pool: ThreadPool, x: int, tokens: int, start: int, last_only: bool, logits: int) -> None:
        """Addresses of: x float32 [tokens, hidden], embeddings of the tokens at positions start .. start + tokens - 1,
        overwritten; logits float32 [tokens, vocab], or [1, vocab] of the last token with last_only. The caches hold
        everything below start. Raises Interrupted after `ThreadPool.cancel`.
        """

def packed_nbytes(rows: int, columns: int, format: str, recode: str | None = None, isa: str | None = None) -> int:
    """What a Matrix of this shape will take in RAM, without making it. (Plans use it.)"""

def read_bandwidth(pool: ThreadPool, nbytes: int, repeats: int) -> list[float]:
    """Bytes per second of a plain read loop over a fresh anonymous buffer, one figure per repeat."""

def arithmetic_peak(pool: ThreadPool, code: str, isa: str | None = None) -> tuple[str, float] | None:
    """The instruction a code's kernel leans on here, and its operations per second in registers on the pool's threads.

    None where this build has no such loop. One thread is timed by its CPU time, several by the clock.
    """

def handover_seconds(pool: ThreadPool) -> float | None:
    """How long a cache line takes from one thread of the pool to another, one way.

    Threads under one last-level cache need less than 0.1 us; their reads also share its port to memory. None with one
    thread, or when the other never got a core.
    """

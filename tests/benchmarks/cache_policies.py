"""Hit rate against slots in VRAM for each cache policy, on recorded and on made-up routing.

    python tests/benchmarks/cache_policies.py record MODEL --out TRACE.npz [--tokens 200] [--prompts FILE]
    python tests/benchmarks/cache_policies.py simulate [--trace NAME=TRACE.npz ...] [--tokens 600] [--write]
    python tests/benchmarks/cache_policies.py tune [--trace NAME=TRACE.npz ...]

`simulate --write` puts the table and the picture into docs/. Every run of the same traces gives the same figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from routing_trace import RoutingTrace, record_routing

from engine.executors.hybrid.hot_cache import POLICIES, HotCache, Policy

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hybrid-cache.md"
PICTURE = ROOT / "docs" / "images" / "cache-policies.svg"
#: Shares of all experts that have a slot.
SHARES = (0.0625, 0.125, 0.25, 0.375, 0.5, 0.75)
#: Uploads per step: an expert of 2.7 MB (2048 x 768 at 4.5 bits) takes 0.2 ms at 12 GB/s and a step about 30 ms.
MOST = 16
#: First share of a trace that only warms the cache.
WARM_UP = 0.25

PROMPTS = (
    "Explain how a refrigerator keeps food cold, step by step.",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "What are the differences between a list and a tuple in Python? Give examples.",
    "Plan a weekend in a small town by the sea for a family with two children.",
    "Summarise the causes of the French Revolution in a few paragraphs.",
    "Write a polite letter to a landlord about a broken heating.",
    "How do I calculate the area of a triangle when I know all three sides?",
    "Give me a recipe for a simple vegetable soup, with amounts.",
)


@dataclass(frozen=True)
class Result:
    """hit_rate of decoded tokens; uploads per decoded token"""

    hit_rate: float
    uploads: float


def simulate(
    trace: RoutingTrace,
    policy: Policy,
    slots: int,
    *,
    most: int = MOST,
    statistics: np.ndarray | None = None,
    warm_up: float = WARM_UP,
) -> Result:
    """A copy takes one step: what is asked for after a step serves from the step after the next on."""
    experts = trace.counts.shape[2]
    cache = HotCache(trace.layers.tolist(), experts, slots, policy, statistics)
    for upload in cache.fill():
        cache.uploaded(upload)
    first = int(len(trace.tokens) * warm_up)
    coming, uploads, decoded, before = [], 0, 0, (0, 0)
    for step, tokens in enumerate(trace.tokens.tolist()):
        if step == first:
            cache.advance(0)
            before = cache.hits, cache.misses
        answer = bool(trace.answer[step])
        for row, layer in enumerate(cache.layers):
            counts = trace.counts[step, row]
            if answer:
                cache.lookup(layer, np.flatnonzero(counts))
            else:
                cache.observe(layer, counts, tokens)
        cache.advance(tokens)
        for upload in coming:
            cache.uploaded(upload)
        coming = cache.next_uploads(most)
        if step >= first:
            uploads += len(coming)
            decoded += answer
    hits, misses = cache.hits - before[0], cache.misses - before[1]
    return Result(hits / max(1, hits + misses), uploads / max(1, decoded))


def synthetic(
    kind: str, tokens: int, layers: int = 8, experts: int = 64, top_k: int = 8, seed: int = 0
) -> RoutingTrace:
    """A made-up router; each layer has popularities of its own.

    uniform: all experts equally likely, without memory
    zipf:    the expert of rank r is chosen in proportion to 1 / r, for ever
    topics:  every 150 tokens another topic, which favours other experts (Zipf too), and half of a token's experts are
             those of the token before, as adjacent tokens of real models share 30 to 40 %
    """
    random = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, experts + 1)
    popularity = np.stack([random.permutation(weights) for _ in range(layers)])
    if kind == "uniform":
        popularity[:] = 1.0
    counts = np.zeros((tokens, layers, experts), np.uint16)
    last = np.zeros((layers, experts))
    for token in range(tokens):
        if kind == "topics" and token % 150 == 0:
            topic = np.stack([random.permutation(weights) for _ in range(layers)])
            popularity = 0.3 * np.stack([random.permutation(weights) for _ in range(layers)]) + topic
        # Gumbel's trick: the best of log-weight plus noise is a choice without replacement in proportion to weights.
        scores = np.log(popularity) + random.gumbel(size=popularity.shape)
        if kind == "topics":
            scores += 1.5 * last
        chosen = np.argpartition(-scores, top_k, axis=1)[:, :top_k]
        last = np.zeros((layers, experts))
        np.put_along_axis(last, chosen, 1.0, axis=1)
        counts[token] = last
    return RoutingTrace(np.arange(layers, dtype=np.int32), np.ones(tokens, np.int32), np.ones(tokens, np.bool_), counts)


def traces(args: argparse.Namespace) -> dict[str, RoutingTrace]:
    found = {}
    for named in args.trace:
        name, _, path = named.partition("=")
        found[name] = RoutingTrace.load(Path(path))
    for kind in ("topics", "zipf", "uniform"):
        found[f"made up, {kind}"] = synthetic(kind, args.tokens)
    return found


def record(args: argparse.Namespace) -> None:
    import engine
    from engine.runtime.events import Message, SamplingParams

    prompts: Sequence[str] = PROMPTS
    if args.prompts:
        prompts = [text for text in args.prompts.read_text(encoding="utf-8").split("\n\n") if text.strip()]
    checkpoint = engine.open_checkpoint(args.model)
    plan = engine.plan(checkpoint, engine.probe(quick=True), context=2048, threads=1, device="cpu")
    with engine.load(checkpoint, plan) as loaded:
        params = SamplingParams(temperature=0.7, seed=0, max_tokens=args.tokens)
        trace = record_routing(loaded, [[Message("user", text)] for text in prompts], params)
    trace.save(args.out)
    print(json.dumps({"steps": len(trace.tokens), "layers": len(trace.layers), "bytes": args.out.stat().st_size}))


def tune(args: argparse.Namespace) -> None:
    for name, trace in traces(args).items():
        slots = round(0.25 * trace.counts[0].size)
        for half_life in (16, 32, 64, 128, 256, 512):
            row = []
            for advantage in (1.0, 1.25, 1.5, 2.0):
                result = simulate(trace, Policy("lfru", half_life, advantage), slots)
                row.append(f"{result.hit_rate:.3f} ({result.uploads:5.1f})")
            print(f"{name:18} half-life {half_life:4}: " + "  ".join(row))


def run_all(args: argparse.Namespace) -> None:
    found = traces(args)
    results: dict[str, dict[str, list[Result]]] = {}
    for name, trace in found.items():
        size = trace.counts[0].size
        # What a run before would have left, for the policy that knows nothing else: the warm-up's counts.
        known = trace.counts[: int(len(trace.tokens) * WARM_UP)].sum(0, dtype=np.float64)
        results[name] = {
            policy: [
                simulate(trace, Policy(policy), round(share * size), statistics=known if policy == "static" else None)
                for share in SHARES
            ]
            for policy in POLICIES
        }
    lines = table(results)
    print("\n".join(lines))
    if args.write:
        PICTURE.write_text(picture(results), encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
        start, end = "<!-- policies -->\n", "<!-- /policies -->"
        head, tail = text.split(start)[0], text.split(end)[1]
        PAGE.write_text(head + start + "\n".join(lines) + "\n" + end + tail, encoding="utf-8")


def table(results: dict[str, dict[str, list[Result]]]) -> list[str]:
    heads = [f"{share:.0%}".replace("12%", "12.5%") if share != 0.0625 else "6.25%" for share in SHARES]
    lines = ["| routing | policy | " + " | ".join(heads) + " | uploads per token at 25% |"]
    lines.append("|---|---|" + "---:|" * (len(SHARES) + 1))
    for name, policies in results.items():
        for policy, row in policies.items():
            cells = [f"{100 * result.hit_rate:.1f} %" for result in row]
            lines.append(f"| {name} | {policy} | " + " | ".join(cells) + f" | {row[SHARES.index(0.25)].uploads:.1f} |")
    return lines


COLOURS = {"lfru": "#2f6fdb", "lru": "#d9822b", "lfu": "#3a9d5d", "static": "#8a8f98"}


def picture(results: dict[str, dict[str, list[Result]]]) -> str:
    """One panel per trace; SVG by hand, so that nothing but a browser is needed."""
    width, height, left, top = 230, 190, 44, 34
    total = left + len(results) * (width + 24)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height + 96}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{total}" height="{height + 96}" fill="#ffffff"/>',
    ]
    for panel, (name, policies) in enumerate(results.items()):
        x0 = left + panel * (width + 24)

        def place(share: float, rate: float, x0: int = x0) -> str:
            return f"{x0 + share / 0.75 * width:.1f},{top + (1 - rate) * height:.1f}"

        out.append(f'<text x="{x0}" y="{top - 12}" font-weight="bold" fill="#22262d">{name}</text>')
        for rate in (0.0, 0.25, 0.5, 0.75, 1.0):
            y = top + (1 - rate) * height
            out.append(f'<path d="M{x0} {y}h{width}" stroke="#dfe2e7"/>')
            if panel == 0:
                out.append(f'<text x="{x0 - 6}" y="{y + 4}" text-anchor="end" fill="#5b626d">{rate:.0%}</text>')
        for share in (0.0, 0.25, 0.5, 0.75):
            x = x0 + share / 0.75 * width
            out.append(f'<text x="{x}" y="{top + height + 16}" text-anchor="middle" fill="#5b626d">{share:.0%}</text>')
        for policy, row in policies.items():
            points = " ".join(place(share, result.hit_rate) for share, result in zip(SHARES, row, strict=True))
            wide = 2.5 if policy == "lfru" else 1.5
            out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[policy]}" stroke-width="{wide}"/>')
    y = top + height + 40
    out.append(f'<text x="{left}" y="{y}" fill="#5b626d">across: share of experts with a slot; up: hit rate</text>')
    for i, policy in enumerate(COLOURS):
        x = left + i * 90
        out.append(f'<path d="M{x} {y + 22}h22" stroke="{COLOURS[policy]}" stroke-width="3"/>')
        out.append(f'<text x="{x + 28}" y="{y + 26}" fill="#22262d">{policy}</text>')
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    jobs: dict[str, Callable[[argparse.Namespace], None]] = {"record": record, "simulate": run_all, "tune": tune}
    for name, job in jobs.items():
        verb = verbs.add_parser(name)
        verb.set_defaults(job=job)
        verb.add_argument("--tokens", type=int, default=200 if name == "record" else 600)
        if name == "record":
            verb.add_argument("model")
            verb.add_argument("--out", type=Path, required=True)
            verb.add_argument("--prompts", type=Path)
        else:
            verb.add_argument("--trace", action="append", default=[], metavar="NAME=FILE")
            verb.add_argument("--write", action="store_true")
    args = parser.parse_args()
    args.job(args)


if __name__ == "__main__":
    main()

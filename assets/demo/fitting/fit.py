"""Learn the demo's parts: which neurons form the experts, the routers, a low-rank correction of the down matrices.

    python fit.py FOLDER DENSE.gguf MINUTES      (FOLDER as `texts.py` left it)

A run leaves FOLDER/checkpoint.pt. Another run goes on from there, on the text that follows, with fresh learning rates,
and learns the gains alone: the many elements of routers and corrections would only pick up the sample's noise.

1. Watch the dense model on a sample of the text. In every layer the neurons with the largest mean |activation| times
   down-column norm become the shared expert; the others are clustered by co-activation into experts of equal size.
2. Start each router as the ridge regression of the experts' contribution norms on the layer's input, and the correction
   as the best rank-r map (ridge, in the metric of the output) from the kept activations to the dropped contribution.
3. Distil: the whole model learns to give the dense model's next-token distribution (Kullback-Leibler divergence, Adam).
   What is learned: routers (through the top-k choice by the straight-through estimator), corrections, a gain for each
   neuron and for each norm weight.
4. Save them, rounded to int8 and float16, as FOLDER/parts.npz. They are shipped as ../parts.npz.
"""

from __future__ import annotations

import json
import logging
import math
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from dense import HIDDEN, LAYERS, NEURONS, Dense, Weights, load_tokenizer, load_weights

SHARED, EXPERTS, USED, RANK = 768, 12, 7, 32
WIDTH = (NEURONS - SHARED) // EXPERTS
WINDOW, BATCH = 256, 2
TEXT_TOKENS = {  # how much of each named text, from its middle on
    "debian-handbook": 80_000,
    "anarchism": 60_000,
    "moby-dick": 50_000,
    "debian-reference": 40_000,
    "jargon": 30_000,
    "fortunes": 20_000,
}
CHAT_PASSES = 2
WATCHED_TEXTS, WATCHED_TOKENS, WATCHED_CHAT_TOKENS = ("debian-handbook", "anarchism", "jargon", "fortunes"), 3072, 8192
LEARNING_RATE, RESUMED_GAIN_RATE, WARM_UP_STEPS = 1.5e-3, 1e-3, 15
RESUMED_SHARE = 0.75  # how much of a resumed run's change is kept: damps what noise is left in it
SOFTNESS = 0.25  # of the router's gradient, in router logits

CHECKPOINT_STEPS = 50

log = logging.getLogger("fit")


def windows(folder: Path, tokenizer_file: Path) -> torch.Tensor:
    """All fitting text, shuffled. int64 [N, WINDOW]"""
    tokenizer = load_tokenizer(tokenizer_file)
    chance = random.Random(3)
    chats = json.loads((folder / "chats.json").read_text("utf-8"))["fit"]
    chance.shuffle(chats)
    streams = [[token for chat in chats for token in chat] * CHAT_PASSES]
    for name, tokens in TEXT_TOKENS.items():
        text = (folder / "fit" / f"{name}.txt").read_text("utf-8")
        start = len(text) // 2
        streams.append(tokenizer.encode(text[start : start + 6 * tokens]).ids[:tokens])
    cut = [s[i : i + WINDOW] for s in streams for i in range(0, len(s) - WINDOW + 1, WINDOW)]
    return torch.tensor(cut)[torch.randperm(len(cut), generator=torch.Generator().manual_seed(5))]


def watched_windows(folder: Path, tokenizer_file: Path) -> torch.Tensor:
    """A small sample for steps 1 and 2. int64 [N, WINDOW]"""
    tokenizer = load_tokenizer(tokenizer_file)
    ids = []
    for name in WATCHED_TEXTS:
        text = (folder / "fit" / f"{name}.txt").read_text("utf-8")
        ids += tokenizer.encode(text[40_000 : 40_000 + 8 * WATCHED_TOKENS]).ids[:WATCHED_TOKENS]
    chats = json.loads((folder / "chats.json").read_text("utf-8"))["fit"]
    ids += [token for chat in chats for token in chat][:WATCHED_CHAT_TOKENS]
    return torch.tensor(ids).view(-1, WINDOW)


class Watched(Dense):
    """Keeps what the feed-forward layers saw: inputs bfloat16 [N, HIDDEN], activations bfloat16 [N, NEURONS]."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights, torch.bfloat16)
        self.seen: list[list[tuple[torch.Tensor, torch.Tensor]]] = [[] for _ in range(LAYERS)]

    def feed_forward(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        activations = self.activations(layer, x)
        self.seen[layer].append((x.reshape(-1, HIDDEN).to(self.dtype), activations.reshape(-1, NEURONS)))
        return self.linear(activations, f"blk.{layer}.ffn_down").float()


def balanced_clusters(points: torch.Tensor) -> torch.Tensor:
    """EXPERTS clusters of WIDTH points each (spherical k-means with full clusters closed). int64 [n]"""
    chance = torch.Generator().manual_seed(0)
    centres = points[torch.randperm(len(points), generator=chance)[:EXPERTS]]
    label = torch.zeros(len(points), dtype=torch.long)
    for _ in range(12):
        likeness = points @ centres.T
        best = likeness.topk(2, 1).values
        room = [WIDTH] * EXPERTS
        wishes = likeness.argsort(1, descending=True).tolist()
        for point in (best[:, 1] - best[:, 0]).argsort().tolist():  # those that care most choose first
            expert = next(e for e in wishes[point] if room[e])
            label[point], room[expert] = expert, room[expert] - 1
        centres = torch.stack([F.normalize(points[label == e].sum(0), dim=0) for e in range(EXPERTS)])
    return label


def neuron_order(activations: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """The shared expert's neurons, then each routed expert's. int64 [NEURONS]"""
    contribution = activations.abs() * down.norm(dim=0)
    strongest = contribution.mean(0).argsort(descending=True)
    shared, routed = strongest[:SHARED].sort().values, strongest[SHARED:]
    together = contribution[:, routed]
    together = F.normalize((together - together.mean(0)).T, dim=1)  # cosine is then correlation
    chance = torch.Generator().manual_seed(1)
    basis = torch.linalg.qr(together.T @ torch.randn(len(routed), 96, generator=chance))[0]
    label = balanced_clusters(F.normalize(together @ basis, dim=1))
    return torch.cat([shared, *(routed[label == e].sort().values for e in range(EXPERTS))])


def ridge(inputs: torch.Tensor, targets: torch.Tensor, strength: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(the map [inputs, targets], the ridged Gram matrix of the inputs)."""
    gram = inputs.T @ inputs
    gram += strength * gram.diagonal().mean() * torch.eye(len(gram))
    return torch.cholesky_solve(inputs.T @ targets, torch.linalg.cholesky(gram)), gram


def chosen(scores: torch.Tensor) -> torch.Tensor:
    """1 for the USED best experts of each row, else 0."""
    return torch.zeros_like(scores).scatter_(-1, scores.topk(USED, -1).indices, 1.0)


def soft_choice(scores: torch.Tensor) -> torch.Tensor:
    """`chosen`, with the slope of a sigmoid around the edge between chosen and dropped."""
    edge = scores.detach().topk(USED + 1, -1).values[..., -2:].mean(-1, keepdim=True)
    soft = torch.sigmoid((scores - edge) / SOFTNESS)
    return chosen(scores.detach()) + soft - soft.detach()


def first_parts(seen: list[tuple[torch.Tensor, torch.Tensor]], down: torch.Tensor) -> dict[str, torch.Tensor]:
    """Steps 1 and 2 for one layer. down: float32 [HIDDEN, NEURONS]"""
    inputs, activations = (torch.cat(part).float() for part in zip(*seen, strict=True))
    order = neuron_order(activations, down)
    activations, down = activations[:, order], down[:, order]
    norms = torch.stack(
        [
            (activations[:, start : start + WIDTH] @ down[:, start : start + WIDTH].T).norm(dim=1)
            for start in range(SHARED, NEURONS, WIDTH)
        ],
        1,
    )
    norms -= norms.mean(1, keepdim=True)
    router, _ = ridge(inputs, norms / norms.std(), 0.003)
    kept = activations.clone()
    kept[:, SHARED:] *= chosen(inputs @ router).repeat_interleave(WIDTH, 1)
    missing, whole = (activations - kept) @ down.T, activations @ down.T
    correction, gram = ridge(kept, missing, 0.03)
    _, directions = torch.linalg.eigh(correction.T @ gram @ correction)
    out = directions[:, -RANK:]
    inn = (correction @ out).T
    left = missing - kept @ inn.T @ out.T
    shares = [(part.norm() / whole.norm()).item() ** 2 for part in (missing, left)]
    log.info("missed %.4f of the output, %.4f after the correction", *shares)
    balance = (out.norm() / inn.norm()).sqrt()
    return {
        "order": order,
        "router": router.T,
        "out": out / balance,
        "inn": inn * balance,
        "gain": torch.ones(NEURONS),
        "norms": torch.zeros(2, HIDDEN),
    }


def all_first_parts(folder: Path, model_file: Path, weights: Weights) -> list[dict[str, torch.Tensor]]:
    watched = Watched(weights)
    with torch.no_grad():
        for ids in watched_windows(folder, model_file).split(4):
            watched.hidden(ids)
    parts = []
    for layer in range(LAYERS):
        parts.append(first_parts(watched.seen[layer], weights[f"blk.{layer}.ffn_down.weight"]))
        watched.seen[layer].clear()
    return parts


class Mixture(Dense):
    """The demo as it is learned, neurons in their new order."""

    def __init__(self, weights: Weights, parts: list[dict[str, torch.Tensor]], last_norm: torch.Tensor) -> None:
        super().__init__(weights, torch.bfloat16)
        self.order = [part["order"] for part in parts]
        for layer, order in enumerate(self.order):
            for name in ("gate", "up"):
                key = f"blk.{layer}.ffn_{name}.weight"
                self.weights[key] = self.weights[key][order]
            key = f"blk.{layer}.ffn_down.weight"
            self.weights[key] = self.weights[key][:, order].contiguous()
        self.router, self.out, self.inn, self.gain, self.norms = (
            [torch.nn.Parameter(part[name].contiguous().clone()) for part in parts]
            for name in ("router", "out", "inn", "gain", "norms")
        )
        self.reach = torch.zeros(LAYERS)  # largest distance of a router logit from its mean, seen without learning
        self.last_norm = torch.nn.Parameter(last_norm.clone())

    def learned(self) -> dict[str, object]:
        names = ("order", "router", "out", "inn", "gain", "norms")
        parts = [{name: getattr(self, name)[layer].detach() for name in names} for layer in range(LAYERS)]
        return {"parts": parts, "last_norm": self.last_norm.detach()}

    def parameters(self, resumed: bool) -> list[dict[str, object]]:
        norms = [*self.norms, self.last_norm]
        if resumed:
            for fixed in (*self.router, *self.out, *self.inn):
                fixed.requires_grad_(False)
            return [{"params": [*self.gain, *norms], "lr": RESUMED_GAIN_RATE}]
        slow = [*self.router, *self.out, *self.inn, *norms]
        return [{"params": slow, "lr": LEARNING_RATE}, {"params": self.gain, "lr": 2 * LEARNING_RATE}]

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        if name == "output_norm":
            change = self.last_norm
        else:
            _, layer, kind = name.split(".")
            change = self.norms[int(layer)][("attn_norm", "ffn_norm").index(kind)]
        return super().norm(x, name) * (1 + change)

    def feed_forward(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        scores = x @ self.router[layer].T
        if torch.is_grad_enabled():
            choice = soft_choice(scores)
        else:
            choice = chosen(scores)
            spread = (scores - scores.mean(-1, keepdim=True)).abs().max()
            self.reach[layer] = self.reach[layer].maximum(spread)
        choice = choice.to(self.dtype).repeat_interleave(WIDTH, -1)
        activations, gain = self.activations(layer, x), self.gain[layer].to(self.dtype)
        shared, routed = activations.split([SHARED, NEURONS - SHARED], -1)
        kept = torch.cat([shared * gain[:SHARED], routed * (choice * gain[SHARED:])], -1)
        correction = F.linear(F.linear(kept, self.inn[layer].to(self.dtype)), self.out[layer].to(self.dtype))
        return (self.linear(kept, f"blk.{layer}.ffn_down") + correction).float()


def learn_step(student: Mixture, teacher: Dense, ids: torch.Tensor) -> float:
    """Add the gradients of one batch; returns its divergence from the dense model in nats per token."""
    hidden = student.hidden(ids).view(-1, HIDDEN)
    with torch.no_grad():
        wanted = teacher.logits(teacher.hidden(ids).view(-1, HIDDEN)).log_softmax(-1)
        given = student.logits(hidden.detach()).log_softmax(-1)
        share = wanted.exp()
        divergence = (share * (wanted - given)).sum(-1).mean().item()
        # the gradient of a softmax, by hand: the vocabulary is too wide to keep for autograd
        slope = given.exp_().sub_(share).div_(len(share)).to(student.dtype)
        hidden_slope = (slope @ student.weights["token_embd.weight"]).float()
    hidden.backward(hidden_slope)
    return divergence


def distil(student: Mixture, teacher: Dense, data: torch.Tensor, seen: int, minutes: float, checkpoint: Path) -> None:
    """Goes through `data` in order, again from its start if need be."""
    groups = student.parameters(resumed=seen > 0)
    learned = [p for group in groups for p in group["params"]]
    before = [p.detach().clone() for p in learned]
    rates = [group["lr"] for group in groups]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.98), eps=1e-9)
    begin, step, recent = time.monotonic(), 0, None
    while (done := (time.monotonic() - begin) / 60 / minutes) < 1:
        fall = min(1, (step + 1) / WARM_UP_STEPS) * max(0.02, 0.5 * (1 + math.cos(math.pi * done)))
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * fall
        first = (seen + step * BATCH) % (len(data) - BATCH)
        divergence = learn_step(student, teacher, data[first : first + BATCH])
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        recent = divergence if recent is None else 0.95 * recent + 0.05 * divergence
        step += 1
        if step % 10 == 0:
            log.info("step %d, %d tokens: divergence %.4f", step, step * BATCH * WINDOW, recent)
        if step % CHECKPOINT_STEPS == 0:
            save_checkpoint(student, seen + step * BATCH, checkpoint)
    if seen:
        with torch.no_grad():
            for parameter, old in zip(learned, before, strict=True):
                parameter.lerp_(old, 1 - RESUMED_SHARE)
    save_checkpoint(student, seen + step * BATCH, checkpoint)


def save_checkpoint(student: Mixture, seen: int, path: Path) -> None:
    """seen: how many windows of text the student has learned from."""
    half = path.with_suffix(".part")
    torch.save(student.learned() | {"seen": seen}, half)
    half.replace(path)


def int8(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    scale = np.abs(values).max(axis=axis, keepdims=True) / 127
    return np.round(values / scale).astype(np.int8), scale.squeeze(axis).astype(np.float32)


def save(student: Mixture, path: Path) -> None:
    def stacked(tensors: list[torch.Tensor]) -> np.ndarray:
        return torch.stack([t.detach() for t in tensors]).numpy()

    router = stacked(student.router)
    router -= router.mean(1, keepdims=True)  # what all experts share chooses nothing
    router, router_scale = int8(router / student.reach.numpy()[:, None, None], 2)
    out, out_scale = int8(stacked(student.out), 1)
    inn, inn_scale = int8(stacked(student.inn), 2)
    norms = np.concatenate([stacked(student.norms).reshape(-1, HIDDEN), student.last_norm.detach().numpy()[None]])
    np.savez_compressed(
        path,
        shape=np.array([SHARED, EXPERTS, USED], np.int32),
        order=stacked(student.order).astype(np.int16),
        router=router,
        router_scale=router_scale,
        out=out,
        inn=inn,
        rank_scale=out_scale * inn_scale,
        gain=stacked(student.gain).astype(np.float16),
        norms=norms.astype(np.float16),
    )


def main(folder: Path, model_file: Path, minutes: float) -> None:
    data, weights = windows(folder, model_file), load_weights(model_file)
    log.info("%d tokens to fit on", data.numel())
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        kept = torch.load(checkpoint)
        student, seen = Mixture(weights, kept["parts"], kept["last_norm"]), kept["seen"]
    else:
        student, seen = Mixture(weights, all_first_parts(folder, model_file, weights), torch.zeros(HIDDEN)), 0
    distil(student, Dense(weights, torch.bfloat16), data, seen, minutes, checkpoint)
    with torch.no_grad():
        student.hidden(data[:8])  # for `reach`
    save(student, folder / "parts.npz")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(2)
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))

"""A small language model, right by default: ``python decoder.py '{"norm": "cast first"}'`` runs it with a bug.

The keys are fields of ``Settings``; each bug of ``table.py`` is one value of one field. Nothing here is of another
project: the modules bear the names that decoders usually have.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

HIDDEN, HEADS, KV_HEADS, SIZE, LAYERS, WORDS = 48, 4, 2, 12, 2, 64


@dataclass(frozen=True)
class Settings:
    """What the bugs are about; the defaults are what the fixes made of it."""

    dtype: str = "bfloat16"
    norm: str = "cast last"  # cast first, low variance
    rope: str = "float32"  # bfloat16, cast frequencies
    embedding_scale: str = "rounded"  # exact
    activation: str = "tanh"  # none
    attention: str = "eager"  # sdpa
    causal: str = "bottom right"  # top left
    mask: str = "clamped"  # added
    window: int = 0
    soft_cap: float = 0.0
    router: str = ""  # softmax first, top first
    key_heads: int = KV_HEADS
    head: str = "tied"  # untied
    positions: str = "from mask"  # from zero
    cache: str = ""  # by row, by page
    start: int = 0
    padding: int = 0
    autocast: str = ""  # guarded, open
    chunks: tuple[int, ...] = (10,)


class Norm(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.weight, self.order = nn.Parameter(torch.randn(HIDDEN) / 4), settings.norm

    def forward(self, x):
        if self.order == "low variance":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.order == "cast first":
            return wide.to(x.dtype) * (1 + self.weight)
        return (wide * (1 + self.weight.float())).to(x.dtype)


class Rotary(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.register_buffer("inv_freq", self.frequencies(), persistent=False)

    @staticmethod
    def frequencies():
        return 1 / 10000 ** (torch.arange(0, SIZE, 2) / SIZE)

    def forward(self, positions, dtype):
        of = torch.bfloat16 if self.settings.rope == "bfloat16" else torch.float32
        guarded = self.settings.autocast == "guarded"
        with torch.autocast("cpu", enabled=False) if guarded else contextlib.nullcontext():
            angles = positions[..., None].to(of) @ self.inv_freq[None].to(of)
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(dtype)[:, None], angles.sin().to(dtype)[:, None]


def turned(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    def __init__(self, settings, longest):
        super().__init__()
        self.settings = settings
        self.q_proj = nn.Linear(HIDDEN, HEADS * SIZE, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False)
        self.o_proj = nn.Linear(HEADS * SIZE, HIDDEN, bias=False)
        self.keys, self.values, self.longest = None, None, longest

    def forward(self, x, rotary, mask):
        q, k, v = (
            projection(x).unflatten(-1, (-1, SIZE)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turned(q, *rotary), turned(k, *rotary)
        k, v = self.cached(k, v)
        k, v = (side.repeat_interleave(HEADS // KV_HEADS, 1) for side in (k, v))
        made = self.sdpa(q, k, v) if self.settings.attention == "sdpa" else self.eager(q, k, v, mask)
        return self.o_proj(made.transpose(1, 2).flatten(2))

    def cached(self, k, v):
        if self.settings.cache:
            return self.written("keys", k), self.written("values", v)
        if self.keys is not None:
            k, v = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        self.keys, self.values = k, v
        return k, v

    def written(self, name, new):
        """A cache of fixed length that is written in place; by page: as if it were as deep as what is new."""
        shape = (*new.shape[:2], self.longest, SIZE)
        old, begin = getattr(self, name) or (new.new_zeros(shape), 0)
        end = begin + new.shape[2]
        if self.settings.cache == "by page":
            old.view(-1, SIZE)[begin : begin + math.prod(new.shape[:3])].copy_(new.flatten(0, 2))
        else:
            old[:, :, begin:end].copy_(new)
        setattr(self, name, (old, end))
        return old[:, :, :end]

    def sdpa(self, q, k, v):
        if self.settings.causal == "top left":
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    def eager(self, q, k, v, mask):
        scores = q @ k.transpose(-1, -2) / math.sqrt(SIZE)
        if self.settings.soft_cap:
            scores = (scores / self.settings.soft_cap).tanh() * self.settings.soft_cap
        scores = scores + mask
        if self.settings.mask == "clamped":
            lowest = torch.tensor(torch.finfo(scores.dtype).min, dtype=scores.dtype)
            weights = functional.softmax(torch.maximum(scores, lowest), -1, dtype=torch.float32).to(q.dtype)
        else:
            weights = functional.softmax(scores, -1)
        return weights @ v


class Dense(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.up_proj = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.down_proj = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.act_fn = nn.GELU(approximate=settings.activation)

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """Of four experts two for each token."""

    def __init__(self, settings):
        super().__init__()
        self.order = settings.router
        self.gate = nn.Linear(HIDDEN, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))

    def forward(self, x):
        logits = self.gate(x)
        if self.order == "top first":
            chosen, experts = logits.topk(2, -1)
            weights = chosen.softmax(-1, dtype=torch.float32)
        else:
            weights, experts = logits.softmax(-1, dtype=torch.float32).topk(2, -1)
        share = torch.zeros(logits.shape).scatter(-1, experts, weights).to(x.dtype)
        made = torch.stack([expert(x) for expert in self.experts], -1)
        return (made * share[..., None, :]).sum(-1)


class Layer(nn.Module):
    def __init__(self, settings, longest):
        super().__init__()
        self.input_layernorm = Norm(settings)
        self.self_attn = Attention(settings, longest)
        self.post_attention_layernorm = Norm(settings)
        self.mlp = Experts(settings) if settings.router else Dense(settings)

    def forward(self, x, rotary, mask):
        x = x + self.self_attn(self.input_layernorm(x), rotary, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.embed_tokens = nn.Embedding(WORDS, HIDDEN)
        self.rotary_emb = Rotary(settings)
        self.layers = nn.ModuleList(Layer(settings, sum(settings.chunks) + 2) for _ in range(LAYERS))
        self.norm = Norm(settings)

    def forward(self, tokens, attended, begin):
        x = self.embed_tokens(tokens)
        scale = math.sqrt(HIDDEN)
        x = x * (torch.tensor(scale, dtype=x.dtype) if self.settings.embedding_scale == "rounded" else scale)
        count = tokens.shape[1]
        if self.settings.positions == "from mask":
            positions = (attended.long().cumsum(-1) - 1).clamp(min=0)[:, -count:]
        else:
            positions = torch.arange(begin, begin + count)[None].expand(tokens.shape)
        rotary = self.rotary_emb(positions + self.settings.start, x.dtype)
        mask = self.mask(attended, count, x.dtype)
        for layer in self.layers:
            x = layer(x, rotary, mask)
        return self.norm(x)

    def mask(self, attended, count, dtype):
        lowest, length = torch.finfo(dtype).min, attended.shape[1]
        hidden = torch.full((count, length), lowest, dtype=dtype).triu(length - count + 1)
        if self.settings.window:
            hidden = hidden + torch.full((count, length), lowest, dtype=dtype).tril(
                length - count - self.settings.window
            )
        return hidden + (1 - attended.to(dtype))[:, None, None] * lowest


class CausalLM(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.model = Model(settings)
        self.lm_head = nn.Linear(HIDDEN, WORDS, bias=False)
        if settings.head == "tied":
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens, attended, begin):
        return self.lm_head(self.model(tokens, attended, begin))


def permuted(weight, heads):
    """The rows of a projection, whose pairs of values lie side by side, as halves of each head."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def main(settings):
    torch.manual_seed(3)
    net = CausalLM(settings).eval()
    with torch.no_grad():
        for layer in net.model.layers:
            attention = layer.self_attn
            attention.q_proj.weight.copy_(4 * permuted(attention.q_proj.weight, HEADS))
            attention.k_proj.weight.copy_(4 * permuted(attention.k_proj.weight, settings.key_heads))
    net.to(getattr(torch, settings.dtype))
    if settings.rope != "cast frequencies":
        net.model.rotary_emb.inv_freq = Rotary.frequencies()
    tokens = torch.randint(WORDS, (2, sum(settings.chunks)), generator=torch.Generator().manual_seed(5))
    attended, begin = torch.ones(tokens.shape, dtype=torch.bool), 0
    attended[1, : settings.padding] = False
    cast = torch.autocast("cpu", torch.bfloat16) if settings.autocast else contextlib.nullcontext()
    with torch.no_grad(), cast:
        for count in settings.chunks:
            end = begin + count
            logits = net(tokens[:, begin:end], attended[:, :end], begin)
            begin = end
    print(logits[:, -1].argmax(-1).tolist())


if __name__ == "__main__":
    main(Settings(**json.loads(sys.argv[1])))

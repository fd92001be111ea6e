"""A small diffusion model with its text encoder and its decoder of pictures, right by default.

``python denoiser.py '{"shift": 1.0}'`` runs it with a bug: a field of ``Settings``, as in ``decoder.py``.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

HIDDEN, HEADS, SIDE = 32, 2, 8


@dataclass(frozen=True)
class Settings:
    dtype: str = "float32"
    part: str = "denoiser"  # text, pictures
    eps: float = 1e-6
    shift: float = 0.0
    key_norm: str = "norm_added_k"  # norm_added_q
    normalise: str = "float32"  # as it comes
    overflow: str = "clamped"  # left


class Timesteps(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = shift

    def forward(self, steps):
        half = HIDDEN // 2
        exponent = -math.log(10000) * torch.arange(half) / (half - self.shift)
        angles = steps[:, None].float() * exponent.exp()[None]
        return torch.cat((angles.cos(), angles.sin()), -1)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, HIDDEN, eps=1e-5), nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)
        self.time_emb_proj = nn.Linear(HIDDEN, HIDDEN)
        self.norm2, self.conv2 = nn.GroupNorm(4, HIDDEN, eps=1e-5), nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)

    def forward(self, x, time):
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + self.time_emb_proj(functional.silu(time))[:, :, None, None]
        return x + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Picture and text in one attention, each with its own projections."""

    def __init__(self, key_norm):
        super().__init__()
        self.key_norm, size = key_norm, HIDDEN // HEADS
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out"):
            setattr(self, name, nn.Linear(HIDDEN, HIDDEN))
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            setattr(self, name, nn.LayerNorm(size, bias=False))
            nn.init.uniform_(getattr(self, name).weight, 0.5, 1.5)

    def forward(self, picture, text):
        q, k, v = (self.heads(make(picture)) for make in (self.to_q, self.to_k, self.to_v))
        q, k = self.norm_q(q), self.norm_k(k)
        more_q, more_k, more_v = (
            self.heads(make(text)) for make in (self.add_q_proj, self.add_k_proj, self.add_v_proj)
        )
        more_q, more_k = self.norm_added_q(more_q), getattr(self, self.key_norm)(more_k)
        q, k, v = (torch.cat(both, 2) for both in ((more_q, q), (more_k, k), (more_v, v)))
        made = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.to_out(made[:, text.shape[1] :])

    @staticmethod
    def heads(x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class Spatial(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.norm = nn.GroupNorm(4, HIDDEN, eps=settings.eps)
        self.proj_in, self.proj_out = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.attn = Attention(settings.key_norm)

    def forward(self, x, text):
        y = self.proj_in(self.norm(x).flatten(2).transpose(1, 2))
        y = self.proj_out(y + self.attn(y, text))
        return x + y.transpose(1, 2).unflatten(-1, x.shape[2:])


class Denoiser(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.time_proj = Timesteps(settings.shift)
        self.time_embedding = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN))
        self.conv_in = nn.Conv2d(4, HIDDEN, 3, padding=1)
        self.resnets = nn.ModuleList(Residual() for _ in range(2))
        self.attentions = nn.ModuleList(Spatial(settings) for _ in range(2))
        self.conv_out = nn.Conv2d(HIDDEN, 4, 3, padding=1)

    def forward(self, x, steps, text):
        time = self.time_embedding(self.time_proj(steps).to(x.dtype))
        x = self.conv_in(x)
        for resnet, attention in zip(self.resnets, self.attentions):
            x = attention(resnet(x, time), text)
        return self.conv_out(functional.silu(x))


class PixelNorm(nn.Module):
    """To length 1 over the channels, then a gain."""

    def __init__(self, settings):
        super().__init__()
        self.gamma, self.normalise = nn.Parameter(torch.ones(HIDDEN, 1, 1)), settings.normalise

    def forward(self, x):
        wide = x.float() if self.normalise == "float32" else x
        return functional.normalize(wide, dim=1).to(x.dtype) * math.sqrt(HIDDEN) * self.gamma


class Pictures(nn.Module):
    """From latents to pictures; the values of its inner layers are large, as those of trained ones are."""

    def __init__(self, settings):
        super().__init__()
        self.conv_in = nn.Conv2d(4, HIDDEN, 3, padding=1)
        self.norm1, self.conv1 = PixelNorm(settings), nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)
        self.norm2, self.conv2 = PixelNorm(settings), nn.Conv2d(HIDDEN, HIDDEN, 3, padding=1)
        self.conv_out = nn.Conv2d(HIDDEN, 3, 3, padding=1)
        with torch.no_grad():
            self.conv_in.weight.mul_(21000)

    def forward(self, x):
        x = self.conv_in(x)
        x = x + self.conv1(functional.silu(self.norm1(x)))
        x = x + self.conv2(functional.silu(self.norm2(x)))
        return self.conv_out(functional.tanh(x))


class FeedForward(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.layer_norm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.wi, self.wo = nn.Linear(HIDDEN, 64, bias=False), nn.Linear(64, HIDDEN, bias=False)
        self.overflow = settings.overflow

    def forward(self, x):
        x = x + self.wo(functional.relu(self.wi(self.layer_norm(x))))
        if self.overflow == "clamped":
            most = torch.finfo(x.dtype).max - 1000
            x = x.clamp(-most, most)
        return x


class Text(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.embed = nn.Embedding(50, HIDDEN)
        self.block = nn.ModuleList(FeedForward(settings) for _ in range(3))
        self.final_layer_norm = nn.RMSNorm(HIDDEN, eps=1e-6)
        with torch.no_grad():
            self.block[1].wo.weight.mul_(2e5)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.block:
            x = block(x)
        return self.final_layer_norm(x)


def main(settings):
    torch.manual_seed(4)
    nets = {"denoiser": Denoiser, "text": Text, "pictures": Pictures}
    net = nets[settings.part](settings).eval()
    dtype = getattr(torch, settings.dtype)
    net.to(dtype)
    with torch.no_grad():
        if settings.part == "text":
            made = net(torch.arange(2 * 7).reshape(2, 7))
        elif settings.part == "pictures":
            made = net(torch.randn(1, 4, SIDE, SIDE, dtype=dtype))
        else:
            x = torch.randn(2, 4, SIDE, SIDE, dtype=dtype) / 100
            made = net(x, torch.tensor([999, 17]), torch.randn(2, 5, HIDDEN, dtype=dtype))
    print(float(made.float().mean()))


if __name__ == "__main__":
    main(Settings(**json.loads(sys.argv[1])))

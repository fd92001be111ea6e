"""Two nets of known kinds for the plants of group ``precision``: a decoder as Llama's, and a U-Net as diffusion has it.

Each can be written in several ways that mean the same (``written``), and has one fault at a time, in a module that is
named. The decoder reads a prompt and then two tokens, one by one, with keys and values in a cache that is written in
place: grouped queries, rotary positions, RMSNorm, SwiGLU. The U-Net has GroupNorm, SiLU, an embedding of the time,
cross-attention, and samples down and up.
"""

import math

import torch
from torch import nn
from torch.nn import functional

PROMPT, LATER, ROOM = 6, 2, 12


class RootNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight, self.eps, self.is_fused = nn.Parameter(torch.rand(size) + 0.5), eps, False

    def forward(self, x):
        wide = x.float()
        if self.is_fused:  # rounded where the other form rounds: another order is a fault
            return self.weight * functional.rms_norm(wide, self.weight.shape, None, self.eps).to(x.dtype)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Rotary(nn.Module):
    def __init__(self, size, theta=10000.0):
        super().__init__()
        self.size, self.theta = size, theta

    def forward(self, positions, dtype):
        frequencies = 1 / self.theta ** (torch.arange(0.0, self.size, 2) / self.size)
        angles = positions[:, None].float() * frequencies
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


class Attention(nn.Module):
    """Queries of 4 heads, keys and values of 2; ``cache`` is written in place, from ``at`` on."""

    heads, groups, size = 4, 2, 8

    def __init__(self, width):
        super().__init__()
        self.q_proj = nn.Linear(width, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(width, self.groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, self.groups * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, width, bias=False)
        self.scale, self.is_one_operator, self.is_fused, self.is_joined = self.size**-0.5, True, False, False
        self.tiles, self.interleaves, self.writes, self.off, self.diagonal = False, False, True, 0, 0

    def forward(self, x, turns, cache, at):
        count = x.shape[1]
        q, k, v = (side.view(x.shape[0], count, -1, self.size).transpose(1, 2) for side in self.sides(x))
        q, k = self.turned(q, *turns), self.turned(k, *turns)
        if self.is_joined:
            cache["k"], cache["v"] = (torch.cat([cache[name][:, :, :at], new], 2) for name, new in (("k", k), ("v", v)))
        else:
            begin = max(at + self.off, 0) if at else at
            cache["k"][:, :, begin : begin + count] = k
            if self.writes or not at:
                cache["v"][:, :, at : at + count].copy_(v)
        k, v = cache["k"][:, :, : at + count], cache["v"][:, :, : at + count]
        times = self.heads // self.groups
        k, v = (side.repeat(1, times, 1, 1) if self.tiles else side.repeat_interleave(times, 1) for side in (k, v))
        mask = torch.ones(count, at + count, dtype=torch.bool).tril(at + self.diagonal)
        if self.is_one_operator:
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
        else:
            scores = (q @ k.transpose(2, 3)) * self.scale
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            y = functional.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
        return self.o_proj(y.transpose(1, 2).reshape(x.shape[0], count, -1))

    def sides(self, x):
        if not self.is_fused:
            return self.q_proj(x), self.k_proj(x), self.v_proj(x)
        weights = [side.weight for side in (self.q_proj, self.k_proj, self.v_proj)]
        return functional.linear(x, torch.cat(weights)).split([len(weight) for weight in weights], -1)

    def turned(self, x, cos, sin):
        if self.interleaves:
            other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        else:
            other = torch.cat([-x[..., self.size // 2 :], x[..., : self.size // 2]], -1)
        return x * cos + other * sin


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * width, width, bias=False)
        self.curve, self.is_fused = functional.silu, False

    def forward(self, x):
        if self.is_fused:
            gate, up = functional.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, -1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(self.curve(gate) * up)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RootNorm(width), RootNorm(width)
        self.self_attn, self.mlp = Attention(width), FeedForward(width)

    def forward(self, x, turns, cache, at):
        x = x + self.self_attn(self.input_layernorm(x), turns, cache, at)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(40, width)
        self.rotary_emb = Rotary(Attention.size)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm, self.lm_head = RootNorm(width), nn.Linear(width, 40, bias=False)

    def forward(self, tokens):
        kind = self.lm_head.weight.dtype
        shape = len(tokens), Attention.groups, ROOM, Attention.size
        caches = [{name: torch.zeros(shape, dtype=kind) for name in "kv"} for _ in self.layers]
        logits = []
        for begin, count in [(0, PROMPT), *((PROMPT + later, 1) for later in range(LATER))]:
            x = self.embed_tokens(tokens[:, begin : begin + count])
            turns = self.rotary_emb(torch.arange(begin, begin + count), x.dtype)
            for layer, cache in zip(self.layers, caches):
                if torch.is_autocast_enabled("cpu"):
                    cache.update({name: values.bfloat16() for name, values in cache.items()})
                x = layer(x, turns, cache, begin)
            logits.append(self.lm_head(self.norm(x)))
        return torch.cat(logits, 1)


class TimeEmbedding(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear_1, self.linear_2, self.size = nn.Linear(16, size), nn.Linear(size, size), 16
        self.shift, self.is_flipped = 0, False

    def forward(self, time, dtype):
        half = self.size // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32) / (half - self.shift))
        angles = time[:, None].float() * frequencies
        parts = [angles.sin(), angles.cos()] if self.is_flipped else [angles.cos(), angles.sin()]
        return self.linear_2(functional.silu(self.linear_1(torch.cat(parts, -1).to(dtype))))


class Residual(nn.Module):
    def __init__(self, inner, outer, time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inner), nn.GroupNorm(4, outer)
        self.conv1, self.conv2 = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
        self.time_emb_proj = nn.Linear(time, outer)
        self.shortcut = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()
        self.curve, self.forgets, self.is_parts = functional.silu, False, False

    def forward(self, x, time):
        curve = (lambda y: y * torch.sigmoid(y)) if self.is_parts else self.curve
        y = self.conv1(curve(self.norm1(x)))
        if not self.forgets:
            y = y + self.time_emb_proj(functional.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(curve(self.norm2(y)))


class CrossAttention(nn.Module):
    heads = 2

    def __init__(self, width, text):
        super().__init__()
        self.norm = nn.GroupNorm(4, width, eps=1e-6)
        self.to_q, self.to_k = nn.Linear(width, width, bias=False), nn.Linear(text, width, bias=False)
        self.to_v, self.to_out = nn.Linear(text, width, bias=False), nn.Linear(width, width)
        self.scale, self.is_one_operator, self.swaps = (width // self.heads) ** -0.5, True, False

    def forward(self, x, text):
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        sides = self.to_q(tokens), self.to_k(text), self.to_v(text)
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in sides)
        k, v = (v, k) if self.swaps else (k, v)
        if self.is_one_operator:
            y = functional.scaled_dot_product_attention(q, k, v, scale=self.scale)
        else:
            y = ((q @ k.transpose(2, 3)) * self.scale).softmax(-1) @ v
        y = self.to_out(y.transpose(1, 2).flatten(2))
        return x + y.transpose(1, 2).unflatten(2, x.shape[2:])


class Down(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.is_aside = nn.Conv2d(width, width, 3, stride=2), False

    def forward(self, x):
        return self.conv(functional.pad(x, (0, 1, 0, 1) if self.is_aside else (1, 1, 1, 1)))


class Up(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.mode = nn.Conv2d(width, width, 3, padding=1), "nearest"

    def forward(self, x):
        return self.conv(functional.interpolate(x, scale_factor=2.0, mode=self.mode))


class UNet(nn.Module):
    def __init__(self, width=16, text=12, time=32):
        super().__init__()
        self.time_embedding = TimeEmbedding(time)
        self.conv_in, self.down_0 = nn.Conv2d(4, width, 3, padding=1), Residual(width, width, time)
        self.downsample, self.mid_0 = Down(width), Residual(width, 2 * width, time)
        self.mid_attention, self.mid_1 = CrossAttention(2 * width, text), Residual(2 * width, width, time)
        self.upsample, self.up_0 = Up(width), Residual(2 * width, width, time)
        self.up_attention = CrossAttention(width, text)
        self.norm_out, self.conv_out = nn.GroupNorm(4, width), nn.Conv2d(width, 4, 3, padding=1)
        self.skips = True

    def forward(self, given):
        x, time, text = given
        time = self.time_embedding(time, self.conv_in.weight.dtype)
        x = before = self.down_0(self.conv_in(x), time)
        x = self.mid_1(self.mid_attention(self.mid_0(self.downsample(x), time), text), time)
        x = torch.cat([self.upsample(x), before], 1)
        x = self.up_attention(self.up_0(x, time), text)
        return self.conv_out(functional.silu(self.norm_out(x)))


# Of each class: attributes that a fault sets.
FAULTS = {
    RootNorm: [("eps", 1e-2)],
    Rotary: [("theta", 500.0)],
    Attention: [
        ("scale", 0.2),
        ("tiles", True),
        ("interleaves", True),
        ("writes", False),
        ("off", -1),
        ("diagonal", 1),
        ("diagonal", -1),
    ],
    FeedForward: [("curve", functional.gelu), ("curve", torch.sigmoid)],
    TimeEmbedding: [("shift", 1), ("is_flipped", True)],
    Residual: [("curve", functional.gelu), ("forgets", True)],
    CrossAttention: [("scale", 0.5), ("swaps", True)],
    Down: [("is_aside", True)],
    Up: [("mode", "bilinear")],
    nn.GroupNorm: [("eps", 1e-2), ("num_groups", 2)],
}
MADE = {"decoder": Decoder, "unet": UNet}
SCALED = (nn.Linear, nn.Conv2d, nn.Embedding, nn.GroupNorm, RootNorm)


def planted(net, fault):
    """``number`` counts the weights, then the attributes that a fault may set, and goes around; the module's name."""
    with_weights = [name for name, module in net.named_modules() if isinstance(module, SCALED)]
    attributes = [(name, *one) for name, module in net.named_modules() for one in FAULTS.get(type(module), ())]
    if fault["kind"] == "weight":
        name = with_weights[fault["number"] % len(with_weights)]
        flat = net.get_submodule(name).weight.data.view(-1)
        if fault["element"] is None:
            flat.mul_(fault["factor"])
        elif isinstance(net.get_submodule(name), nn.Embedding):
            flat.add_(0.1 * fault["factor"])
        else:
            flat[fault["element"] % flat.numel()] += 0.3 * fault["factor"]
        return name
    name, attribute, value = attributes[fault["number"] % len(attributes)]
    setattr(net.get_submodule(name), attribute, value)
    return name


def made(spec):
    """The net of a specification, its input, and the module of its fault."""
    torch.manual_seed(spec["seed"])
    net = MADE[spec["net"]]().eval()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.GroupNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
    kind = getattr(torch, spec.get("dtype") or "float32")
    if spec["net"] == "decoder":
        given = torch.randint(40, (2, PROMPT + LATER))
    else:
        given = (torch.randn(2, 4, 8, 8).to(kind), torch.tensor([7, 430]), torch.randn(2, 5, 12).to(kind))
    culprit = planted(net, spec["fault"]) if spec["fault"] else ""
    for module in net.modules():
        for name in spec.get("written", ()):
            if hasattr(module, name):
                setattr(module, name, not getattr(module, name))
    return net.to(kind), given, culprit

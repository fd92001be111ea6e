"""A language model that samples tokens with a cache."""

import torch
from torch import nn

torch.manual_seed(5)


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, cache):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.h, d // self.h).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        mask = torch.ones(t, k.shape[2], dtype=torch.bool).tril(k.shape[2] - t)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, t, d)), (k, v)


class Decoder(nn.Module):
    def __init__(self, d=32, layers=2, vocab=50):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, d), nn.Embedding(64, d)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n1": nn.LayerNorm(d),
                    "a": Attention(d, 4),
                    "n2": nn.LayerNorm(d),
                    "m": nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(d)

    def forward(self, ids, past=None):
        start = 0 if past is None else past[0][0].shape[2]
        x = self.embed(ids) + self.pos(torch.arange(start, start + ids.shape[1]))
        new = []
        for i, layer in enumerate(self.layers):
            y, c = layer["a"](layer["n1"](x), None if past is None else past[i])
            x = x + y
            x = x + layer["m"](layer["n2"](x))
            new.append(c)
        return self.norm(x) @ self.embed.weight.T, new


model = Decoder().eval()
ids = torch.randint(0, 50, (2, 5))
past = None
with torch.inference_mode():
    step = ids
    for _ in range(6):
        logits, past = model(step, past)
        probs = (logits[:, -1] / 0.8).softmax(-1)
        step = torch.multinomial(probs, 1)
        ids = torch.cat((ids, step), 1)
print(ids.tolist())

"""A small transformer with a decode loop, as a user's program has it: warm-up, prefill, then a token at a time."""

import torch
import torch.nn.functional as F


class Attention(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(size, size, bias=False) for _ in range(4))

    def forward(self, x, past=None, mask=None):
        k, v = self.k(x), self.v(x)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        scores = self.q(x) @ k.transpose(1, 2) / 4
        if mask is not None:
            scores = scores + mask
        return self.o(F.softmax(scores, -1) @ v), (k, v)


class Layer(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.attention = torch.nn.LayerNorm(size), Attention(size)
        self.up, self.act, self.down = torch.nn.Linear(size, 32), torch.nn.ReLU(inplace=True), torch.nn.Linear(32, size)

    def forward(self, x, past=None, mask=None):
        found, past = self.attention(self.norm(x), past=past, mask=mask)
        return x + found + self.down(self.act(self.up(x))), past


class Decoder(torch.nn.Module):
    def __init__(self, size=16, words=50, depth=2):
        super().__init__()
        self.embed = torch.nn.Embedding(words, size)
        self.layers = torch.nn.ModuleList([Layer(size) for _ in range(depth)])
        self.head = torch.nn.Linear(size, words)

    def forward(self, words, past=None):
        x = self.embed(words)
        length = words.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1) if length > 1 else None
        kept = []
        for number, layer in enumerate(self.layers):
            x, one = layer(x, past=None if past is None else past[number], mask=mask)
            kept.append(one)
        return {"logits": self.head(x), "past": kept}


def made():
    torch.manual_seed(7)
    return Decoder().eval()


def generate(model, steps=4):
    """Words after a prompt; the model runs ``steps`` + 1 times, the first for warming up."""
    words = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        model(words[:, :2])
        out, found = model(words), []
        for _ in range(steps - 1):
            word = out["logits"][:, -1:].argmax(-1)
            found.append(int(word))
            out = model(word, out["past"])
    return found


if __name__ == "__main__":
    print(generate(made()))

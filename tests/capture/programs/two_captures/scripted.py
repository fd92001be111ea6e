"""Modules scripted and traced."""

import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(20)


class Loop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x, n: int):
        for i in range(n):
            if bool(x.sum() > 0):
                x = self.fc(x).relu()
                x = x + i
        return x


scripted = torch.jit.script(Loop())
traced = torch.jit.trace(torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.ReLU()).eval(), torch.randn(1, 2, 8))
for i in range(3):
    print(scripted(torch.randn(2, 4), i + 1).sum().item(), traced(torch.randn(1, 2, 8)).sum().item())

"""A network of ResNet-50's shape in torch, of random weights."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inputs, inner, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, inner * 4, 1, bias=False), nn.BatchNorm2d(inner * 4)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Identity()
        if inputs != inner * 4:
            self.down = nn.Sequential(nn.Conv2d(inputs, inner * 4, 1, stride, bias=False), nn.BatchNorm2d(inner * 4))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.down(x))


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        norm = nn.BatchNorm2d(width)
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), norm, nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, channels = [], width
        for stage, (count, stride) in enumerate(((3, 1), (4, 2), (6, 2), (3, 2))):
            for block in range(count):
                blocks.append(Bottleneck(channels, width << stage, stride if block == 0 else 1))
                channels = (width << stage) * 4
        self.blocks, self.pool, self.fc = nn.Sequential(*blocks), nn.AdaptiveAvgPool2d(1), nn.Linear(channels, 1000)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))

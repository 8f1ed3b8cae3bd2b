"""Networks as their papers draw them and no faster: a transformer, one that learns words, and ResNet-152."""

import torch
from torch import nn
from torch.nn import functional

from forebay.torch import linear_cross_entropy


class Attention(nn.Module):
    """The first half of a pre-norm transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        """Attend."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """The second half of it."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """Transform."""
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.mlp = Attention(width, heads), MLP(width)

    def forward(self, x):
        """Attend, then transform."""
        return self.mlp(self.attention(x))


def transformer(device, width=2048, depth=8, batch=8, length=2048):
    """Make a stack of blocks in bfloat16, and its input."""
    with device:
        model = nn.Sequential(*(Block(width, max(1, width // 128)) for _ in range(depth)))
    x = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
    return model.to(torch.bfloat16), x


class Causal(nn.Module):
    """A transformer that learns to go on with words; its head is tied."""

    def __init__(self, width, depth, words, chunked=True):
        super().__init__()
        self.embed, self.norm, self.chunked = nn.Embedding(words, width), nn.LayerNorm(width), chunked
        self.blocks = nn.ModuleList(Block(width, max(1, width // 128)) for _ in range(depth))
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, tokens):
        """Return the loss."""
        x, target = self.embed(tokens[:, :-1]), tokens[:, 1:]
        for block in self.blocks:
            x = block(x)
        x, head = self.norm(x), self.embed.weight
        if self.chunked:
            return linear_cross_entropy(x, head, target)
        return functional.cross_entropy(functional.linear(x, head).float().flatten(0, 1), target.flatten())


class Bottleneck(nn.Module):
    """A residual block of three convolutions."""

    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)
        self.short = None
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        """Add what three convolutions give."""
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = functional.relu(self.norm2(self.conv2(y)), inplace=True)
        y = self.norm3(self.conv3(y))
        return functional.relu(y + (x if self.short is None else self.short(x)), inplace=True)


class ResNet(nn.Module):
    """A residual network for images."""

    def __init__(self, depths=(3, 8, 36, 3), width=64):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        blocks, inside = [], width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                blocks.append(Bottleneck(inside, width << stage, 2 if stage and not number else 1))
                inside = 4 * width << stage
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inside, 1000)

    def forward(self, x):
        """Classify."""
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def resnet(device, depths=(3, 8, 36, 3), width=64, batch=48, size=224):
    """Make ResNet-152 and its input."""
    return ResNet(depths, width).to(device), torch.randn(batch, 3, size, size, device=device)

"""Networks as their papers draw them and no faster: a transformer, ResNet-152, a 3-D U-Net."""

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
    """Make a stack of blocks in bfloat16, its input, and the names of its blocks."""
    with device:
        model = nn.Sequential(*(Block(width, max(1, width // 128)) for _ in range(depth)))
    x = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
    return model.to(torch.bfloat16), x, None


def wholes(model):
    """Return the names of its blocks, each of which `fit` finds by its halves."""
    return [name for name, module in model.named_modules() if isinstance(module, Block)]


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
        if self.chunked:
            return linear_cross_entropy(self.norm(x), self.embed.weight, target)
        logits = functional.linear(self.norm(x), self.embed.weight).float()
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


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
    """Make ResNet-152, its input, and the names of its blocks."""
    return ResNet(depths, width).to(device), torch.randn(batch, 3, size, size, device=device), None


class Unit(nn.Sequential):
    """A convolution, its norm and its activation."""

    def __init__(self, inside, outside):
        conv = nn.Conv3d(inside, outside, 3, padding=1, bias=False)
        super().__init__(conv, nn.BatchNorm3d(outside), nn.PReLU(outside))


class VNet(nn.Module):
    """A 3-D U-Net with as many levels as there are widths."""

    def __init__(self, widths=(32, 64, 128, 256), units=2):
        super().__init__()
        self.down, self.up, self.pools, self.rises = (nn.ModuleList() for _ in range(4))
        inside = 1
        for width in widths:
            self.down.append(nn.Sequential(Unit(inside, width), *(Unit(width, width) for _ in range(units - 1))))
            inside = width
        for width in reversed(widths[:-1]):
            self.rises.append(nn.ConvTranspose3d(inside, width, 2, 2))
            self.up.append(nn.Sequential(Unit(2 * width, width), *(Unit(width, width) for _ in range(units - 1))))
            inside = width
        self.head = nn.Conv3d(inside, 2, 1)

    def forward(self, x):
        """Segment."""
        skips = []
        for level, down in enumerate(self.down):
            x = down(functional.max_pool3d(x, 2) if level else x)
            skips.append(x)
        skips.pop()
        for rise, up in zip(self.rises, self.up, strict=True):
            x = up(torch.cat([rise(x), skips.pop()], 1))
        return self.head(x)


def vnet(device, widths=(32, 64, 128, 256), batch=2, size=128):
    """Make a 3-D U-Net, its input, and its units as blocks."""
    model = VNet(widths).to(device)
    names = [name for name, module in model.named_modules() if isinstance(module, Unit)]
    return model, torch.randn(batch, 1, size, size, size, device=device), names

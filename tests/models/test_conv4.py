"""Conv4: the folded pooling is exact, the width scales, and glyphs are learnt."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont

from models.randomness import parameters, shaken
from proxysynth.models.backbones import make_embedder
from proxysynth.models.conv4 import Conv4, PooledConv

FACES = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono")


@pytest.mark.parametrize("size", [2, 7, 8, 32])
def test_pooled_conv_matches_conv_then_pool(size: int) -> None:
    layer = PooledConv(3, 5, kernel_size=3, padding=1, bias=False).double()
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    slow = F.avg_pool2d(F.conv2d(x, layer.weight, padding=1), 2)
    torch.testing.assert_close(layer(x), slow, rtol=1e-12, atol=1e-12)


def test_network_matches_four_plain_blocks() -> None:
    network = shaken(Conv4(width=0.25))
    images = torch.randn(3, 1, 32, 32)
    x = images
    for block in (network.block1, network.block2, network.block3, network.block4):
        conv, norm = block[0], block[1]
        x = F.avg_pool2d(F.conv2d(x, conv.weight, padding=1), 2)
        x = (x - norm.running_mean.view(1, -1, 1, 1)) / (norm.running_var + norm.eps).sqrt().view(
            1, -1, 1, 1
        )
        x = F.relu(x * norm.weight.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1))
    assert x.shape == (3, 64, 2, 2)
    torch.testing.assert_close(network(images), x, rtol=1e-4, atol=1e-5)


def test_width_scales_the_channels() -> None:
    assert Conv4().channels == 256
    assert Conv4(width=0.5).channels == 128
    assert parameters(Conv4(width=0.5)) < 0.3 * parameters(Conv4())


def test_training_improves_retrieval_of_unseen_glyphs() -> None:
    pictures, labels = _glyphs("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    torch.manual_seed(0)
    net = make_embedder("conv4", dim=32, width=0.5)
    seen = labels < 24
    before = _recall(net, pictures[~seen], labels[~seen])
    proxies = torch.nn.Parameter(torch.randn(24, 32))
    optimizer = torch.optim.Adam([*net.parameters(), proxies], lr=3e-3)
    first = last = 0.0
    for epoch in range(25):
        for batch in torch.randperm(int(seen.sum())).split(40):
            x, y = pictures[seen][batch], labels[seen][batch]
            loss = F.cross_entropy(16 * net(x) @ F.normalize(proxies, dim=1).T, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        first, last = (loss.item(), last) if epoch == 0 else (first, loss.item())
    assert last < 0.2 * first
    assert _recall(net, pictures[~seen], labels[~seen]) >= max(before, 0.8)


def _glyphs(characters: str) -> tuple[torch.Tensor, torch.Tensor]:
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{face}.ttf"), 24) for face in FACES]
    pictures = []
    for character in characters:
        for font in fonts:
            picture = Image.new("L", (32, 32))
            ImageDraw.Draw(picture).text((16, 16), character, 255, font, anchor="mm")
            pictures.append(np.asarray(picture, dtype=np.float32) / 255)
    labels = torch.arange(len(characters)).repeat_interleave(len(fonts))
    return torch.tensor(np.stack(pictures))[:, None], labels


def _recall(net: torch.nn.Module, pictures: torch.Tensor, labels: torch.Tensor) -> float:
    net.eval()
    with torch.no_grad():
        similarity = net(pictures) @ net(pictures).T
    net.train()
    similarity.fill_diagonal_(-2)
    return (labels[similarity.argmax(1)] == labels).double().mean().item()

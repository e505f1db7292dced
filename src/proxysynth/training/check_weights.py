"""Whether a file of weights is what it should be: its keys, its numbers, and what it recognizes.

No photograph is needed: six drawings show things that ImageNet has a class for. The three networks
EfficientNet-Lite0 to 2 name each of them first; a network with random weights names one among its
first five with a probability of 5 in 1,000.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from proxysynth.data import PIXELS
from proxysynth.models.backbones import BACKBONES, make_embedder
from proxysynth.models.weights import fit, read_weights

SIDE = 448  # of a drawing, reduced to the network's size
FIRST = 5  # a class among this many counts as recognized
ENOUGH = 2  # of the drawings: fewer than 1 in 1,000 random networks reach it
CLASSES = 1000
INK, PAPER = (20, 20, 20), (250, 250, 245)


@dataclass(frozen=True)
class CheckedWeights:
    """What was found in a file."""

    path: str
    backbone: str  # the network that its keys and shapes fit
    tensors: int  # how many of them the network takes
    sha256: str
    published: bool  # whether the digest begins as the name of a published file says
    # By drawing, how many classes the network thinks more likely; empty if the file has no
    # classifier of ImageNet's 1,000 classes.
    ranks: dict[str, int]

    @property
    def recognized(self) -> int:
        return sum(rank < FIRST for rank in self.ranks.values())

    @property
    def plausible(self) -> bool:
        """Whether the classes speak for these weights, or cannot speak against them."""
        return not self.ranks or self.recognized >= ENOUGH

    def describe(self) -> str:
        known = "a published file" if self.published else "not that of a published file"
        classes = "not checked: the file has no classifier of ImageNet"
        if self.ranks:
            found = ", ".join(f"{name} {rank + 1}" for name, rank in self.ranks.items())
            classes = (
                f"{self.recognized} of {len(self.ranks)} drawings among the first {FIRST} of "
                f"{CLASSES:,} classes (position: {found})"
            )
        return (
            f"{self.path}\n"
            f"  keys and shapes  all {self.tensors} tensors of {self.backbone}, all finite\n"
            f"  SHA-256          {self.sha256}, {known}\n"
            f"  classes          {classes}"
        )


def check_weights(path: str | Path) -> CheckedWeights:
    """Read a file of weights, which runs no code, and try it; an error if it fits no network or has
    non-finite numbers."""
    path = Path(path).expanduser()
    state = read_weights(path)
    name = _network_of(state, path)
    published = BACKBONES[name].published
    net = make_embedder(name, None, pretrained=False, normalize=False).eval()
    fitted = fit(net.backbone.state_dict(), state, published, str(path))
    for key, value in fitted.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{path} has NaN or infinity in {key}: get the file again")
    net.backbone.load_state_dict(fitted, strict=False)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    used = [key for key in state if key.startswith(published.classifier)]
    last = {key.rpartition(".")[2]: state[key] for key in used}
    ranks = {}
    if "weight" in last and last["weight"].shape == (CLASSES, net.channels):
        for what, image, classes in drawings():
            small = image.resize((net.image_size, net.image_size), Image.Resampling.LANCZOS)
            pixels = torch.from_numpy(np.array(small))[None]
            with torch.inference_mode():
                x = net(PIXELS[net.preprocess].normalize(pixels).permute(0, 3, 1, 2))
                logits = (x @ last["weight"].T)[0] + last.get("bias", torch.zeros(()))
            ranks[what] = int((logits > logits[list(classes)].max()).sum())
    known = bool(published.files) and published.knows(digest)
    return CheckedWeights(str(path), name, len(fitted), digest, known, ranks)


def _network_of(state: dict[str, Tensor], path: Path) -> str:
    """The network that a state dict fits; the error is BN-Inception's if it fits none."""
    reasons = []
    for name in ("bn_inception", *BACKBONES):
        known = BACKBONES[name]
        try:
            network = known.make(1.0, known.image_size)
            fit(network.state_dict(), state, known.published, str(path))
            return name
        except ValueError as error:
            reasons.append(error)
    raise reasons[0]


# Drawings, with the numbers of ImageNet's classes that are right for them.

Draw = Callable[[ImageDraw.ImageDraw], None]


def drawings() -> Iterator[tuple[str, Image.Image, tuple[int, ...]]]:
    """What each drawing shows, the drawing, and its classes."""
    for what, draw, ground, classes in (
        ("clock", _clock, (205, 190, 165), (409, 530, 892)),
        ("traffic light", _traffic_light, (150, 190, 230), (920,)),
        ("crossword", _crossword, PAPER, (918,)),
        ("spider web", _spider_web, (35, 55, 35), (815,)),
        ("honeycomb", _honeycomb, (120, 70, 10), (599,)),
        ("envelope", _envelope, (120, 85, 60), (549,)),
    ):
        image = Image.new("RGB", (SIDE, SIDE), ground)
        draw(ImageDraw.Draw(image))
        yield what, image, classes


def _circle(d: ImageDraw.ImageDraw, x: float, y: float, r: float, color: tuple[int, ...]) -> None:
    d.ellipse((x - r, y - r, x + r, y + r), fill=color)


def _polar(x: float, y: float, r: float, turn: float) -> tuple[float, float]:
    """The point at a distance in a direction; 0 turns is up, a quarter to the right."""
    return x + r * math.sin(2 * math.pi * turn), y - r * math.cos(2 * math.pi * turn)


def _clock(d: ImageDraw.ImageDraw) -> None:
    c = SIDE / 2
    _circle(d, c, c, 180, (40, 40, 45))
    _circle(d, c, c, 162, PAPER)
    for minute in range(60):
        length, width = (24, 7) if minute % 5 == 0 else (10, 3)
        ends = [_polar(c, c, r, minute / 60) for r in (150, 150 - length)]
        d.line(ends, fill=INK, width=width)
    d.line([(c, c), _polar(c, c, 85, 10.2 / 12)], fill=INK, width=12)
    d.line([(c, c), _polar(c, c, 125, 10 / 60)], fill=INK, width=8)


def _traffic_light(d: ImageDraw.ImageDraw) -> None:
    c = SIDE / 2
    d.rectangle((c - 12, c + 120, c + 12, SIDE), fill=(60, 60, 60))
    d.rounded_rectangle((c - 75, 40, c + 75, c + 140), 20, fill=(35, 35, 30))
    for y, color in ((100, (235, 40, 30)), (200, (90, 70, 10)), (300, (15, 70, 40))):
        _circle(d, c, y, 45, color)


def _crossword(d: ImageDraw.ImageDraw) -> None:
    n, draw = 13, np.random.default_rng(3)
    side = SIDE / n
    for i in range(n):
        for j in range(n):
            black = i % 2 + j % 2 == 2 or draw.random() < 0.08
            box = (j * side, i * side, (j + 1) * side, (i + 1) * side)
            d.rectangle(box, fill=INK if black else PAPER, outline=INK, width=2)


def _spider_web(d: ImageDraw.ImageDraw) -> None:
    n, (x, y) = 18, (SIDE / 2 + 20, SIDE / 2 - 10)
    for k in range(n):
        d.line([(x, y), _polar(x, y, 330, k / n)], fill=(225, 230, 230), width=2)
    for r in range(20, 330, 16):
        ring = [_polar(x, y, r * (1 + 0.06 * math.sin(3 * k)), k / n) for k in range(n)]
        d.line([*ring, ring[0]], fill=(215, 220, 220), width=2)


def _honeycomb(d: ImageDraw.ImageDraw) -> None:
    r = 26.0
    for i in range(-1, 14):
        for j in range(-1, 14):
            x, y = (j + i % 2 / 2) * r * math.sqrt(3), i * r * 1.5
            for size, color in ((r - 2, (225, 165, 50)), (r - 8, (170, 105, 20))):
                d.polygon([_polar(x, y, size, k / 6) for k in range(6)], fill=color)


def _envelope(d: ImageDraw.ImageDraw) -> None:
    d.rectangle((40, 110, 408, 340), fill=(245, 240, 228))
    d.line([(40, 110), (224, 235), (408, 110)], fill=(190, 180, 165), width=5)
    for x, inner in ((40, 175), (408, 273)):
        d.line([(x, 340), (inner, 205)], fill=(215, 208, 195), width=4)

"""Whether a file of weights is what it should be: its keys, its numbers, and what it recognizes.

Six drawings show things that ImageNet has a class for. EfficientNet-Lite0 to 2 name each of them
first; a network with random weights names one among its first five with a probability of 0.005.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from proxysynth.data import PIXELS
from proxysynth.models.backbones import BACKBONES, make_embedder
from proxysynth.models.weights import fit, read_weights

FIRST = 5  # a class among this many counts as recognized
ENOUGH = 2  # of the drawings: fewer than 1 in 1,000 random networks reach it
CLASSES = 1000
# The files in `drawings`, with the numbers of ImageNet's classes that are right for them.
DRAWINGS = {
    "clock": [409, 530, 892],
    "traffic light": [920],
    "crossword": [918],
    "spider web": [815],
    "honeycomb": [599],
    "envelope": [549],
}


@dataclass(frozen=True)
class CheckedWeights:
    """What a file of weights holds."""

    path: str
    backbone: str  # the network that its keys and shapes fit
    tensors: int  # how many of them the network takes
    sha256: str
    published: bool  # whether the digest begins as the name of a published file says
    # By drawing, how many classes the network ranks above the right one; empty if the file has no
    # classifier of ImageNet's 1,000 classes.
    ranks: dict[str, int]

    @property
    def recognized(self) -> int:
        return sum(rank < FIRST for rank in self.ranks.values())

    @property
    def plausible(self) -> bool:
        """Whether enough drawings are recognized; True without a classifier."""
        return not self.ranks or self.recognized >= ENOUGH

    def describe(self) -> str:
        known = "a published file" if self.published else "not that of a published file"
        classes = "not checked: the file has no classifier of ImageNet"
        if self.ranks:
            places = ", ".join(f"{name} {rank + 1}" for name, rank in self.ranks.items())
            right = f"{self.recognized} of {len(self.ranks)} drawings"
            classes = f"{right} among the first {FIRST} of {CLASSES:,} classes ({places})"
        return (
            f"{self.path}\n"
            f"  keys and shapes  all {self.tensors} tensors of {self.backbone}, all finite\n"
            f"  SHA-256          {self.sha256}, {known}\n"
            f"  classes          {classes}"
        )


def check_weights(path: str | Path) -> CheckedWeights:
    """Read a file of weights, which runs no code, and try it; an error if it has non-finite numbers
    or fits no network (then why it does not fit BN-Inception)."""
    path = Path(path).expanduser()
    state, reasons = read_weights(path), []
    for name in dict.fromkeys(("bn_inception", *BACKBONES)):
        net = make_embedder(name, None, pretrained=False, normalize=False).eval()
        published = BACKBONES[name].published
        try:
            fitted = fit(net.backbone.state_dict(), state, published, str(path))
            break
        except ValueError as error:
            reasons.append(error)
    else:
        raise reasons[0]
    for key, value in fitted.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{path} has NaN or infinity in {key}: get the file again")
    net.backbone.load_state_dict(fitted, strict=False)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    used = [key for key in state if key.startswith(published.classifier)]
    last = {key.rpartition(".")[2]: state[key] for key in used}
    ranks = {}
    if "weight" in last and last["weight"].shape == (CLASSES, net.channels):
        for what, classes in DRAWINGS.items():
            file = Path(__file__).parent / "drawings" / f"{what.replace(' ', '_')}.png"
            image = Image.open(file).convert("RGB")
            small = image.resize((net.image_size, net.image_size), Image.Resampling.LANCZOS)
            pixels = torch.from_numpy(np.array(small))[None]
            with torch.inference_mode():
                x = net(PIXELS[net.preprocess].normalize(pixels).permute(0, 3, 1, 2))
                logits = (x @ last["weight"].T)[0] + last.get("bias", torch.zeros(()))
            ranks[what] = int((logits > logits[classes].max()).sum())
    known = bool(published.files) and published.knows(digest)
    return CheckedWeights(str(path), name, len(fitted), digest, known, ranks)

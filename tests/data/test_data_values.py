"""What a Run holds of the data is a value: it prints, saves, reads back and takes `--set`."""

import pytest

from proxysynth.data import (
    PIXELS,
    AsIs,
    CenterCrop,
    ClassSplit,
    MPerClass,
    PadCrop,
    RandomResizedCrop,
    Shuffled,
)
from proxysynth.values import decode, digest, encode

VALUES = [
    AsIs(),
    RandomResizedCrop(96, scale=(0.2, 0.9)),
    RandomResizedCrop(227, resize=256),
    PadCrop(64, pad=2, flip=0.0),
    CenterCrop(110, 96),
    ClassSplit(unseen_classes=("a", "b")),
    Shuffled(seed=3),
    MPerClass(m=2),
    *PIXELS.values(),
]
KINDS = {type(value).__name__: type(value) for value in VALUES}


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value):
    assert decode(encode(value), KINDS) == value
    assert digest(decode(encode(value), KINDS)) == digest(value)

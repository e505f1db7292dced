"""The race is fair: both sides compute the same thing."""

import numpy as np
import pytest
import torch

import proxysynth as ps
from benchmarks import training
from proxysynth.data import PIXELS, AsIs, Listing, Loader, in_order
from proxysynth.regularizers.pairs import Draw
from proxysynth.training import Run
from proxysynth.training.prepare import make_network


def test_both_losses_are_equal():
    draw = torch.Generator().manual_seed(0)
    x, p = torch.randn(8, 5, generator=draw), torch.randn(6, 5, generator=draw)
    y, i = torch.arange(8) % 6, torch.arange(8)
    pairs = Draw(i, torch.roll(i, 1), torch.tensor(0.3), i, i)
    expected = ps.ProxySynthesis(ps.NormSoftmax()).by_reference(pairs, x, y, p)
    torch.testing.assert_close(training.authors(x, y, p, 0.3), expected)


def test_both_networks_are_equal():
    pictures = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    ours, theirs = (make_network(Run(), None).eval() for _ in range(2))
    theirs = training.textbook(theirs)
    torch.testing.assert_close(theirs(pictures), ours(pictures), rtol=1e-4, atol=1e-5)


def test_both_sides_use_the_same_images():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32)).astype(np.uint8)
    listing = Listing(tuple("abcd"), np.arange(4) % 2, ("a", "b"), pixels=pixels)
    theirs = training.Pictures(listing, None, PIXELS["grey"])
    (batch,) = Loader(listing, AsIs(), PIXELS["grey"]).batches(in_order(4, 4))
    for i in range(4):
        torch.testing.assert_close(theirs[i][0], batch.inputs(torch.device("cpu"))[i])
        assert theirs[i][1] == batch.labels[i]


@pytest.mark.slow
def test_it_runs_at_a_small_size():
    rows = training.run(quick=True)
    assert [row["side"] for row in rows] == [
        "proxysynth",
        "plain loop",
        *("memory kept", "memory returned") * len({1, torch.get_num_threads()}),
        "proxysynth",
        "plain loop",
        "plain loop, convolution and pooling apart",
    ]
    assert all(row["pictures_per_second"] > 0 for row in rows)
    assert rows[1]["times_plain"] == rows[-2]["times_plain"] == 1.0

import numpy as np
import pytest
import torch

from proxysynth.data import PIXELS, AsIs, CenterCrop, Listing, Loader
from proxysynth.models.backbones import make_embedder
from proxysynth.retrieval import evaluate
from proxysynth.training import inference
from proxysynth.training.inference import embed, measure, reported_ks
from proxysynth.training.run import Run


@pytest.fixture
def parts():
    pixels = np.random.default_rng(0).integers(0, 256, (300, 32, 32)).astype(np.uint8)
    names = tuple(map(str, range(300)))
    listing = Listing(names, np.arange(300) % 7, tuple("abcdefg"), pixels=pixels)
    return make_embedder("conv4", 6, width=0.25), Loader(listing, AsIs(), PIXELS["grey"])


def test_batched_embedding_matches_single_pass(parts):
    net, loader = parts
    numbers = (torch.from_numpy(loader.listing.pixels).float()[:, None] / 255 - 0.88) / 0.3
    with torch.no_grad():
        expected = net.eval()(numbers)
        features = net.features(numbers)
    torch.testing.assert_close(embed(net, loader), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(embed(net, loader, features=True), features, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [True, False])
def test_embed_does_not_change_the_network(parts, mode):
    net, loader = parts
    net.train(mode)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    made = embed(net, loader)
    assert net.training == mode
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    made += 1  # an ordinary tensor
    assert not made.requires_grad


def test_progress_counts_every_image(parts):
    net, loader = parts
    ticks = []
    embed(net, loader, tick=lambda n, note: ticks.append(n))
    assert sum(ticks) == 300


def test_measure_matches_evaluate(parts):
    net, loader = parts
    tested = measure(net, loader, ks=(1, 5))
    assert tested.metrics == evaluate(tested.query, loader.listing.labels, ks=(1, 5))
    half = Loader(loader.listing.take(np.arange(150)), CenterCrop(32, 32), PIXELS["grey"])
    apart = measure(net, half, loader, ks=(1,))
    assert apart.metrics == evaluate(
        apart.query,
        half.listing.labels,
        gallery=apart.gallery,
        gallery_labels=loader.listing.labels,
        ks=(1,),
    )
    assert apart.metrics["recall@1"] == 1.0  # each finds itself in the gallery


def test_default_ks_by_dataset():
    assert reported_ks(Run(data="glyphs")) == (1, 2, 4, 8)
    assert reported_ks(Run(data="sop:/data/sop")) == (1, 10, 100, 1000)
    assert reported_ks(Run(data="inshop:/data")) == (1, 10, 20, 40)


def test_embed_with_parameterless_network(parts):
    _, loader = parts
    net = make_embedder(torch.nn.Identity(), None, preprocess="grey", image_size=32)
    assert embed(net, loader).shape == (300, 1)


class OnFullGPU:
    """An embedding matrix that does not fit on any GPU."""

    def to(self, device):
        raise torch.OutOfMemoryError


def test_evaluation_falls_back_to_cpu_on_full_gpu(monkeypatch):
    x, y, found = OnFullGPU(), torch.zeros(2), {"recall@1": 0.5}
    monkeypatch.setattr(inference, "evaluate", lambda x, y, **options: found)
    assert inference.evaluate_on(torch.device("cuda"), x, y, None, None, ks=(1,)) is found

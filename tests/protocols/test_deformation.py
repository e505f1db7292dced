"""The deformation protocol: the same retrieval, on deformed pictures; and their sheet."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from PIL import Image

from proxysynth.data import PIXELS, AsIs, CenterCrop, Listing, glyphs, open_data
from proxysynth.data.deformations import DEFORMATIONS, Deformed, Zoom
from proxysynth.data.transforms import uniforms
from proxysynth.protocols import Conventional, Deformation, contact_sheet, embeddings_of
from proxysynth.protocols.conventional import make_loader
from proxysynth.protocols.deformation import some_images
from proxysynth.retrieval import evaluate
from proxysynth.training import Run, Split, load, train
from proxysynth.training.resources import Resources
from training.tiny_pictures import pictures

TABLE_3 = ["cutout", "dropout", "zoom_in", "zoom_out", "rotation", "shearing", "gaussian_noise",
           "gaussian_blur"]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deformation")
    split = Split(train_classes=6, test_classes=10, faces_per_class=8)
    run = Run(split=split, epochs=2, dim=16, width=0.25, batch_size=16)
    train(run, folder / "run")
    return load(folder / "run"), glyphs(6, 10, faces_per_class=8).query


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    root = pictures(folder / "set", classes=6, each=4)
    run = Run(data=str(root), epochs=1, dim=8, width=0.25, batch_size=4, image_size=32,
              backbone="preact_resnet18")  # fmt: skip
    train(run, folder / "run")
    return load(folder / "run"), open_data(str(root)).query


def by_hand(model, listing, deform, seed=0, stream=0):
    """Embeddings of pictures that are deformed one by one, outside of any loader."""
    transform = Deformed(AsIs(), deform, 32, seed, stream)
    made = []
    for index in range(len(listing)):
        image = Image.fromarray(listing.pixels[index])
        made.append(transform(image, uniforms(0, 0, index, 2))[..., None])
    images = PIXELS["grey"].normalize(torch.from_numpy(np.stack(made))).permute(0, 3, 1, 2)
    with torch.no_grad():
        return model.embedder(images)


def test_deformation_names_match_table_3() -> None:
    assert list(DEFORMATIONS) == TABLE_3
    assert Deformation().names == tuple(TABLE_3)


def test_undeformed_result_matches_the_conventional_protocol(trained) -> None:
    model, query = trained
    made = Deformation(names=("dropout",))(model, query)
    assert list(made) == ["undeformed", "dropout"]
    assert made["undeformed"] == Conventional()(model, query).metrics


@pytest.mark.parametrize("name", ["cutout", "gaussian_noise"])
def test_metrics_match_retrieval_among_deformed_images(trained, name) -> None:
    model, query = trained
    made = Deformation(names=(name,), seed=3)(model, query, resources=Resources(workers=2))
    expected = evaluate(by_hand(model, query, DEFORMATIONS[name], seed=3), query.labels)
    assert made[name] == pytest.approx(expected, abs=0.02)
    assert made[name] != made["undeformed"]


def test_query_and_gallery_are_deformed_with_different_draws(trained) -> None:
    model, query = trained
    even = np.arange(len(query)) % 2 == 0
    one, other = (query.take(np.flatnonzero(some)) for some in (even, ~even))
    made = Deformation(names=("rotation",))(model, one, other)["rotation"]
    deform = DEFORMATIONS["rotation"]
    expected = evaluate(
        by_hand(model, one, deform, stream=0), one.labels,
        gallery=by_hand(model, other, deform, stream=1), gallery_labels=other.labels,
    )  # fmt: skip
    assert made == pytest.approx(expected, abs=0.03)


def test_all_deformations_on_photographs(photos) -> None:
    model, query = photos
    told = []
    made = Deformation(ks=(1, 2))(model, query, tick=lambda count, note: told.append(count))
    assert list(made) == ["undeformed", *TABLE_3]
    assert all({"recall@1", "recall@2", "map@r"} <= metrics.keys() for metrics in made.values())
    assert sum(told) == 9 * len(query)


def test_results_depend_on_the_seed(trained) -> None:
    model, query = trained
    first = Deformation(names=("dropout",), seed=0)(model, query)
    assert Deformation(names=("dropout",), seed=0)(model, query) == first
    assert Deformation(names=("dropout",), seed=1)(model, query) != first


def test_opposite_zoom(trained) -> None:
    zooms = dict(Deformation(opposite_zoom=True).versions())
    assert zooms["zoom_in"] == Zoom(0.5, opposite=True)
    assert zooms["zoom_out"] == Zoom(1.5, opposite=True)
    assert dict(Deformation().versions())["zoom_in"] == Zoom(0.5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"names": ("cutuot",)}, "cutuot"),
        ({"seed": -1}, "seed"),
    ],
)
def test_invalid_fields_are_rejected(fields, words) -> None:
    with pytest.raises(ValueError, match=words):
        Deformation(**fields)


def test_embeddings_match_the_evaluated_ones(trained) -> None:
    model, query = trained
    assert torch.equal(embeddings_of(model, query), Conventional()(model, query).query)


def test_sheet_shows_the_network_input(photos, monkeypatch) -> None:
    model, query = photos
    drawn = []
    monkeypatch.setattr(Axes, "imshow", lambda axes, image, **options: drawn.append(image))
    contact_sheet(model, query, Deformation(seed=2), rows=2)
    made = dict(
        zip(["undeformed", *TABLE_3], zip(drawn[::2], drawn[1::2], strict=True), strict=True)
    )
    transform = make_loader(model, query, Resources(), DEFORMATIONS["cutout"], seed=2).transform
    assert isinstance(transform, Deformed)
    assert isinstance(transform.transform, CenterCrop)
    for shown, index in zip(made["cutout"], some_images(query, 2).tolist(), strict=True):
        image = Image.open(query.path(index))
        expected = DEFORMATIONS["cutout"](
            model.transform(image),
            np.random.default_rng([2, 0, *(int(u * 2**53) for u in uniforms(0, 0, index, 2))]),
        )
        assert np.abs(shown.astype(int) - expected).max() <= 1  # the cache shrinks beforehand


def test_contact_sheet_is_a_png_with_content(trained) -> None:
    model, query = trained
    sheet = Image.open(io.BytesIO(contact_sheet(model, query, rows=3, dpi=50)))
    assert sheet.format == "PNG"
    assert sheet.width > 2 * sheet.height
    assert len(np.unique(np.asarray(sheet.convert("L")))) > 20


def test_sheet_images_are_of_different_classes() -> None:
    labels = np.repeat(np.arange(10), 3)
    pixels = np.zeros((30, 4, 4), np.uint8)
    listing = Listing(tuple(map(str, range(30))), labels, tuple("abcdefghij"), None, pixels)
    assert some_images(listing, 3).tolist() == [0, 12, 27]
    assert len(some_images(listing, 99)) == 10

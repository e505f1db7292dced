"""The studies behind the tables in README.md."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from batches import gradients
from losses import oracle
from proxysynth.losses import LOSSES, NormSoftmax, ProxyAnchor
from proxysynth.paper.store import Store
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.mixing import synthesize
from proxysynth.training import Run, Split, load, train
from proxysynth.training.run import KINDS
from proxysynth.values import decode, encode
from training.tiny_pictures import pictures

FOLDER = Path(__file__).parents[1] / "studies"
TINY = Run(
    split=Split(train_classes=6, test_classes=5, faces_per_class=8),
    loss=NormSoftmax(), epochs=2, dim=16, width=0.25,
)  # fmt: skip


@pytest.fixture
def studies(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("plans", "run", "variants"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    return run


def test_every_run_is_planned_once(studies, tmp_path) -> None:
    counts = {"cub200": 48, "cub200_scale": 6, "cub200_few": 24, "grocery": 18,
              "glyph_losses": 20 * len(LOSSES), "glyph_regularizers": 45, "glyph_classes": 72,
              "glyph_settings": 52, "glyph_scales": 56, "glyph_variants": 68, "glyph_anchor": 20,
              "glyph_gradients": 12, "glyph_more": 16,
              "glyph_preset": 30, "cub200_preset": 9, "cub200_interpolate": 24,
              "grocery_interpolate": 12}  # fmt: skip
    for number in range(200):
        for folder in ("images", "photos"):
            (tmp_path / folder / f"{number:03d}").mkdir(parents=True)
    for name, study in studies.STUDIES.items():
        planned = list(study(cub=str(tmp_path), grocery=str(tmp_path)))
        assert len({item.run.identity for item in planned}) == len(planned) == counts[name]
        for item in planned[:3]:
            assert decode(encode(item.run), KINDS) == item.run


def test_committed_rows_match_planned_runs(studies) -> None:
    compared = 0
    for name, study in studies.STUDIES.items():
        path = studies.RESULTS / f"study_{name}.csv"
        if name.startswith("glyph") and path.exists():  # the others depend on a folder's path
            planned = list(study())
            rows = studies.committed_rows(path, planned)
            made = {studies.key(item): item.run.identity for item in planned}
            assert {key: row["run"] for key, row in rows.items()}.items() <= made.items(), name
            compared += len(rows)
    assert compared > 100


def test_committed_rows_are_not_retrained(studies, tmp_path) -> None:
    planned = [
        studies.Planned(Run(seed=seed), {"loss": "softmax", "seed": seed}) for seed in (0, 1)
    ]
    (tmp_path / "study_tiny.csv").write_text("loss,seed,map@r,run\nsoftmax,0,0.5,abc\n")
    assert list(studies.committed_rows(tmp_path / "study_tiny.csv", planned)) == [("softmax", "0")]
    studies.write_table("tiny", planned, Store(tmp_path / "store"), tmp_path)
    with open(tmp_path / "study_tiny.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"loss": "softmax", "seed": "0", "map@r": "0.5", "run": "abc"}
        ]


def test_settings_are_tuned_without_unseen_classes(studies) -> None:
    for name in ("glyph_settings", "glyph_scales", "glyph_variants", "glyph_anchor"):
        assert all(item.run.split.fold is not None for item in studies.STUDIES[name]())


def test_table_contains_finished_runs(studies, tmp_path) -> None:
    made, waiting = (replace(TINY, seed=seed) for seed in (0, 1))
    store = Store(tmp_path / "store")
    result = train(made, store.folder_of(made))
    planned = [studies.Planned(run, {"loss": "norm_softmax", "seed": run.seed})
               for run in (made, waiting)]  # fmt: skip
    summary = studies.write_table("tiny", planned, store, tmp_path)
    assert summary.startswith("tiny: 1 of 2 runs are finished")
    with (tmp_path / "study_tiny.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["seed"] == "0"
    assert row["tested_on"] == "unseen classes"
    assert float(row["map@r"]) == pytest.approx(result.metrics["map@r"], abs=1e-5)
    assert float(row["best_on_test_recall@1"]) >= float(row["recall@1"]) - 1e-5


def table_of(studies, planned, folder: Path) -> list[dict[str, str]]:
    """Train these Runs and write their table; its rows."""
    store = Store(folder / "store")
    for item in planned:
        train(item.run, store.folder_of(item.run))
    studies.write_table("tiny", planned, store, folder)
    with open(folder / "study_tiny.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == [item.run.identity for item in planned]
    return rows


def test_gradients_of_trained_models_are_measured(studies, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("plans.GLYPHS", TINY)
    planned = islice(studies.STUDIES["glyph_gradients"](), 4)
    norm_softmax = [item for item in planned if item.columns["loss"] == "norm_softmax"]
    plain, synthesis = table_of(studies, norm_softmax, tmp_path)
    assert float(plain["own_similarity"]) <= 1
    assert float(plain["other_classes"]) < 0  # they push, the own proxy pulls
    assert float(plain["synthetic_classes"]) == 0
    assert float(synthesis["synthetic_classes"]) < 0


def test_interpolated_models_are_measured(studies, tmp_path, monkeypatch) -> None:
    base = replace(TINY, split=Split(), epochs=1, image_size=32, batch_size=4)
    monkeypatch.setattr("plans.default_run", lambda data, **_: replace(base, data=data))
    pictures(tmp_path / "images", classes=10, each=4)
    study = studies.STUDIES["cub200_interpolate"](cub=str(tmp_path))
    every, held_out = table_of(studies, list(islice(study, 2)), tmp_path)
    for row in (every, held_out):  # the trained weights, which the Run itself was tested with
        for metric in ("recall@1", "map@r"):
            found, expected = float(row[f"unseen_embeddings_1_{metric}"]), float(row[metric])
            assert found == pytest.approx(expected, abs=2e-5)
    assert 0 <= float(held_out["held_out_embeddings_1_map@r"]) <= 1
    assert every["held_out_embeddings_1_map@r"] == ""


def test_catalog_images_are_searched(studies, tmp_path) -> None:
    for part in ("photos", "catalogue"):  # of each product the same pictures
        pictures(tmp_path / part, classes=6, each=2)
    item = next(studies.STUDIES["grocery"](grocery=str(tmp_path)))
    data = str(tmp_path / "photos")
    run = replace(TINY, data=data, split=Split(), epochs=1, image_size=32, batch_size=4)
    train(run, tmp_path / "run")
    assert item.measure(load(tmp_path / "run"))["catalogue_recall@1"] == 1.0


def test_photograph_study_requires_data_folder(studies) -> None:
    with pytest.raises(ValueError, match="give it with --cub"):
        list(studies.STUDIES["cub200"]())


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(0)
    x, p = (torch.randn(count, 5, generator=draw, dtype=torch.float64) for count in (12, 6))
    y = torch.randint(6, (12,), generator=draw)
    return x.requires_grad_(), y, p.requires_grad_()


def test_harder_partners_are_nearest_of_another_class(studies, batch) -> None:
    from variants import HarderPartners

    x, y, p = batch
    loss = HarderPartners(NormSoftmax(), nearest=1)
    plain = ProxySynthesis(NormSoftmax()).draw(y, torch.Generator().manual_seed(1))
    assert plain is not None
    draw = loss.partners(plain, y, p, torch.Generator().manual_seed(1))
    cos = torch.cosine_similarity(p[y][:, None], p[y][None], dim=2)
    for i, j in zip(draw.i.tolist(), draw.j.tolist(), strict=True):
        assert y[i] != y[j]
        assert cos[i, j] == max(cos[i, k] for k in range(12) if y[k] != y[i])
    value = loss(x, y, p, torch.Generator().manual_seed(1))
    value.backward()
    assert value.isfinite()
    assert p.grad.isfinite().all()


def test_parents_apart_excludes_parents_from_sums(studies, batch) -> None:
    from variants import ParentsApart

    x, y, p = batch
    loss, scale = ParentsApart(NormSoftmax()), NormSoftmax().scale
    value = loss(x, y, p, torch.Generator().manual_seed(1))
    value.backward()
    assert x.grad.isfinite().all()
    draw = ProxySynthesis(NormSoftmax()).draw(y, torch.Generator().manual_seed(1))
    assert draw is not None
    made = synthesize(x, y, p, draw, normalized=True)
    rows, columns = torch.cat((x, made.x)), torch.cat((p, made.p))
    labels = torch.cat((y, made.y)).tolist()
    parents = [{int(y[i]), int(y[j])} for i, j in zip(draw.i, draw.j, strict=True)]
    losses = []
    for r, row in enumerate(rows):
        mine = {labels[r]} if r < len(x) else parents[r - len(x)]
        others = []
        for k, column in enumerate(columns):
            made_of_mine = r < len(x) and k >= len(p) and mine & parents[k - len(p)]
            parent_of_mine = r >= len(x) and k in mine
            if not (made_of_mine or parent_of_mine):
                others.append(scale * torch.cosine_similarity(row, column, dim=0))
        own = scale * torch.cosine_similarity(row, columns[labels[r]], dim=0)
        losses.append(torch.logsumexp(torch.stack(others), dim=0) - own)
    assert value.item() == pytest.approx(torch.stack(losses).mean().item(), abs=1e-10)


def mixed(vectors, shares):
    """The unit vector in the direction of a sum of unit vectors times shares, as a loop."""
    made = sum(
        share * vector / vector.norm() for vector, share in zip(vectors, shares, strict=True)
    )
    return made / made.norm()


def test_k_parents_are_mixed_by_weight(studies, batch) -> None:
    from variants import KParents, draw_parents

    x, y, p = batch
    chosen = draw_parents(y.numpy(), 3, np.random.default_rng(0))
    assert [row[0] for row in chosen] == list(range(12))
    assert all(len({int(y[k]) for k in row}) == 3 for row in chosen)
    assert draw_parents(np.array([0, 1, 1, 0]), 3, np.random.default_rng(0)) is None

    lam = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    loss = KParents(NormSoftmax(), parents=3)
    found = gradients(loss.on(torch.from_numpy(chosen), lam, x, y, p), x, p)
    all_x = [*x, *(mixed([x[k] for k in row], lam) for row in chosen)]
    all_p = [*p, *(mixed([p[y[k]] for k in row], lam) for row in chosen)]
    labels = [*y.tolist(), *range(6, 18)]
    expected = gradients(oracle.value(NormSoftmax(), all_x, labels, all_p), x, p)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert loss(x, y, p, torch.Generator().manual_seed(0)).isfinite()


def test_two_parents_match_proxy_synthesis(studies, batch) -> None:
    from variants import KParents

    x, y, p = batch
    draw = ProxySynthesis(NormSoftmax(), lam=0.3).draw(y, torch.Generator().manual_seed(1))
    lam = torch.tensor([0.3, 0.7], dtype=torch.float64)
    chosen = torch.stack((draw.i, draw.j), dim=1)
    found = gradients(KParents(parents=2).on(chosen, lam, x, y, p), x, p)
    expected = gradients(ProxySynthesis(NormSoftmax()).on(draw, x, y, p), x, p)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_mu_ramp_ends_at_proxy_synthesis(studies, batch) -> None:
    from variants import MuRamp

    x, y, p = batch
    ramp = MuRamp(NormSoftmax(), mu=2.0, steps=4)
    for step, mu in enumerate((0.0, 0.5, 1.0, 1.5, 2.0, 2.0)):
        draws = (torch.Generator().manual_seed(step) for _ in range(2))
        found = gradients(ramp(x, y, p, next(draws)), x, p)
        expected = gradients(ProxySynthesis(NormSoftmax(), mu=mu)(x, y, p, next(draws)), x, p)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("how", ["weight", "margin", "apart"])
def test_soft_pairs_repel_by_unshared_weight(studies, batch, how) -> None:
    from variants import SoftPairs

    x, y, p = batch
    plain = ProxyAnchor(scale=4.0)
    draw = ProxySynthesis(plain, lam=0.3).draw(y, torch.Generator().manual_seed(1))
    found = gradients(SoftPairs(plain, how=how).on(draw, x, y, p), x, p)

    pairs = list(zip(draw.i.tolist(), draw.j.tolist(), strict=True))
    all_x = [*x, *(mixed([x[i], x[j]], (0.3, 0.7)) for i, j in pairs)]
    all_p = [*p, *(mixed([p[y[i]], p[y[j]]], (0.3, 0.7)) for i, j in pairs)]
    made_of = [{int(y[i]): 0.3, int(y[j]): 0.7} for i, j in pairs]
    of_x = [*({int(t): 1.0} for t in y), *made_of]
    of_p = [*({t: 1.0} for t in range(6)), *made_of]
    labels = [*y.tolist(), *range(6, 18)]
    pull, push, present = 0.0, 0.0, 0
    for k, q in enumerate(all_p):
        own, others = torch.ones((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
        for v, label, shares in zip(all_x, labels, of_x, strict=True):
            s = oracle.s(v, q)
            if label == k:
                own = own + torch.exp(-4.0 * (s - plain.margin))
                continue
            overlap = sum(min(share, of_p[k].get(t, 0.0)) for t, share in shares.items())
            term = torch.exp(4.0 * (s + plain.margin))
            if how == "weight":
                term = term * (1 - overlap)
            elif how == "margin":
                term = term * math.exp(-4.0 * overlap)
            elif overlap > 0:
                term = 0.0
            others = others + term
        present += k in labels
        pull, push = pull + own.log(), push + others.log()
    expected = gradients(pull / present + push / len(all_p), x, p)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    assert SoftPairs(plain, how=how)(x, y, p, torch.Generator().manual_seed(0)).isfinite()

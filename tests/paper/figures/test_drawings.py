"""The numbers behind Figures 2, 4, 5 and A, against slow loops and by hand."""

import math

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from proxysynth import NormSoftmax, ProxySynthesis
from proxysynth.paper.figures.logits import GAMMA, LAM, confidences, diagonals, logits
from proxysynth.paper.figures.scores import draw_grids, draw_mixtures
from proxysynth.paper.figures.style import GOLD, INK
from proxysynth.paper.figures.toy import HALF, Toy, TrainedToy, spaces


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)


def test_logits_have_originals_first_and_positives_on_diagonals() -> None:
    c, lam = 6, LAM
    x, p = unit(c, 5), unit(c, 5, seed=1)
    S = logits(x, p, ProxySynthesis(NormSoftmax()))
    assert np.allclose(S[:c, :c], logits(x, p, NormSoftmax()))
    # The second parent of row i is the one that explains the synthetic proxy's similarities.
    for i in range(c):
        fits = []
        for j in set(range(c)) - {i}:
            made_x, made_p = lam * x[i] + (1 - lam) * x[j], lam * p[i] + (1 - lam) * p[j]
            made_x, made_p = made_x / made_x.norm(), made_p / made_p.norm()
            fits.append(
                max(
                    float((x @ made_p - torch.from_numpy(S[:c, c + i])).abs().max()),
                    float((p @ made_x - torch.from_numpy(S[c + i, :c])).abs().max()),
                    abs(float(made_x @ made_p) - S[c + i, c + i]),
                )
            )
        assert min(fits) < 1e-9


def test_diagonals_are_means_of_their_blocks() -> None:
    S = np.zeros((4, 4))
    S[0, 0], S[1, 1], S[0, 2], S[1, 3], S[2, 0], S[3, 1], S[2, 2], S[3, 3] = 1, 3, 5, 7, 2, 4, 6, 10
    assert diagonals(S, len(S) // 2) == {"D1": 2, "D2": 6, "D3": 3, "D4": 8}


def test_confidences_are_the_softmax_of_each_row() -> None:
    S = np.array([[1.0, 0.5], [0.2, 0.2]])
    gap = math.exp(0.5 * GAMMA)
    assert confidences(S).tolist() == [pytest.approx([gap / (1 + gap), 1 / (1 + gap)]), [0.5, 0.5]]


def test_toy_map_shows_confidence() -> None:
    toy = Toy(scale=2.0, points=5)
    points = torch.arange(30.0).view(3, 5, 2)
    trained = TrainedToy(toy, torch.nn.Identity(), torch.tensor([[3.0, 0.0], [0.0, 1.0]]), points)
    shown = spaces(trained, side=3)["embedding"]
    half = HALF["embedding"]
    for row, y in enumerate((-half, 0, half)):
        for column, x in enumerate((-half, 0, half)):
            long = math.hypot(x, y)
            gap = 2 * (x - y) / long if long else 0
            assert shown["blue"][row][column] == pytest.approx(1 / (1 + math.exp(gap)), abs=1e-6)
    assert np.allclose(np.linalg.norm(shown["proxies"], axis=1), 1)
    seen = np.array(shown["points"])[:2]
    assert np.linalg.norm(seen, axis=-1).mean() == pytest.approx(1)


def test_lines_show_means_in_method_colors() -> None:
    found = {
        "Norm-softmax": {"train": {0.5: (10.0, 30.0), 0.1: (1.0, 2.0)}, "test": {}},
        "PS + Norm-softmax": {"train": {0.1: (3.0, 5.0), 0.5: (50.0, 70.0)}, "test": {}},
    }
    seen, unseen = draw_mixtures(found).axes
    *theirs, plain, mixed = seen.get_lines()
    assert len(theirs) == 2  # the paper's own curves
    assert plain.get_xydata().tolist() == [[0.1, 1.5], [0.5, 20.0]]
    assert mixed.get_xydata().tolist() == [[0.1, 4.0], [0.5, 60.0]]
    assert [to_hex(line.get_color()) for line in (plain, mixed)] == [INK, GOLD]
    assert all(not len(line.get_xdata()) for line in unseen.get_lines()[2:])


def test_cell_without_a_run_is_a_dash() -> None:
    figure = draw_grids(
        {"R": {(0.2, 1.0): (71.25,), (0.4, 1.0): (79.0, 81.0)}}, (0.2, 0.4), (0.5, 1.0)
    )
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["–", "71.2", "–", "80.0\n±1.4"]
    (frame,) = axes.patches
    assert frame.get_x() + frame.get_width() / 2 == pytest.approx(1)  # the best: column mu = 1,
    assert frame.get_y() + frame.get_height() / 2 == pytest.approx(1)  # row alpha = 0.4

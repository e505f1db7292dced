"""Against torch's own schedulers."""

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR, OneCycleLR

from proxysynth.training import Run
from proxysynth.training.optim import rate_factor

PER_EPOCH = 5


def theirs(make, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def ours(run: Run, steps: int) -> list[float]:
    return [rate_factor(run, step, PER_EPOCH) for step in range(steps)]


def test_constant_schedule():
    assert ours(Run(schedule="constant", epochs=4), 20) == [1.0] * 20


def test_cosine_schedule_matches_pytorch():
    run = Run(schedule="cosine", epochs=4)
    assert ours(run, 20) == pytest.approx(theirs(lambda o: CosineAnnealingLR(o, 20), 20))


def test_step_schedule_matches_pytorch():
    run = Run(schedule="step", epochs=4, decay_epochs=(1, 3), decay=0.2)
    milestones = [1 * PER_EPOCH, 3 * PER_EPOCH]
    expected = theirs(lambda o: MultiStepLR(o, milestones, gamma=0.2), 20)
    assert ours(run, 20) == pytest.approx(expected)


def test_one_cycle_schedule_is_close_to_pytorch():
    """torch ends its rise and its fall a step earlier than a share of all steps would."""
    epochs = 200
    run, steps = Run(schedule="one_cycle", epochs=epochs), epochs * PER_EPOCH
    expected = theirs(
        lambda o: OneCycleLR(o, 1.0, total_steps=steps, div_factor=25, final_div_factor=400), steps
    )
    assert ours(run, steps) == pytest.approx(expected, abs=0.01)
    assert max(ours(run, steps)) == pytest.approx(1.0, abs=1e-4)

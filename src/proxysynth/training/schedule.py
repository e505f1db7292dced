"""Learning rates over a training, as pure functions: nothing to save, nothing to resume.

constant   1
step       decay^(how many of decay_epochs are over)
cosine     (1 + cos(pi t)) / 2                       t = share of all steps that are done
one_cycle  rises to 1 over the first 30 %, then falls as a cosine     [Smith and Topin, 2019]
"""

from __future__ import annotations

import math

from proxysynth.training.run import Run

RISE = 0.3  # share of the training in which one_cycle rises
START, END = 1 / 25, 1e-4  # where one_cycle starts and ends


def rate_factor(run: Run, step: int, steps_per_epoch: int) -> float:
    """What every learning rate is multiplied by in the step with this number, from 0 on."""
    t = step / (run.epochs * steps_per_epoch)
    if run.schedule == "step":
        return run.decay ** sum(step >= epoch * steps_per_epoch for epoch in run.decay_epochs)
    if run.schedule == "cosine":
        return _cosine(1.0, 0.0, t)
    if run.schedule == "one_cycle":
        if t < RISE:
            return _cosine(START, 1.0, t / RISE)
        return _cosine(1.0, END, (t - RISE) / (1 - RISE))
    return 1.0


def _cosine(start: float, end: float, t: float) -> float:
    """From start to end along half a wave, as t goes from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2

"""Figures 3, B, C and D: the embedding space of PS + Norm-softmax, seen by t-SNE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from proxysynth.paper.artifact import Artifact, Picture
from proxysynth.paper.figures.clouds import draw_clouds, nearness, project, rounded
from proxysynth.paper.figures.points import Selection, points_of
from proxysynth.paper.figures.style import not_run
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.training.run import Run
from proxysynth.values import encode

FEW = Selection()
MANY = Selection(classes=100, pictures=12, above=10, mu=1.0)
SMOKE = Selection(classes=4, pictures=6)
EPOCHS = (2, 30, 60, 150)
"""Of Figure D, in a training of 150."""
MIXED_WITH = "PS + Norm-softmax"


def the_run(scale: Scale, benchmark: str) -> Run | None:
    """PS + Norm-softmax with the paper's alpha and mu, the first seed."""
    return scale.run(benchmark, ProxySynthesis(trained_loss("norm_softmax")), scale.seeds[0])


def runs_at_epochs(scale: Scale, benchmark: str = "cars196") -> tuple[Run, ...]:
    """The training of Figure D as it was after each of four epochs.

    A Run keeps only its last weights. But what is learnt up to an epoch does not depend on how many
    follow, as long as the rates do not: Runs of fewer epochs with the same seed are the same
    training, stopped earlier. So a schedule that looks at the end becomes a constant one.
    """
    last = the_run(scale, benchmark)
    if last is None:
        return ()
    if last.schedule in ("cosine", "one_cycle"):
        last = replace(last, schedule="constant")
    whole = EPOCHS[-1] if scale.name == "paper" else last.epochs
    epochs = [0]
    for epoch in EPOCHS:  # four different ones, also of a very short training
        epochs.append(max(epochs[-1] + 1, round(whole * epoch / EPOCHS[-1])))
    return tuple(replace(last, epochs=epoch, evaluate_every=epoch) for epoch in epochs[1:])


def seen_space(store: Store, run: Run, selection: Selection) -> dict[str, Any] | None:
    """The places of all points and how near they are to proxies; None where the Run is missing."""
    if store.result(run) is None:
        return None

    def compute() -> dict[str, Any]:
        model = store.model(run)
        assert model is not None
        points = points_of(model, selection)
        return {"cloud": project(points), "nearness": nearness(points), "note": points.note}

    found: dict[str, Any] | None = store.kept("t-sne", [run, encode(selection)], compute)
    return found


def selection_at(scale: Scale, selection: Selection) -> Selection:
    """What is shown at a scale: less where training is a few steps only."""
    return selection if scale.name != "smoke" else replace(SMOKE, above=selection.above)


def _picture(
    title: str, caption: str, names: Sequence[str], found: Sequence[Any], notes: Sequence[str]
) -> Picture:
    """The drawing, or a dash where a Run is missing."""
    if not found or any(one is None for one in found):
        return Picture(title, caption, not_run(f"{MIXED_WITH} was not run"), notes=tuple(notes))
    near = []
    for one, name in zip(found, names, strict=True):
        told = one["nearness"]
        near.append(
            f"{name + ': ' if name else ''}seen {told['train']:.2f}, unseen {told['test']:.2f}, "
            f"synthetic {told['synthetic']:.2f}"
        )
    return Picture(
        title,
        caption,
        draw_clouds([one["cloud"] for one in found], names),
        [
            row
            for one, name in zip(found, names, strict=True)
            for row in (rounded(one["cloud"], epoch=name) if name else rounded(one["cloud"]))
        ],
        (
            *notes,
            f"Mean cosine to the nearest proxy of a seen class, before t-SNE: {'; '.join(near)}.",
            *dict.fromkeys(one["note"] for one in found if one["note"]),
        ),
    )


def _notes(scale: Scale, benchmark: str, selection: Selection) -> list[str]:
    about = scale.about(benchmark)
    return [
        f"{NAMES[benchmark]} is the paper's. Here, {about}."
        if about
        else f"{NAMES[benchmark]} was not run: no folder of it was given.",
        f"{selection.classes} seen and {selection.classes} unseen classes drawn by a fixed seed, "
        f"up to {selection.pictures} pictures of each; {selection.mu:g} "
        f"synthetic{'s' * (selection.mu != 1)} per seen picture with lam {selection.lam:g}, where "
        "training draws it. A t-SNE for each panel, the second started from the first.",
        *(
            [
                "Of so many classes hardly a pair is mixed twice, so that t-SNE lays a synthetic "
                "beside its nearer parent."
            ]
            if selection.classes > 40
            else []
        ),
        *(
            ["At the scale `smoke` training stops after a few steps: the picture means nothing."]
            if scale.name == "smoke"
            else []
        ),
    ]


def _of_the_end(name: str, benchmark: str, selection: Selection) -> Artifact:
    """Figure 3, B or C: two panels of a finished training."""
    title = f"Figure {name.removeprefix('figure')}"

    def runs(scale: Scale) -> tuple[Run, ...]:
        run = the_run(scale, benchmark)
        return () if run is None else (run,)

    def make(scale: Scale, store: Store) -> Picture:
        chosen = selection_at(scale, selection)
        return _picture(
            title,
            f"t-SNE of a network trained with PS + Norm-softmax on "
            f"{scale.heading(benchmark) or NAMES[benchmark]}. (a) Seen classes with their proxies, "
            "and unseen classes. (b) The same seen classes with synthetic embeddings and proxies.",
            ("",),
            [seen_space(store, run, chosen) for run in runs(scale)],
            _notes(scale, benchmark, chosen),
        )

    return Artifact(name, f"t-SNE of the embedding space, {NAMES[benchmark]}", runs, make)


def _over_epochs(scale: Scale, store: Store) -> Picture:
    runs, selection = runs_at_epochs(scale), SMOKE if scale.name == "smoke" else FEW
    names = [f"epoch {run.epochs}" for run in runs]
    return _picture(
        "Figure D",
        "t-SNE of PS + Norm-softmax on "
        f"{scale.heading('cars196') or NAMES['cars196']} as training goes on. Left: seen and "
        "unseen classes. Right: seen classes and synthetics.",
        names,
        [seen_space(store, run, selection) for run in runs],
        [
            *_notes(scale, "cars196", selection),
            "Each epoch is a Run of its own with the same seed and rates that do not depend on the "
            "end, which is the same training stopped there. The paper shows epochs 2, 30, 60 and "
            "150; a shorter training shows the same fractions of it, no earlier than the first.",
        ],
    )


SPACES = (
    _of_the_end("figure3", "cars196", FEW),
    _of_the_end("figureB", "cub200", FEW),
    _of_the_end("figureC", "sop", MANY),
    Artifact(
        "figureD", "t-SNE of the embedding space at four epochs", runs_at_epochs, _over_epochs
    ),
)

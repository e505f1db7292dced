"""Claims about what the figures show."""

from __future__ import annotations

from itertools import pairwise

from proxysynth.paper.claims.claim import Claim, Evidence, Missing, Verdict, held, listed

PLAIN, MIXED = "Norm-softmax", "PS + Norm-softmax"
DIAGONALS = ("D0", "D1", "D2", "D3", "D4")
CLASSES, MORE_THAN = 100, 10


def _smooth(e: Evidence) -> Verdict:
    told, right = [], True
    for space in ("inputs", "embeddings"):
        plain, mixed = (e.value("figure2", method, space) for method in (PLAIN, MIXED))
        right = right and mixed < plain
        told.append(f"{e.named('figure2', space)} {plain:.3f} without, {mixed:.3f} with")
    return held(right, f"mean confidence between the classes: {'; '.join(told)}")


def _unsure_of_unseen(e: Evidence) -> Verdict:
    plain, mixed = (e.value("figure2", method, "unseen") for method in (PLAIN, MIXED))
    told = f"mean confidence on the unseen class: {plain:.3f} without, {mixed:.3f} with"
    return held(mixed < plain, told)


def _diagonals(e: Evidence) -> dict[str, float]:
    return {name: e.value("figure4", name, "mean") for name in DIAGONALS}


def _less_sure(e: Evidence) -> Verdict:
    found = _diagonals(e)
    return held(max(found["D1"], found["D4"]) < found["D0"], f"means {listed(found, 2)}")


def _surer_than_rivals(e: Evidence) -> Verdict:
    found = _diagonals(e)
    right = found["D1"] > found["D2"] and found["D4"] > found["D3"]
    return held(right, f"means {listed(found, 2)}")


def _over_epochs(e: Evidence) -> Verdict:
    found = {epoch: e.value("figureD", epoch, "map@r") for epoch in e.rows("figureD")}
    if len(found) < 2:
        raise Missing("Figure D")
    values = list(found.values())
    rising = all(a < b for a, b in pairwise(values))
    return held(rising, f"MAP@R of unseen classes: {listed(found)}")


def _shown(e: Evidence) -> Verdict:
    told, right = [], True
    for part in ("seen", "unseen"):
        count, least, most = (e.value("figureC", part, key) for key in ("classes", "least", "most"))
        right = right and count == CLASSES and least > MORE_THAN
        told.append(f"{count:.0f} {part} classes with {least:.0f} to {most:.0f} pictures shown")
    return held(right, "; ".join(told))


FIGURES = (
    Claim(
        "For both the input and embedding spaces, Norm-softmax has a strict decision boundary, "
        "whereas PS + Norm-softmax has a smooth decision boundary",
        "section 3.3, Figure 2",
        "between the two classes the larger confidence is on average lower with Proxy Synthesis, "
        "in both spaces",
        _smooth,
        scaled=False,
        printed=False,
    ),
    Claim(
        "Synthetic classes work as hard competitors of original classes because of positional "
        "proximity, which leads to lower prediction confidence",
        "section 3.3, Figure 2",
        "the toy is less sure of the class that it never saw with Proxy Synthesis",
        _unsure_of_unseen,
        scaled=False,
        printed=False,
    ),
    Claim(
        "the logit values of ground truth (GT), which are represented by the main diagonal D0, are "
        "clearly red [...]. On the other hand, the GT logit values of PS + Norm-softmax (D1 and "
        "D4) have lower confidence",
        "section 4.3, Figure 4",
        "the mean cosines on D1 and on D4 are below that on D0",
        _less_sure,
        printed=False,
    ),
    Claim(
        "the confidence of main diagonals (D1 and D4) is still higher than that of competitors' "
        "diagonals (D2 and D3) [...] for the same embedding",
        "section 4.3, Figure 4",
        "the mean cosine on D1 is above that on D2, and D4 above D3",
        _surer_than_rivals,
        printed=False,
    ),
    Claim(
        "As the number of classes is large [...] in SOP, we sample 100 classes with more than 10 "
        "instances per class",
        "section D.5, Figure C",
        "100 seen and 100 unseen classes are shown, each with more than 10 pictures",
        _shown,
        printed=False,
    ),
    Claim(
        "At the beginning of training [2nd epoch] all embeddings are scattered [...]. At 30 epochs "
        "[...] start forming clusters [...] more discriminative [...] at the 60th epoch [...]. "
        "Finally, [...] well-clustered train and test embeddings at the 150th epoch",
        "section D.5, Figure D",
        "MAP@R of the unseen classes rises from each of the four epochs to the next; a shorter "
        "training is looked at after the same parts of it",
        _over_epochs,
        printed=False,
    ),
)

"""Where the paper contradicts itself, and where this code does something else than its text.

Everything here is tested in `tests/paper/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxysynth.paper.claims.claim import Checked
from proxysynth.paper.printed import notes_of

FILES = ("conventional", "mlrc", "table5", "tableA", "tableD")
CONTRADICTIONS = (
    "Section C.1: In-Shop is said to have 28,760 test images, but its 14,218 queries and 12,612 "
    "gallery images make 26,830. Our definition has the two parts.",
    "Section D.1: the loss is said to compute an N x N similarity matrix, and (N + mu N) x "
    "(N + mu N) with Proxy Synthesis. With C classes they are N x C and (N + mu N) x (C + mu N).",
)
DIFFERENCES = (
    "MLRC training crops: the paper says a random crop of 40 to 256 pixels. We crop 0.16 to 1 of "
    "the area, as the reference harness does, where 0.16 x 256 is 41 (102 to 256 pixels a side).",
    "Proxy-NCA: Eq. i has no scale and leaves the positive out of the denominator. Tables 6, B, F, "
    "H, J and L train what the authors' code trains: squared distances at a scale of 12 with the "
    "positive in the denominator, which equals Norm-softmax at a scale of 24.",
    "Figure 4: the paper shows the 100th epoch of CARS196. Ours shows the end of training.",
    "Table 6: alpha and mu are searched once per data set with Norm-softmax on held-out seen "
    "classes, not per loss. The paper does not say on what it searched.",
    "Tables 5, C, D and E: parameters are chosen on held-out seen classes or training images. The "
    "paper does not say what it chose by.",
    "Table 3: zoom in shows the middle half of each side, zoom out one and a half times it; the "
    "paper's wording also allows the opposite. The blur's sigma is 3 pixels of 224 and shrinks "
    "with the image.",
    "Table B and Figure 5: the paper does not say how pairs are drawn. Ours are 100 seeded pairs "
    "of classes, both orders, 8 synthetics of each.",
    "Proxy-anchor: batches of 180, AdamW, warm-up and both poolings are used at the scale `paper`;"
    " the smaller scales train every loss with the same settings.",
)


def contradictions(checked: Sequence[Checked]) -> list[str]:
    """Of the text, of printed numbers with each other, and of sentences with their own tables."""
    numbers = dict.fromkeys(note for name in FILES for note in notes_of(name))
    sentences = [
        f"“{one.claim.sentence}” ({one.claim.where}): {one.paper.evidence}."
        for one in checked
        if one.paper.status == "contradicts itself"
    ]
    return [*CONTRADICTIONS, *(f"{note[:1].upper()}{note[1:]}." for note in numbers), *sentences]

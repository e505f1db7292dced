"""The paper's sentences that carry a number or a result, each tested by a rule."""

from proxysynth.paper.claims.ablation_claims import ABLATIONS
from proxysynth.paper.claims.claim import Checked, Claim, Evidence, Verdict, check
from proxysynth.paper.claims.comparison_claims import COMPARISONS
from proxysynth.paper.claims.data_claims import DATA
from proxysynth.paper.claims.deformation_claims import DEFORMED
from proxysynth.paper.claims.figure_claims import FIGURES
from proxysynth.paper.claims.gradient_claims import GRADIENTS
from proxysynth.paper.claims.method_claims import METHOD
from proxysynth.paper.claims.other_claims import OTHERS
from proxysynth.paper.claims.robustness_claims import ROBUSTNESS
from proxysynth.paper.claims.setting_claims import SETTINGS

CLAIMS: tuple[Claim, ...] = (
    *FIGURES, *ABLATIONS, *ROBUSTNESS, *COMPARISONS, *OTHERS,
    *METHOD, *GRADIENTS, *DATA, *SETTINGS, *DEFORMED,
)  # fmt: skip

__all__ = ["CLAIMS", "Checked", "Claim", "Evidence", "Verdict", "check"]

"""The paper's sentences that carry a number or a result, tested by the tables."""

from proxysynth.paper.claims.ablation_claims import ABLATIONS
from proxysynth.paper.claims.claim import Checked, Claim, Evidence, Verdict, check
from proxysynth.paper.claims.comparison_claims import COMPARISONS
from proxysynth.paper.claims.other_claims import OTHERS
from proxysynth.paper.claims.robustness_claims import ROBUSTNESS

CLAIMS: tuple[Claim, ...] = (*ABLATIONS, *ROBUSTNESS, *COMPARISONS, *OTHERS)

__all__ = ["CLAIMS", "Checked", "Claim", "Evidence", "Verdict", "check"]

"""The paper's statements about results, each tested by a stated rule on our numbers and on the
paper's own. Statements about equations, settings, data and code are tested in `tests/`."""

from proxysynth.paper.claims.claim import Checked, Claim, Evidence, Finding, Verdict, check
from proxysynth.paper.claims.comparisons import COMPARISONS
from proxysynth.paper.claims.mechanism import MECHANISM

CLAIMS: tuple[Claim, ...] = (*MECHANISM, *COMPARISONS)

__all__ = ["CLAIMS", "Checked", "Claim", "Evidence", "Finding", "Verdict", "check"]

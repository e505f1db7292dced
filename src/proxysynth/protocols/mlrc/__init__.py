"""The protocol of "A metric learning reality check" (Musgrave, Belongie, Lim 2020; section C.2).

Hyper-parameters are searched by class-disjoint cross-validation on the seen classes, then the best
are trained again with several seeds, and only then are the unseen classes opened. Start with
`study.py`; `spaces.py` has the search spaces, `settings.py` the scales.
"""

from proxysynth.protocols.mlrc.settings import SCALES, Scale, Study, make_study, mlrc_run
from proxysynth.protocols.mlrc.spaces import Range, space_of
from proxysynth.protocols.mlrc.study import Outcome, run_study

__all__ = [
    "SCALES",
    "Outcome",
    "Range",
    "Scale",
    "Study",
    "make_study",
    "mlrc_run",
    "run_study",
    "space_of",
]

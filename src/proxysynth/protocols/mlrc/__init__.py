"""The protocol of "A metric learning reality check" (Musgrave, Belongie, Lim 2020; section C.2).

Parameters are searched by class-disjoint cross-validation of the seen classes, then the best are
trained again from several seeds, and only then are the unseen classes opened. Read `protocol.py`
first; `spaces.py` says what is searched, `settings.py` how much.
"""

from proxysynth.protocols.mlrc.protocol import Outcome, run_study
from proxysynth.protocols.mlrc.settings import SCALES, Scale, mlrc_run
from proxysynth.protocols.mlrc.spaces import Range, space_of
from proxysynth.protocols.mlrc.study import Study, make_study

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

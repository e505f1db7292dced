# ruff: noqa: F401
"""Training: a Run, the loop, its checkpoints, its result, and the trained model."""

from proxysynth.errors import NotFinite, TrainingFailed, WrongFolder
from proxysynth.training.callbacks import Progress, Silent
from proxysynth.training.defaults import default_run
from proxysynth.training.inference import Trained, load
from proxysynth.training.loop import train
from proxysynth.training.resources import Resources
from proxysynth.training.run import KINDS, Run, Split
from proxysynth.training.run_folder import Recorded, Result, read_metrics, read_result, read_run

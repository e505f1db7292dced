"""Training: a Run, the loop, its checkpoints, its result, and the model that comes of it."""

from proxysynth.errors import NotFinite, TrainingFailed, WrongFolder
from proxysynth.training.defaults import default_run
from proxysynth.training.load import Trained, load
from proxysynth.training.loop import train
from proxysynth.training.metrics_log import read_metrics
from proxysynth.training.progress import Progress, Silent
from proxysynth.training.record import Result, read_result
from proxysynth.training.resources import Resources
from proxysynth.training.run import KINDS, Run
from proxysynth.training.run_folder import Recorded, read_run
from proxysynth.training.split import Split

__all__ = [
    "KINDS",
    "NotFinite",
    "Progress",
    "Recorded",
    "Resources",
    "Result",
    "Run",
    "Silent",
    "Split",
    "Trained",
    "TrainingFailed",
    "WrongFolder",
    "default_run",
    "load",
    "read_metrics",
    "read_result",
    "read_run",
    "train",
]

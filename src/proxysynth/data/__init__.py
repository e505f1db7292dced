"""Pictures with labels, and everything between a file and a batch."""

from .benchmarks import CATALOGUE, Benchmark, catalogue, open_benchmark
from .check import BadPictures, check_pictures, check_splits
from .check_benchmark import CopyCheck, check_benchmark
from .class_split import ClassSplit
from .folder import open_folder
from .glyphs import glyphs
from .listing import Listing
from .loader import Batch, Loader, default_workers, picture
from .open_data import BENCHMARKS, open_data
from .picture_cache import PictureCache
from .pictures import UnreadablePicture, open_picture
from .pixels import PIXELS, Pixels
from .prepare import PreparedCopy, prepare_benchmark
from .protocol_transforms import CLASSIFICATION, CONVENTIONAL, MLRC, MLRC_AS_PRINTED, Pair
from .sampler import SAMPLERS, MPerClass, Sampler, Shuffled, in_order
from .splits import Splits, spread, with_fold, with_validation
from .table import open_table
from .transforms import AsIs, CenterCrop, PadCrop, RandomResizedCrop, Transform

__all__ = [
    "BENCHMARKS",
    "CATALOGUE",
    "CLASSIFICATION",
    "CONVENTIONAL",
    "MLRC",
    "MLRC_AS_PRINTED",
    "PIXELS",
    "SAMPLERS",
    "AsIs",
    "BadPictures",
    "Batch",
    "Benchmark",
    "CenterCrop",
    "ClassSplit",
    "CopyCheck",
    "Listing",
    "Loader",
    "MPerClass",
    "PadCrop",
    "Pair",
    "PictureCache",
    "Pixels",
    "PreparedCopy",
    "RandomResizedCrop",
    "Sampler",
    "Shuffled",
    "Splits",
    "Transform",
    "UnreadablePicture",
    "catalogue",
    "check_benchmark",
    "check_pictures",
    "check_splits",
    "default_workers",
    "glyphs",
    "in_order",
    "open_benchmark",
    "open_data",
    "open_folder",
    "open_picture",
    "open_table",
    "picture",
    "prepare_benchmark",
    "spread",
    "with_fold",
    "with_validation",
]

"""Pictures with labels, and everything between a file and a batch."""

from .check import BadPictures, check_pictures, check_splits
from .class_split import ClassSplit
from .folder import open_folder
from .glyphs import glyphs
from .listing import Listing
from .loader import Batch, Loader, default_workers, picture
from .open_data import BENCHMARKS, open_data
from .picture_cache import PictureCache
from .pictures import UnreadablePicture, open_picture
from .pixels import PIXELS, Pixels
from .sampler import SAMPLERS, MPerClass, Sampler, Shuffled, in_order
from .splits import Splits, with_validation
from .table import open_table
from .transforms import AsIs, CenterCrop, RandomResizedCrop, Transform

__all__ = [
    "BENCHMARKS",
    "PIXELS",
    "SAMPLERS",
    "AsIs",
    "BadPictures",
    "Batch",
    "CenterCrop",
    "ClassSplit",
    "Listing",
    "Loader",
    "MPerClass",
    "PictureCache",
    "Pixels",
    "RandomResizedCrop",
    "Sampler",
    "Shuffled",
    "Splits",
    "Transform",
    "UnreadablePicture",
    "check_pictures",
    "check_splits",
    "default_workers",
    "glyphs",
    "in_order",
    "open_data",
    "open_folder",
    "open_picture",
    "open_table",
    "picture",
    "with_validation",
]

# ruff: noqa: F401
"""Images with labels: listings and splits, where they come from, and how they become batches."""

from proxysynth.data.benchmarks.catalog import CATALOG, catalog_rows
from proxysynth.data.benchmarks.opening import check_benchmark, open_benchmark, prepare_benchmark
from proxysynth.data.check import UnreadableImages, check_splits
from proxysynth.data.glyphs import glyphs
from proxysynth.data.images import ImageCache, UnreadableImage, open_image
from proxysynth.data.listing import (
    ClassSplit,
    Listing,
    Splits,
    stratified_subset,
    with_fold,
    with_validation,
)
from proxysynth.data.loader import (
    Batch,
    Loader,
    MPerClass,
    Sampler,
    Shuffled,
    default_workers,
    in_order,
    read_image,
)
from proxysynth.data.sources import open_data
from proxysynth.data.transforms import (
    PIXELS,
    AsIs,
    CenterCrop,
    PadCrop,
    Pixels,
    RandomResizedCrop,
    Transform,
    pixels_named,
)

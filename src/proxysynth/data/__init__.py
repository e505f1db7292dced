"""Images with labels: listings and splits, where they come from, and how they become batches."""

from proxysynth.data.benchmarks.catalog import CATALOG, Benchmark, catalog_rows
from proxysynth.data.benchmarks.copies import (
    CopyCheck,
    PreparedCopy,
    check_benchmark,
    prepare_benchmark,
)
from proxysynth.data.benchmarks.opening import open_benchmark
from proxysynth.data.check import UnreadableImages, check_splits
from proxysynth.data.folder import open_folder, open_table
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
    SAMPLERS,
    Batch,
    Loader,
    MPerClass,
    Sampler,
    Shuffled,
    default_workers,
    in_order,
    read_image,
)
from proxysynth.data.open_data import BENCHMARKS, open_data
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

__all__ = [
    "BENCHMARKS",
    "CATALOG",
    "PIXELS",
    "SAMPLERS",
    "AsIs",
    "Batch",
    "Benchmark",
    "CenterCrop",
    "ClassSplit",
    "CopyCheck",
    "ImageCache",
    "Listing",
    "Loader",
    "MPerClass",
    "PadCrop",
    "Pixels",
    "PreparedCopy",
    "RandomResizedCrop",
    "Sampler",
    "Shuffled",
    "Splits",
    "Transform",
    "UnreadableImage",
    "UnreadableImages",
    "catalog_rows",
    "check_benchmark",
    "check_splits",
    "default_workers",
    "glyphs",
    "in_order",
    "open_benchmark",
    "open_data",
    "open_folder",
    "open_image",
    "open_table",
    "pixels_named",
    "prepare_benchmark",
    "read_image",
    "stratified_subset",
    "with_fold",
    "with_validation",
]

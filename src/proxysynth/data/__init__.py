"""Images with labels: listings and splits, where they come from, and how they become batches."""

from proxysynth.data.benchmarks.catalog import CATALOG as CATALOG, catalog_rows as catalog_rows
from proxysynth.data.benchmarks.opening import (
    check_benchmark as check_benchmark,
    open_benchmark as open_benchmark,
    prepare_benchmark as prepare_benchmark,
)
from proxysynth.data.check import (
    UnreadableImages as UnreadableImages,
    check_splits as check_splits,
)
from proxysynth.data.glyphs import glyphs as glyphs
from proxysynth.data.images import (
    ImageCache as ImageCache,
    UnreadableImage as UnreadableImage,
    open_image as open_image,
)
from proxysynth.data.listing import (
    ClassSplit as ClassSplit,
    Listing as Listing,
    Splits as Splits,
    stratified_subset as stratified_subset,
    with_fold as with_fold,
    with_validation as with_validation,
)
from proxysynth.data.loader import (
    Batch as Batch,
    Loader as Loader,
    MPerClass as MPerClass,
    Sampler as Sampler,
    Shuffled as Shuffled,
    default_workers as default_workers,
    in_order as in_order,
    read_image as read_image,
)
from proxysynth.data.sources import (
    BENCHMARKS as BENCHMARKS,
    open_data as open_data,
    open_folder as open_folder,
    open_table as open_table,
)
from proxysynth.data.transforms import (
    PIXELS as PIXELS,
    AsIs as AsIs,
    CenterCrop as CenterCrop,
    PadCrop as PadCrop,
    Pixels as Pixels,
    RandomResizedCrop as RandomResizedCrop,
    Transform as Transform,
    pixels_named as pixels_named,
)

"""Embedding images: with a network in training, and with a trained model from its folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from proxysynth import data
from proxysynth.data import CenterCrop, Listing, Loader, Splits
from proxysynth.distributed.process_group import ALONE, Ranks
from proxysynth.errors import Damaged, TrainingFailed
from proxysynth.losses.functional import plain_loss
from proxysynth.models.embedder import Embedder
from proxysynth.models.libraries import is_code
from proxysynth.retrieval import Calibration, calibrate, evaluate
from proxysynth.retrieval.calibration import UNKNOWN_TARGET, unknown_thresholds
from proxysynth.retrieval.knn import ANY, check_threshold
from proxysynth.tensor_files import read_tensors
from proxysynth.training import run_folder
from proxysynth.training.callbacks import Tick
from proxysynth.training.checkpoint import Checkpoints, part
from proxysynth.training.prepare import make_network
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import CHECKPOINT, MODEL, RESULT, RUN, Recorded

BATCH = 128  # images
UNKNOWN = 4096  # images of unseen classes that the threshold of an unknown image is fitted on

KS = {"sop": (1, 10, 100, 1000), "inshop": (1, 10, 20, 40)}
"""The ks that the literature prints for a dataset; (1, 2, 4, 8) for the others."""


def reported_ks(run: Run) -> tuple[int, ...]:
    """The ks of Recall@k for a run: its own, or the usual ones of its dataset."""
    return run.ks or KS.get(run.data.partition(":")[0], (1, 2, 4, 8))


def embed(
    net: Embedder,
    loader: Loader,
    *,
    features: bool = False,
    tick: Tick | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """The embeddings (n, d) of a loader's images, float32 on the CPU, in the listing's order.

    The network runs in evaluation mode; its mode is restored afterwards.

    Args:
        features: the backbone's pooled features instead, before the embedding layer.
        tick: called with the number of images of each batch.
        ranks: the processes that divide the batches among them.
    """
    first = next(net.parameters(), torch.zeros(()))  # a user's network may have none
    function, dim = (net.features, net.channels) if features else (net, net.dim)
    plan = data.in_order(len(loader.listing), BATCH)
    counts = [sum(map(len, plan[part])) for part in ranks.parts(len(plan))]
    made, mode, tick = [torch.empty(0, dim)], net.training, tick or (lambda images, note: None)
    net.eval()
    try:
        with torch.inference_mode():
            for batch in loader.batches(plan[ranks.part(len(plan))]):
                made.append(function(batch.inputs(first.device).to(first.dtype)).float().cpu())
                tick(len(made[-1]), "")
    finally:
        net.train(mode)
    tick(sum(counts) - counts[ranks.rank], "")  # what the other ranks did
    return ranks.gather(torch.cat(made), counts)


def nearest_class(loss: Any, proxies: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from embeddings (n, d) to the most likely of the seen classes, (n,)."""
    plain, p = plain_loss(loss), proxies.detach().float().cpu()

    def predict(x: Tensor) -> Tensor:
        parts = x.split(max(1, 2**24 // len(p)))
        return torch.cat([plain.logits(plain.similarity(part, p)).argmax(1) for part in parts])

    return predict


def nearest_proxy(loss: Any, proxies: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely class of each embedding (n, d), and the cosine to the class's proxy."""
    label = nearest_class(loss, proxies)(x)
    p = proxies.detach().float().cpu()[label].view(len(x), -1, proxies.shape[-1])
    return label, torch.cosine_similarity(x[:, None], p, dim=2).amax(1)


def calibrate_run(
    run: Run, splits: Splits, proxies: Tensor, tested: Tested, held_out: Tested
) -> dict[str, Any]:
    """The `calibration` of a `Result`: thresholds from the test images, fitted on the images
    `held_out` of training, if any."""
    if not tested.metrics:
        return {}
    own = held_out.metrics and held_out is not tested
    made = calibrate(
        tested.query,
        tested.labels,
        gallery=tested.gallery,
        gallery_labels=tested.gallery_labels,
        held_out=(held_out.query, held_out.labels) if own else None,
    )
    if made is None:
        return {}
    seen = set(splits.train.classes)
    unseen = torch.tensor([name not in seen for name in splits.query.classes])[tested.labels]
    others = tested.query[unseen]
    if len(others):
        _, similarity = nearest_proxy(run.loss, proxies, others[:: -(-len(others) // UNKNOWN)])
        made = replace(made, unknown=unknown_thresholds(similarity))
    return asdict(made)


class EmbeddingsNotFinite(ValueError):
    """Finite weights produced non-finite embeddings."""


@dataclass(frozen=True, eq=False)
class Tested:
    """Embeddings of the test images and their metrics; `gallery` is None if the queries are it."""

    query: Tensor
    labels: Tensor
    gallery: Tensor | None
    gallery_labels: Tensor | None
    metrics: dict[str, float]


NOT_TESTED = Tested(torch.empty(0, 0), torch.empty(0), None, None, {})


def measure(
    net: Embedder,
    query: Loader,
    gallery: Loader | None = None,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8),
    features: bool = False,
    nmi: bool = False,
    rerank: str | None = None,
    predict: Callable[[Tensor], Tensor] | None = None,
    tick: Tick | None = None,
    ranks: Ranks = ALONE,
) -> Tested:
    """Embed the queries (and the gallery) and measure: Recall@k, R-precision, MAP@R.

    Args:
        predict: classes of embeddings, to measure accuracy too; see `nearest_class`.
        ranks: the processes that embed together; the first evaluates, and all get its metrics.
    """
    x = embed(net, query, features=features, tick=tick, ranks=ranks)
    y, g, gy = label_tensor(query.listing), None, None
    if gallery is not None:
        g = embed(net, gallery, features=features, tick=tick, ranks=ranks)
        gy = label_tensor(gallery.listing)
    if not (torch.isfinite(x).all() and (g is None or torch.isfinite(g).all())):
        raise EmbeddingsNotFinite("the embeddings are not finite: check the weights")
    metrics: dict[str, float] = {}
    if ranks.first:
        device = next(net.parameters(), x).device
        metrics = evaluate_on(device, x, y, g, gy, ks=ks, nmi=nmi, rerank=rerank)
        if predict is not None:
            metrics = {"accuracy": (predict(x) == y).double().mean().item(), **metrics}
    return Tested(x, y, g, gy, ranks.broadcast(metrics))


def evaluate_on(
    device: torch.device, x: Tensor, y: Tensor, g: Tensor | None, gy: Tensor | None, **options: Any
) -> dict[str, float]:
    """`evaluate` on a GPU, or on the CPU where that has too little memory."""
    if device.type == "cuda":  # Apple's GPUs have no float64, which the ranks are summed in
        with suppress(torch.OutOfMemoryError):
            return evaluate(x.to(device), y, gallery=g, gallery_labels=gy, **options)
    return evaluate(x, y, gallery=g, gallery_labels=gy, **options)


def label_tensor(listing: Listing) -> Tensor:
    return torch.from_numpy(listing.labels.copy())


Picture = str | os.PathLike[str] | BinaryIO | Image.Image | NDArray[np.uint8]
"""A path, an open file, a Pillow image, or a uint8 array (h, w) or (h, w, 3)."""


def as_list(pictures: Picture | Iterable[Picture]) -> Iterable[Picture]:
    """One image as a list of one; several, also those in one array, as they are."""
    alone = _is_image_or_file(pictures) or _is_one(pictures) or not isinstance(pictures, Iterable)
    return cast(Iterable[Picture], [pictures] if alone else pictures)


class Prediction(NamedTuple):
    """The class of an image."""

    label: str | None  # None for unknown: no class is similar enough
    nearest: str  # the most similar class
    similarity: float  # the cosine to that class's proxy, or to its nearest image in an index


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model."""

    folder: Path  # of its run
    recorded: Recorded  # the content of `run.json`
    embedder: Embedder  # in evaluation mode
    proxies: Tensor  # (c, d) or (c, k, d), in the order of `classes`
    epoch: int  # that the weights are from

    @property
    def run(self) -> Run:
        return self.recorded.run

    @property
    def classes(self) -> tuple[str, ...]:
        """The seen classes."""
        return self.recorded.classes

    @property
    def transform(self) -> CenterCrop:
        """Resizes and crops an image as when the run was tested."""
        return CenterCrop(self.recorded.short_side, self.recorded.image_size)

    @property
    def shrink(self) -> int:
        """The short side to which large files are decoded, that of the training's cache; 0 decodes
        them at full size."""
        side = self.run.cache_side
        return self.recorded.short_side if side is None else side

    @property
    def calibration(self) -> Calibration | None:
        """The thresholds of the run; None if it is not finished, or made by an earlier version."""
        return read_calibration(self.folder)

    def predict(
        self,
        pictures: Picture | Iterable[Picture],
        *,
        index: Any = None,
        k: int = 1,
        threshold: float | str | None = None,
        workers: int | None = None,
    ) -> list[Prediction]:
        """The class of each image: one of the seen classes, or of the labels of an index.

        Args:
            index: a `search.Index` made by this model: the classes are its labels, and its nearest
                images decide. Default: the nearest proxy decides among the seen classes.
            k: nearest images of the index that vote, each with its similarity.
            threshold: the similarity below which an image is unknown, or a target such as
                "far=0.01". Default: "far=0.05" for proxies and "far=0.01" for an index, if the run
                has these thresholds, else no image is unknown.
        """
        if index is not None:
            if (index.model.run, index.model.epoch) != (self.recorded.identity, self.epoch):
                made_by = f"the index was made by {index.model.name}, not by {self.folder}"
                raise ValueError(f"{made_by}: index the images again with this run")
            x = self.embed(pictures, workers)
            return cast(list[Prediction], index.predict_vectors(x, k, threshold))
        if not len(self.proxies):
            raise ValueError(f"{self.folder} has no proxies: predict with an index")
        least, x = self.known_from(threshold), self.embed(pictures, workers)
        label, similarity = nearest_proxy(self.run.loss, self.proxies, x)
        names = [self.classes[number] for number in label.tolist()]
        return [
            Prediction(None if least is not None and s < least else name, name, s)
            for name, s in zip(names, similarity.tolist(), strict=True)
        ]

    def known_from(self, wanted: float | str | None = None) -> float | None:
        """The similarity to the nearest proxy from which an image counts as a seen class, for the
        threshold of `predict`."""
        if isinstance(wanted, (int, float)):
            return wanted if wanted == ANY else check_threshold(wanted)
        thresholds = self.calibration
        if wanted is None:
            return None if thresholds is None else thresholds.unknown.get(UNKNOWN_TARGET)
        if thresholds is None:
            raise ValueError(f"{self.folder} has no thresholds: give a similarity with --threshold")
        return thresholds.unknown_below(wanted)

    def embed(self, pictures: Picture | Iterable[Picture], workers: int | None = None) -> Tensor:
        """Embeddings (n, d), float32 on the CPU, of files or images; one alone gives (1, d).
        `workers` threads decode files; default: the number of processors."""
        rest = iter(as_list(pictures))
        device, pixels = self.proxies.device, data.pixels_named(self.embedder.preprocess)
        made = [torch.empty(0, self.embedder.dim)]
        threads = data.default_workers() if workers is None else max(1, workers)
        with ThreadPoolExecutor(threads) as pool:
            while chunk := list(islice(rest, BATCH)):
                images = torch.from_numpy(np.stack(list(pool.map(self._bytes, chunk)))).to(device)
                with torch.inference_mode():
                    numbers = pixels.normalize(images).permute(0, 3, 1, 2)
                    made.append(self.embedder(numbers).float().cpu())
        return torch.cat(made)

    def _bytes(self, picture: Picture) -> NDArray[np.uint8]:
        """One image, resized and cropped, (h, w, channels)."""
        if _is_one(picture) and picture.shape[2:] in ((), (3,)) and picture.size:
            picture = Image.fromarray(picture)
        elif not _is_image_or_file(picture):
            got = type(picture).__name__
            if isinstance(picture, np.ndarray):
                got = f"{picture.dtype} {picture.shape}"
            takes = "paths, open files, Pillow images or numpy uint8 arrays (h, w) or (h, w, 3)"
            raise ValueError(f"embed takes {takes}, got {got}")
        pixels = data.pixels_named(self.embedder.preprocess)
        image = data.open_image(picture, side=self.shrink)
        made = self.transform(image if image.mode == pixels.mode else image.convert(pixels.mode))
        return made.reshape(*made.shape[:2], pixels.channels)


def read_calibration(folder: str | os.PathLike[str]) -> Calibration | None:
    """The thresholds in the folder of a finished run; None if it has none."""
    result = run_folder.read_result(Path(folder))
    if result is None or not result.calibration:
        return None
    try:
        return Calibration.from_json(result.calibration)
    except ValueError as error:
        raise TrainingFailed(f"{Path(folder) / RESULT} is damaged: {error}") from error


def load(
    folder: str | os.PathLike[str],
    device: str | None = None,
    *,
    backbone: str | None = None,
    trust: bool = False,
) -> Trained:
    """The model of a run: of its reported epoch, or of its last checkpoint if it is not finished.

    Args:
        device: see `Resources`.
        backbone: build the network with this backbone, such as "module:function". Default: the
            one that `run.json` names, if that is not code.
        trust: import and call the code that `run.json` names.
    """
    place = Path(folder).expanduser()
    recorded = run_folder.read_run(place)
    run = recorded.run if backbone is None else replace(recorded.run, backbone=backbone)
    require_trust(run.backbone, place / RUN, trust or backbone is not None)
    tensors, epoch = _weights(place, recorded)
    try:
        proxies = tensors["proxies"]
        if "net.embedding.weight" not in tensors:
            run = replace(run, dim=None)  # interpolation has left it out
        if run.dim not in (None, proxies.shape[-1]):  # before memory is taken for it
            raise KeyError("dim")
        run = replace(run, image_size=recorded.image_size)
        net = make_network(run, None, True, recorded.architecture)
        net.load_state_dict(part(tensors, "net."))
    except (RuntimeError, KeyError, TypeError, OverflowError, MemoryError) as error:
        trained = f": it was trained with {recorded.run.backbone}" if backbone else ""
        raise TrainingFailed(
            f"the weights in {place} do not fit the backbone {run.backbone}{trained}"
        ) from error
    data.pixels_named(net.preprocess)
    where = Resources(device=device).torch_device()
    memory = torch.channels_last if recorded.run.channels_last else torch.contiguous_format
    net = net.to(where, memory_format=memory).eval()  # type: ignore[call-overload]
    return Trained(place, recorded, net, proxies.to(where), epoch)


def has_embedding_layer(folder: Path) -> bool:
    """Whether the model of a run has one: interpolation leaves a new one out."""
    path = folder / MODEL
    return not path.is_file() or "net.embedding.weight" in read_tensors(path)[0]


def require_trust(backbone: str, source: object, trusted: bool) -> None:
    """Raise ValueError if a file names a backbone that is code, unless the user has asked for it:
    a file from somebody else is data, and opening it must not run anything."""
    module, _, function = backbone.partition(":")
    if is_code(backbone) and not trusted:
        raise ValueError(
            f"the backbone in {source} would import the module {module} and call {function}: if "
            f"you trust that code, add --backbone {backbone} or --trust (in Python: trust=True)"
        )


def _weights(folder: Path, recorded: Recorded) -> tuple[dict[str, Tensor], int]:
    """The tensors of a run and their epoch; a damaged model is replaced by its checkpoint."""
    path, checkpoints = folder / MODEL, Checkpoints(folder / CHECKPOINT)
    if not path.exists():
        if (loaded := checkpoints.load(recorded.identity)) is None:
            raise TrainingFailed(f"{folder} has no weights yet: train it for at least one epoch")
        epoch = f"epoch {loaded.state.epoch} of {recorded.run.epochs}"
        warnings.warn(f"the run in {folder} is not finished: using {epoch}", stacklevel=3)
        return loaded.tensors, loaded.state.epoch
    result = run_folder.read_result(folder)
    try:
        tensors, about = read_tensors(path, None if result is None else result.checksums.get(MODEL))
    except TrainingFailed as error:
        # Checkpoints hold the trained weights, which may not be the ones delivered.
        if result and not result.interpolation and result.epochs == recorded.run.epochs:
            with suppress(Damaged, ValueError):
                loaded = checkpoints.load(result.run)
                if loaded and (loaded.state.epoch, loaded.state.batch) == (result.epoch, 0):
                    warnings.warn(f"{path} is damaged: using the checkpoint instead", stacklevel=3)
                    return loaded.tensors, result.epoch
        advice = f"`proxysynth train --resume --out {folder}` writes it again"
        raise TrainingFailed(f"{path} is damaged or unreadable: {advice}") from error
    if not isinstance(about.get("epoch"), int):
        raise TrainingFailed(f"{path} does not name its epoch: restore the original file")
    return tensors, about["epoch"]


def _is_image_or_file(item: Any) -> TypeGuard[str | os.PathLike[str] | BinaryIO | Image.Image]:
    return isinstance(item, (str, os.PathLike, Image.Image)) or hasattr(item, "read")


def _is_one(item: Any) -> TypeGuard[NDArray[np.uint8]]:
    """Whether an array is one image (perhaps with an unsupported number of channels)."""
    is_bytes = isinstance(item, np.ndarray) and item.dtype == np.uint8 and item.ndim >= 2
    return is_bytes and item.shape[2:] in ((), (1,), (3,), (4,))

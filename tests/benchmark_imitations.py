"""Small imitations of the benchmarks' published layouts, and a catalog that expects them."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
import scipy.io
from PIL import Image

from proxysynth.data import CATALOG

TWO_AND_TWO = {"train": 2, "test": 2}


def expect(monkeypatch, name, pictures, classes):
    """Let the catalog expect these counts."""
    entry = dataclasses.replace(CATALOG[name], pictures=pictures, classes=classes)
    monkeypatch.setitem(CATALOG, name, entry)


def save_picture(path, seed=0, size=(48, 36)):
    path.parent.mkdir(parents=True, exist_ok=True)
    made = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8)
    Image.fromarray(made).save(path, "JPEG")
    return path


def cub200(root, monkeypatch, size=(48, 36)):
    """Four classes; ids are not in the order of the lines."""
    classes = ["001.Auk", "002.Booby", "003.Crow", "004.Dove"]
    counts = [3, 2, 4, 2]
    pictures = [(label, i) for label, n in enumerate(counts, start=1) for i in range(n)]
    ids = {picture: 1 + number for number, picture in enumerate(reversed(pictures))}
    lines, labels = [], []
    for label, i in pictures:
        name = f"{classes[label - 1]}/{i}.jpg"
        save_picture(root / "images" / name, seed=10 * label + i, size=size)
        lines.append(f"{ids[label, i]} {name}")
        labels.append(f"{ids[label, i]} {label}")
    (root / "images.txt").write_text("\n".join(lines) + "\n")
    (root / "image_class_labels.txt").write_text("\n".join(sorted(labels)) + "\n")
    (root / "classes.txt").write_text("".join(f"{i} {c}\n" for i, c in enumerate(classes, 1)))
    (root / "bounding_boxes.txt").write_text("1 0 0 5 5\n")
    expect(monkeypatch, "cub200", {"train": 5, "test": 6}, TWO_AND_TWO)
    return root


def struct_array(rows):
    """What savemat writes as a struct array: numbers as 1 x 1, texts as rows of characters."""
    made = np.zeros((1, len(rows)), dtype=[(field, "O") for field in rows[0]])
    for i, row in enumerate(rows):
        values = (v if isinstance(v, str) else np.array([[v]], np.uint8) for v in row.values())
        made[0, i] = tuple(values)
    return made


def cell(texts):
    made = np.empty((1, len(texts)), dtype=object)
    made[0, :] = texts
    return made


CARS = ["AM General Hummer SUV 2000", "Eagle Talon Hatchback 1998", "FIAT 500 Abarth 2012"]
CARS += ["smart fortwo Convertible 2012"]


def cars196_annotated(root, monkeypatch, compressed=True):
    labels = [1, 4, 2, 3, 3, 1, 2, 4, 4]
    rows = []
    for i, label in enumerate(labels, start=1):
        name = f"car_ims/{i:06d}.jpg"
        save_picture(root / name, seed=i)
        rows.append({"relative_im_path": name, "bbox_x1": 3, "class": label, "test": i % 2})
    held = {"annotations": struct_array(rows), "class_names": cell(CARS)}
    scipy.io.savemat(root / "cars_annos.mat", held, do_compression=compressed)
    expect(monkeypatch, "cars196", {"train": 4, "test": 5}, TWO_AND_TWO)
    return root


def cars196_halves(root, monkeypatch):
    """Both halves have every class."""
    (root / "devkit").mkdir(parents=True)
    for half, file, labels in (
        ("cars_train", "devkit/cars_train_annos.mat", [1, 2, 3, 4]),
        ("cars_test", "cars_test_annos_withlabels.mat", [4, 3, 2, 1, 1]),
    ):
        rows = []
        for i, label in enumerate(labels, start=1):
            save_picture(root / half / f"{i:05d}.jpg", seed=100 * len(labels) + i)
            rows.append({"bbox_x1": 3, "class": label, "fname": f"{i:05d}.jpg"})
        scipy.io.savemat(root / file, {"annotations": struct_array(rows)}, do_compression=True)
    scipy.io.savemat(root / "devkit/cars_meta.mat", {"class_names": cell(CARS)})
    expect(monkeypatch, "cars196", {"train": 5, "test": 4}, TWO_AND_TWO)
    return root


def cars196_folders(root, monkeypatch, above=("train", "test"), classes=CARS):
    seed = 0
    for half in above:
        for name in classes:
            for _ in range(2):
                seed += 1
                save_picture(root / half / name / f"{seed:05d}.jpg", seed)
    both = 4 * len(above)
    expect(monkeypatch, "cars196", {"train": both, "test": both}, TWO_AND_TWO)
    return root


def sop(root, monkeypatch):
    number = 0
    for file, labels in (("Ebay_train.txt", [1, 1, 2]), ("Ebay_test.txt", [11, 11, 9, 9, 9])):
        lines = ["image_id class_id super_class_id path"]
        for label in labels:
            number += 1
            name = f"{'bicycle' if label < 3 else 'chair'}_final/{label}_{number}.JPG"
            save_picture(root / name, seed=number)
            lines.append(f"{number} {label} 1 {name}")
        (root / file).write_text("\r\n".join(lines) + "\r\n")
    expect(monkeypatch, "sop", {"train": 3, "test": 5}, TWO_AND_TWO)
    return root


def inshop(root, monkeypatch, eval_folder="", above=""):
    rows = [
        ("WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
        ("WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
        ("MEN/Denim/id_00000003/01_1_front.jpg", "id_00000003", "train"),
        ("MEN/Denim/id_00000007/01_1_front.jpg", "id_00000007", "query"),
        ("MEN/Denim/id_00000007/01_2_side.jpg", "id_00000007", "gallery"),
        ("MEN/Denim/id_00000005/01_2_side.jpg", "id_00000005", "gallery"),
        ("MEN/Denim/id_00000005/01_7_additional.jpg", "id_00000005", "gallery"),
        ("MEN/Denim/id_00000005/01_1_front.jpg", "id_00000005", "query"),
        ("WOMEN/Skirts/id_00000009/03_1_front.jpg", "id_00000009", "query"),
        ("WOMEN/Skirts/id_00000009/03_3_back.jpg", "id_00000009", "gallery"),
    ]
    lines = [f"{len(rows)}", "image_name item_id evaluation_status"]
    for seed, (name, item, part) in enumerate(rows):
        save_picture(root / above / "img" / name, seed)
        lines.append(f"img/{name:60}{item}   {part}")
    (root / eval_folder).mkdir(exist_ok=True)
    (root / eval_folder / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    counts = {"train": 3, "query": 3, "gallery": 4}
    expect(monkeypatch, "inshop", counts, {"train": 2, "query": 3, "gallery": 3})
    return root


def small_pictures(n, c, seed):
    """(n, 32, 32, 3) and labels over all c classes."""
    draw = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(c), draw.integers(0, c, n - c)])
    return draw.integers(0, 256, (n, 32, 32, 3), np.uint8), labels


def planes(pixels):
    """CIFAR's rows: 1,024 bytes each of red, green and blue."""
    return np.stack([p.transpose(2, 0, 1).reshape(-1) for p in pixels])


CIFAR10 = {**{f"data_batch_{i}": small_pictures(4, 2, i) for i in range(1, 6)}}
CIFAR10["test_batch"] = small_pictures(3, 2, 6)
CIFAR100 = {"train": small_pictures(6, 3, 1), "test": small_pictures(4, 3, 2)}


def cifar10_binary(root, monkeypatch):
    root.mkdir(parents=True, exist_ok=True)
    for file, (pixels, labels) in CIFAR10.items():
        table = np.hstack([labels[:, None].astype(np.uint8), planes(pixels)])
        (root / f"{file}.bin").write_bytes(table.tobytes())
    (root / "batches.meta.txt").write_text("airplane\nautomobile\n\n")
    expect(monkeypatch, "cifar10", {"train": 20, "test": 3}, TWO_AND_TWO)
    return root


def cifar10_python(root, monkeypatch):
    root.mkdir(parents=True, exist_ok=True)
    for file, (pixels, labels) in CIFAR10.items():
        held = {b"batch_label": b"a batch", b"labels": labels.tolist(), b"data": planes(pixels)}
        held[b"filenames"] = [b"a.png"] * len(labels)
        (root / file).write_bytes(python2_pickle(held))
    meta = {b"num_vis": 3072, b"label_names": [b"airplane", b"automobile"]}
    (root / "batches.meta").write_bytes(python2_pickle(meta))
    expect(monkeypatch, "cifar10", {"train": 20, "test": 3}, TWO_AND_TWO)
    return root


def cifar100_binary(root, monkeypatch):
    root.mkdir(parents=True, exist_ok=True)
    for file, (pixels, labels) in CIFAR100.items():
        coarse = np.full((len(labels), 1), 19, np.uint8)
        table = np.hstack([coarse, labels[:, None].astype(np.uint8), planes(pixels)])
        (root / f"{file}.bin").write_bytes(table.tobytes())
    (root / "fine_label_names.txt").write_text("apple\naquarium_fish\nbaby\n")
    expect(monkeypatch, "cifar100", {"train": 6, "test": 4}, {"train": 3, "test": 3})
    return root


def cifar100_python(root, monkeypatch):
    root.mkdir(parents=True, exist_ok=True)
    for file, (pixels, labels) in CIFAR100.items():
        held = {b"fine_labels": labels.tolist(), b"coarse_labels": [19] * len(labels)}
        held[b"data"] = planes(pixels)
        (root / file).write_bytes(python2_pickle(held))
    meta = {b"fine_label_names": [b"apple", b"aquarium_fish", b"baby"]}
    (root / "meta").write_bytes(python2_pickle(meta))
    expect(monkeypatch, "cifar100", {"train": 6, "test": 4}, {"train": 3, "test": 3})
    return root


SVHN = {"train": small_pictures(12, 10, 3), "test": small_pictures(11, 10, 4)}


def svhn(root, monkeypatch):
    root.mkdir(parents=True, exist_ok=True)
    for part, (pixels, labels) in SVHN.items():
        y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        held = {"X": pixels.transpose(1, 2, 3, 0), "y": y}
        scipy.io.savemat(root / f"{part}_32x32.mat", held, do_compression=True)
    expect(monkeypatch, "svhn", {"train": 12, "test": 11}, {"train": 10, "test": 10})
    return root


def tiny_imagenet(root, monkeypatch):
    classes = ["n02124075", "n01443537", "n03444034"]
    root.mkdir(parents=True, exist_ok=True)
    (root / "wnids.txt").write_text("\n".join(classes))
    (root / "words.txt").write_text("n02124075\tEgyptian cat\n")
    for label in classes:
        for i in range(3):
            name = f"train/{label}/images/{label}_{i}.JPEG"
            save_picture(root / name, seed=i + 5 * classes.index(label), size=(64, 64))
        (root / f"train/{label}/{label}_boxes.txt").write_text(f"{label}_0.JPEG\t0\t0\t9\t9\n")
    lines = []
    for i, label in enumerate([classes[2], classes[0], classes[1], classes[2]]):
        save_picture(root / f"val/images/val_{i}.JPEG", seed=50 + i, size=(64, 64))
        lines.append(f"val_{i}.JPEG\t{label}\t0\t32\t44\t62")
    (root / "val/val_annotations.txt").write_text("\n".join(lines))
    save_picture(root / "test/images/test_0.JPEG")
    expect(monkeypatch, "tiny_imagenet", {"train": 9, "test": 4}, {"train": 3, "test": 3})
    return root


def python2_pickle(value):
    """What Python 2 wrote with protocol 2: its texts are bytes, which no Python 3 would write."""
    return b"\x80\x02" + _steps(value) + b"."


def _steps(value):
    if isinstance(value, dict):
        inner = b"".join(_steps(key) + _steps(item) for key, item in value.items())
        return b"}(" + inner + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_steps, value)) + b"e"
    if isinstance(value, int):
        return b"M" + struct.pack("<H", value) if value > 255 else b"K" + bytes([value])
    if isinstance(value, bytes):
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + struct.pack("<i", len(value)) + value
    assert isinstance(value, np.ndarray)
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    dtype += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"".join(_steps(side) for side in value.shape) + b"\x86"
    return array + b"(K\x01" + shape + dtype + b"\x89" + _steps(value.tobytes()) + b"tb"


MAKERS = {
    "cub200": cub200,
    "cars196": cars196_annotated,
    "sop": sop,
    "inshop": inshop,
    "cifar10": cifar10_binary,
    "cifar100": cifar100_python,
    "svhn": svhn,
    "tiny_imagenet": tiny_imagenet,
}

"""Embed an image with an exported model, without proxysynth or torch.

proxysynth export RUN --to onnx -o model.onnx
python load_exported.py model.onnx photo.jpg
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

if len(sys.argv) != 3:
    sys.exit("usage: python load_exported.py MODEL.onnx IMAGE")
session = onnxruntime.InferenceSession(sys.argv[1])
how = json.loads(session.get_modelmeta().custom_metadata_map["proxysynth"])["preprocessing"]
crop, order = how["center_crop"], how["channels"]
image = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB")
size = [side * how["resize_short_side"] // min(image.size) for side in image.size]
x, y = (round((side - crop) / 2) for side in size)
image = image.resize(size, Image.BILINEAR).crop((x, y, x + crop, y + crop))
pixels = np.asarray(image.convert("L") if order == "L" else image).reshape(crop, crop, -1)
pixels = (pixels[..., :: -1 if order == "BGR" else 1] / how["divide_by"] - how["mean"]) / how["std"]
print(session.run(["embeddings"], {"images": np.float32(pixels.transpose(2, 0, 1)[None])})[0][0])

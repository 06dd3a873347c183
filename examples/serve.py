"""Predictions over HTTP: MODEL=resnet50.onnx uvicorn --app-dir examples serve:app

pip install fastapi uvicorn python-multipart; curl -F file=@cat.jpg localhost:8000/predict
"""

import io
import os
import threading
import warnings

from fastapi import FastAPI, HTTPException, UploadFile
from PIL import Image

import zoo

MAX_BYTES = 20 << 20
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # Pillow knows others that run programs
warnings.simplefilter("error", Image.DecompressionBombWarning)
model = zoo.load(os.environ["MODEL"])  # a run, a checkpoint or an exported file of a classifier
app, one_at_a_time = FastAPI(), threading.Lock()


@app.post("/predict")
def predict(file: UploadFile) -> dict[str, float]:
    """Return the most probable classes of an image with their probabilities."""
    content = file.file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise HTTPException(413, f"more than {MAX_BYTES} bytes")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image, one_at_a_time:
            result = model.predict(image)
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError, zoo.UserError) as error:
        raise HTTPException(400, f"no image: {error}") from None
    return dict(zip(result.labels, map(float, result.probabilities)))

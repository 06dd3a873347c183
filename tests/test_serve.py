"""examples/serve.py: a server on a port, asked over HTTP for images, and for what is none."""

import importlib.util
import io
import threading

import numpy as np
import pytest

from tests.helpers.exported import export
from tests.helpers.paths import ROOT
from zoo import api

for package in ("torch", "fastapi", "uvicorn", "python_multipart", "onnxruntime"):
    pytest.importorskip(package)
REQUESTS = 1000


@pytest.fixture(scope="module")
def served(single_run, tmp_path_factory):
    """(address of a server in this process, its model)"""
    import uvicorn

    path = export(single_run("torch", "resnet50") / "checkpoints/best", tmp_path_factory.mktemp("serve") / "model.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODEL", path)
        spec = importlib.util.spec_from_file_location("serve", ROOT / "examples/serve.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    server = uvicorn.Server(uvicorn.Config(module.app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/predict", api.load(path)
    server.should_exit = True
    thread.join(30)


def encoded(kind="PNG", seed=0, mode="RGB"):
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (40, 48, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize(
    "kind, mode", [("PNG", "RGB"), ("JPEG", "RGB"), ("PNG", "L"), ("PNG", "RGBA"), ("TIFF", "CMYK")]
)
def test_an_image_gets_the_probabilities_of_zoo_predict(served, tmp_path, kind, mode):
    import httpx

    (tmp_path / f"image.{kind.lower()}").write_bytes(encoded(kind, mode=mode))
    expected = served[1].predict(tmp_path / f"image.{kind.lower()}")
    answer = httpx.post(served[0], files={"file": encoded(kind, mode=mode)})
    assert answer.status_code == 200
    assert answer.json() == pytest.approx(dict(zip(expected.labels, expected.probabilities)))


@pytest.mark.slow
def test_odd_requests_are_refused_and_the_server_goes_on(served):
    import httpx

    rng, codes = np.random.default_rng(1), []
    whole = [encoded("PNG"), encoded("JPEG"), encoded("GIF"), encoded("WEBP"), encoded("BMP"), encoded("TIFF")]
    with httpx.Client(timeout=60) as client:
        for number in range(REQUESTS):
            content = bytearray(whole[number % len(whole)])
            if number % 3 == 0:
                content = content[: rng.integers(len(content))]
            elif number % 3 == 1:
                for place in rng.integers(len(content), size=rng.integers(1, 30)):
                    content[place] = rng.integers(256)
            else:
                content = bytearray(rng.bytes(int(rng.integers(300))))
            codes.append(client.post(served[0], files={"file": bytes(content)}).status_code)
        assert set(codes) == {200, 400} and codes.count(400) > REQUESTS / 2
        others = [client.post(served[0]), client.get(served[0]), client.post(served[0], content=b"x")]
        assert [other.status_code for other in others] == [422, 405, 422]
        assert client.post(served[0], files={"file": bytes((20 << 20) + 1)}).status_code == 413
        assert client.post(served[0], files={"file": encoded()}).status_code == 200


def test_many_ask_at_once(served):
    import httpx

    answers = {}
    images = [encoded(seed=seed) for seed in range(4)]

    def ask(number):
        answers[number] = httpx.post(served[0], files={"file": images[number % 4]}, timeout=60).json()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 16 and all(answers[number] == answers[number % 4] for number in range(16))

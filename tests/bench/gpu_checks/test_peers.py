"""A peer is timed in turn with this trainer; what it lacks is one message."""

import json
import sys
import types

import pytest

from zoo.bench.gpu_checks import models, peers


def run(tmp_path, update, *words):
    """Run the program with a peer of its own."""
    module = types.ModuleType("a_peer")
    module.NAME, module.update = "a peer", update
    sys.modules["a_peer"] = module
    options = [*models.tiny(models.MODELS[0], "torch"), "--device", "cpu", "--peer", "a_peer", "--warm-up", "1"]
    path = tmp_path / "values.json"
    code = peers.main([*options, "--passes", "3", "--upstream", str(tmp_path), "--json", str(path), *words])
    return code, json.loads(path.read_text()) if path.exists() else None


@pytest.mark.slow
@pytest.mark.parametrize("amp", [False, True])
def test_both_are_timed_on_the_same_batch(tmp_path, amp):
    torch = pytest.importorskip("torch")
    seen = []

    def update(clones, job, batch):
        assert clones == str(tmp_path) and len(batch["label"]) == 4
        return lambda: seen.append(torch.ones(2, 2) @ torch.ones(2, 2))

    code, values = run(tmp_path, update, *(["--amp"] if amp else []))
    assert code == 0 and len(seen) == 4  # one of them does not count
    assert {tensor.dtype for tensor in seen} == {torch.bfloat16 if amp else torch.float32}
    assert values["peer"] == "a peer" and values["ours_ms"] > values["peer_ms"] > 0 and values["ratio"] > 1
    assert values["batch"] == 4 and values["compute"] == ("bf16" if amp else "fp32")


@pytest.mark.slow
def test_what_is_missing_is_one_message(tmp_path, capsys):
    pytest.importorskip("torch")
    from zoo.bench.peers import upstream

    code, values = run(tmp_path, lambda clones, job, batch: upstream.load(f"{clones}/none", "models"))
    assert (code, values) == (2, None) and "no such folder" in capsys.readouterr().err

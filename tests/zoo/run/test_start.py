"""What the start of a run says of the processor."""

import zoo
from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo.trainer import device
from zoo.trainer.torch import cpu_layers


def test_a_processor_without_bf16_instructions(tmp_path, monkeypatch, capfd):
    """bf16 is computed by rounding, and the start says that it takes longer."""
    flags, emulated = "avx2 fma avx512f avx512bw avx512vl avx512dq", []
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n\n")
    monkeypatch.setattr(device, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(cpu_layers, "emulate_bf16", lambda _, has_bf16: emulated.append(has_bf16))
    settings = {**api_cases.RUN, "data.root": str(tmp_path / "shapes"), "train.precision": "bf16"}
    zoo.Run(ROOT / "configs/resnet50_demo.yaml", settings, max_steps=1, out=tmp_path / "run").train()
    assert "train.precision: bf16 takes longer than fp32 on this processor" in capfd.readouterr().out
    assert emulated == [False]

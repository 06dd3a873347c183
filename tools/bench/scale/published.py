"""Throughput of five published reports by hosts and cards, in samples per second over all cards."""

from typing import NamedTuple


class Table(NamedTuple):
    """A table of throughput on hosts of 8 cards.

    Attributes:
        name: model, framework and precision.
        origin: the report.
        batch: samples per card.
        megabytes: of the gradients, 4 bytes per parameter that all cards have.
        synchronized: whether batch norms are synchronized over all cards.
        rows: cards -> samples per second.
    """

    name: str
    origin: str
    batch: int
    megabytes: float
    synchronized: bool
    rows: dict[int, float]

    def seconds(self, cards: int) -> float:
        """Return the time of an update."""
        return cards * self.batch / self.rows[cards]


DLPERF = "Oneflow-Inc/DLPerf, V100-SXM2-16GB, InfiniBand"
REPORTS = (
    Table(
        "TSM Paddle amp",
        "AI-Rank, TSM in Paddle, V100-SXM2-32GB",
        16,
        97.3,
        False,
        {1: 80.222, 8: 549.176, 32: 2042.24},
    ),
    Table(
        "DeepLabV3+ PyTorch fp32",
        "AI-Rank, mmsegmentation in the NGC container, DGX-1 V100 32GB",
        2,  # samples_per_gpu of its log list; the fp16 table has 4
        174.4,
        True,
        {1: 4.073, 8: 29.74, 16: 49.23, 32: 81.01},
    ),
    Table(
        "DeepLabV3+ PyTorch fp16",
        "AI-Rank, mmsegmentation in the NGC container, DGX-1 V100 32GB",
        4,
        174.4,
        True,
        {1: 8.33, 8: 58.2, 16: 103.2, 32: 182.07},
    ),
    Table(
        "ResNet50 MindSpore fp32",
        DLPERF,
        128,
        102.2,
        False,
        {1: 369.81, 2: 710.68, 4: 1418.66, 8: 2773.82, 16: 5483.22, 32: 10731.78},
    ),
    Table(
        "ResNet50 MindSpore fp16",
        DLPERF,
        256,
        102.2,
        False,
        {1: 1116.0, 2: 2061.08, 4: 4067.95, 8: 6867.34, 16: 12057.38, 32: 24183.95},
    ),
    # Its row of 8 cards, 2545.3, is left out: 16 cards would be faster per update than 8. The published extractor
    # averages batches 0 and 10 of a log to which 8 ranks write.
    Table("ArcFace Paddle fp32", DLPERF, 128, 174.3, False, {1: 397.78, 4: 1539.66, 16: 5953.84, 32: 11084.53}),
)

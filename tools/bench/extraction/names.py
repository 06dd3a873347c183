"""Names of DLPerf's logs: <case>/<model>_b<batch>_<precision>_<run>.log, the case as in 2n8g: 2 nodes of 8 cards."""

import re
from typing import NamedTuple

NAME = re.compile(r"(?:^|/)(\d+)n(\d+)g/([^/_]+)_b(\d+)_([^/_]+)_(\d+)\.log$")


class LogName(NamedTuple):
    """Contents of a log's path.

    Attributes:
        path: as given.
        case: such as 2n8g.
        cards: per node.
        batch: samples per card.
        run: number of the repetition.
    """

    path: str
    case: str
    nodes: int
    cards: int
    model: str
    batch: int
    precision: str
    run: int

    @property
    def ranks(self) -> int:
        """Cards of all nodes."""
        return self.nodes * self.cards

    @property
    def global_batch(self) -> int:
        return self.ranks * self.batch


def parse(path: str) -> LogName | None:
    """Read the path of a log; None if it is not one of DLPerf's."""
    found = NAME.search(path)
    if not found:
        return None
    nodes, cards, model, batch, precision, run = found.groups()
    return LogName(path, f"{nodes}n{cards}g", int(nodes), int(cards), model, int(batch), precision, int(run))

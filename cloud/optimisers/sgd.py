"""The server moves along the mean update as it is (FedAvg), or by a rate of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud.rules.mean import ServerOptimiser

if TYPE_CHECKING:
    from cloud.rules.mean import MeanSettings


class SGD(ServerOptimiser):
    """This optimiser moves every tensor by `server_lr` times its mean update."""

    name = "sgd"
    citation = "FedAvg: McMahan et al. 2017"
    keeps = False

    def begin(self, settings: MeanSettings) -> None:
        """Return nothing: it keeps nothing."""

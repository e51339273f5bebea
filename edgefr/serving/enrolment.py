"""The roll of a served run says which users may take part: they get codes, and their keys are revoked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edgefr.serving.keys import Keys
from edgefr.serving.server import own_certificate, pin_of
from edgefr.simulation.runs.device_users import users_by_class
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from edgefr.simulation.runs.served_tensors import published
from privacy.errors import unknown

NAMED = 5
"""Users of a class that are named; of more their number is said."""


class Roll:
    """These are the users of a run, and their keys."""

    def __init__(self, folder: Path) -> None:
        self.run = Run.open(folder)
        self.saved = open_model(self.run)
        self.names, self.keys = list(self.saved.model.names.users), Keys(self.run.path)
        self.keys.look()

    def _known(self, users: Sequence[str]) -> Sequence[str]:
        for name in sorted(set(users) - set(self.names)):
            raise unknown("user", name, self.names)
        return users

    def revoke(self, users: Sequence[str]) -> None:
        """Revoke users' keys and open codes. Raises `InputError` for a user that the run does not have."""
        for name in self._known(users):
            self.keys.revoke(name)

    def issue(self, users: Sequence[str] | None, days: float, cert: Path | None) -> tuple[list[str], list[str]]:
        """Return a line with a code per user (None: all without a key), and lines about device classes.

        `cert`: the server's certificate, if it is not the one made for the run.
        """
        asked = self._known(users or [name for name in self.names if name not in self.keys.keys])
        pin = pin_of(own_certificate(self.run.path)[0] if cert is None else cert)
        codes = [f"{name} {code}.{pin}" for name, code in self.keys.issue(asked, days).items()]
        found = users_by_class(self.run, self.saved).items()
        classes = {self.names[user]: kind for kind, those in found for user in those.tolist()}
        return codes, list(told(asked, classes, published(self.run)))


def told(users: Sequence[str], classes: Mapping[str, str], bundles: Path) -> Iterator[str]:
    """Return a line per class of device of these users, and which users have no bundle to fetch."""
    for kind in sorted({classes.get(user, "") for user in users}):
        own = [user for user in users if classes.get(user, "") == kind]
        whose = ", ".join(own) if len(own) <= NAMED else f"{', '.join(own[:NAMED])} and {len(own) - NAMED} more"
        if not kind:
            yield f"no device: {whose}; they learned nothing in this run, so no server lets them take part"
        elif (bundles / kind).is_dir():
            yield f"{kind}: {whose}"
        else:
            yield f"{kind}, which has no bundle in {bundles}, so a server has none to hand out: {whose}"

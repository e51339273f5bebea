"""A user leaves: a server's data of the person is deleted, and what remains is reported.

The key is refused first and the name goes last, so that an interrupted call can be repeated. The ledger continues under
the client's number, which no longer leads to a name. Releases cannot be taken back, so their epsilon still counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from edgefr.serving.keys import Keys
from edgefr.serving.log import FILE as LOG
from edgefr.serving.log import without
from edgefr.serving.releases import Answers
from edgefr.simulation.runs.layout import CHECKPOINT, PRIVATE
from edgefr.simulation.runs.lineage import Lineage
from edgefr.simulation.runs.run import Run
from export.folder import USERS
from privacy.errors import InputError, unknown
from privacy.files import write_atomic, write_json


@dataclass(frozen=True)
class ForgetResult:
    """This is the result of forgetting: the remaining pseudonym, and the served rounds of the client.

    `bundles`: folders of the run that hold bundles with this user. `unlearned`: the run that was trained anew without
    the user (None: none was).
    """

    pseudonym: str
    rounds: int
    bundles: tuple[str, ...] = ()
    unlearned: Path | None = None

    @property
    def kept(self) -> list[str]:
        """Return a line for each thing that is kept or cannot be taken back."""
        back, anew = "training takes nothing back", "train anew without them (--unlearn) to be rid of it"
        if self.unlearned is not None:
            back = f"have devices take bundles of {self.unlearned}"
            anew = f"delete the run, for which {self.unlearned} stands in"
        return [
            f"what {self.rounds} served rounds learned of them is in the server's tensors, and on all devices that "
            f"have these: {back}",
            f"the ledger counts on under {self.pseudonym}: what was released stays released, and an epsilon that "
            "forgot it would promise too much",
            f"the run's own checkpoint has what simulation made of the data set: {anew}; copies of the run, of its "
            "data and of bundles with users are elsewhere, and the data set's own file has their rows",
            *(
                f"{bundle} is a bundle with users, and has them: delete it, or export it anew"
                for bundle in self.bundles
            ),
        ]


def pseudonym_of(client: int) -> str:
    """Return the name that stands for a client who has left."""
    return f"forgotten-{client}"


def forget(run: Run, user: str, unlearned: Path | None = None) -> ForgetResult:
    """Delete a run's data of a user: keys, codes, releases on the disk, rows of metrics, lines of the log, the name.

    A running server refuses the key from the next request on. `unlearned`: the run that was trained anew without the
    user, if any. Raises `InputError` for a user who is unknown or
    forgotten.
    """
    names = json.loads((run.path / CHECKPOINT / "names.json").read_text(encoding="utf-8"))
    users: list[str] = names["users"]
    if user not in users:
        raise unknown("user", user, users)
    client = users.index(user)
    keys, pseudonym = Keys(run.path), pseudonym_of(client)
    keys.look()
    if user == pseudonym or pseudonym in users:
        raise InputError(f"{pseudonym} stands for somebody who has left already")
    keys.forget(user, pseudonym)
    Answers(run.path).forget(user)
    _without_rows(run, user)
    without(run.path / LOG, user)
    users[client] = pseudonym
    write_json(run.closed(CHECKPOINT) / "names.json", names, mode=0o600)
    rounds = [(closed or opened).clients for opened, closed in Lineage.of(run.path).rounds]
    asked_in = sum(client in asked for asked in rounds)
    return ForgetResult(pseudonym, asked_in, tuple(_bundles_with(run, user)), unlearned)


def _bundles_with(run: Run, user: str) -> list[str]:
    """Return the folders of bundles in a run's folder that have a user's vector, history and name."""
    forms = {json.dumps(user, ensure_ascii=ascii_).encode() for ascii_ in (True, False)}
    found = [path for path in run.path.rglob(USERS) if any(form in path.read_bytes() for form in forms)]
    return sorted(path.parents[1].relative_to(run.path).as_posix() for path in found)


def _without_rows(run: Run, user: str) -> None:
    """Take a user's rows out of the metrics of single users."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = run.path / PRIVATE / "users.parquet"
    if not path.exists():
        return
    table = pq.read_table(path)
    left = table.filter(pc.not_equal(table["user"], user))
    if len(left) < len(table):
        write_atomic(path, lambda file: pq.write_table(left, file), mode=0o600)

"""The demo serves a run on this host with a page, in which every tab of a browser is a device of one of its users."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edge.connection import CONFLICT
from edgefr.config.packaged_files import shipped
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import load_fleet
from edgefr.fleet.policies import POLICIES
from edgefr.serving.bodies import bound
from edgefr.serving.broker import RoundBroker
from edgefr.serving.forget import pseudonym_of
from edgefr.serving.keys import Keys
from edgefr.serving.serve import Served, by_http, origins_of, serve
from edgefr.serving.server import Access
from edgefr.serving.site import Site
from edgefr.simulation.runs.run import Run
from edgefr.simulation.simulate import resume, simulate
from privacy.errors import InputError
from privacy.progress import Progress

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = Path(__file__).parents[1] / "page"
BUILD = "npm ci --ignore-scripts --prefix edge-js && npm run page --prefix edge-js"
CLASS = "laptop_x86"
SETTINGS = (
    "method=transfr",
    "rounds=0",
    "encoder.kind=tfidf",
    "data_options.users=24",
    "data_options.items=240",
    f"fleet.share={{{CLASS}: 1.0}}",
    "clients_per_round=1.0",
    "model.adapter=[16]",
    "model.head=[16]",
    "privacy.mechanism=gaussian",
    "privacy.trust=local",
    "privacy.clip=0.1",
    "privacy.sigma=6",
)
"""Titles and texts that were generated, a model of 4,112 shared numbers, and noise that devices draw themselves."""
HANDED_S = 30.0
"""For which a user is kept for the tab that was given the code, until its key is there."""


@dataclass
class People:
    """These are the users of a run, by client, that tabs may be: each POST is given the next without a device."""

    keys: Keys
    users: Mapping[int, str]
    handed: dict[str, float] = field(default_factory=dict)

    async def next(self, request: Request) -> Response:
        """Answer with a user's name and a one-time code."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse, PlainTextResponse

        bound(request, 0)
        user = self._free(time.monotonic())
        if user is None:
            line = f"all {len(self.users)} people of this run have a device; delete the state of a tab"
            revoked = f"and take its key away: edgefr enrol {self.keys.run} --user USER --revoke"
            return PlainTextResponse(f"{line}, {revoked}\n", CONFLICT)
        codes = await run_in_threadpool(self.keys.issue, [user])
        return JSONResponse({"user": user, "code": codes[user]})

    def _free(self, now: float) -> str | None:
        self.keys.look()
        left, keys = self.keys.forgotten, self.keys.keys
        users = [u for client, u in self.users.items() if u not in keys and not left & {u, pseudonym_of(client)}]
        user = next((u for u in users if now - self.handed.get(u, -HANDED_S) >= HANDED_S), None)
        if user is not None:
            self.handed[user] = now
        return user


def page() -> Path:
    """Return the folder of the page. Raises `InputError` where it is not built."""
    if not (PAGE / "index.html").is_file():
        raise InputError(f"the page of the demo is not built in this installation; in the sources run: {BUILD}")
    return PAGE


def begun(folder: Path, progress: Progress | None = None) -> Run:
    """Return the run of the demo in a folder, which is made where there is none."""
    if (folder / "summary.json").is_file():
        return Run.open(folder)
    if (folder / "experiment.yaml").is_file():
        return resume(folder, page=False, progress=progress)
    experiment = load_experiment(overrides=list(SETTINGS))
    return simulate(experiment, shipped(Path("devices.yaml")), out=folder, page=False, progress=progress)


def check_everybody(run: Run, users: int) -> None:
    """Refuse, by `InputError`, a run whose rounds ask only some of its users: one without a tab would never answer."""
    rounds = load_fleet(run.path / "devices.yaml").rounds
    if run.experiment.cohort_size(users) < users or not POLICIES[rounds.policy].waits:
        mend = "make one with clients_per_round=1.0 and fleet.rounds.policy=deadline, or let edgefr demo make its own"
        raise InputError(f"rounds of {run.path} ask only some of the users, who may have no tab; {mend}")


def demo(
    run: Run,
    rounds: int,
    *,
    port: int = 0,
    timeout_s: float = 8.0,
    ready: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> Served:
    """Serve rounds of a run with the page; from its first answer on a round waits `timeout_s` for those of all users.

    One answer publishes a round: the device's own noise is then the only protection.

    Raises `InputError` where the page is not built, and as `serve`.
    """
    site_folder, origins = page(), origins_of(run, None)
    check_everybody(run, len(origins.users))
    people = People(Keys(run.path), dict(sorted(origins.users.items())))
    site = Site(site_folder, {"/people": people.next})
    carried = by_http(Access(port=port), run, origins, rounds, site.over)

    def patient(broker: RoundBroker, keys: Keys) -> AbstractContextManager[str]:
        broker.from_first = True
        return carried(broker, keys)

    options = {"timeout_s": timeout_s, "min_answers": 1, "ready": ready, "progress": progress}
    return serve(run, None, rounds, transport=patient, **options)  # type: ignore[arg-type]

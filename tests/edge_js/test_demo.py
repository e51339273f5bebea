"""The page of `edgefr demo`: people use it in Chromium, and other sites' pages can ask it for nothing."""

from __future__ import annotations

import http.client
import json
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import edgefr
from edgefr.fleet import load_fleet
from edgefr.serving import demo
from edgefr.serving.forget import forget
from edgefr.serving.keys import Keys
from edgefr.serving.serve import origins_of
from edgefr.simulation.runs.folder import RunFolder
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from tests.cli.commands import ROOT, hear_interrupts
from tests.edge_js.conftest import CHROMIUM, npm
from tests.remote.worlds import FEDMF, experiment_of

pytestmark = pytest.mark.xdist_group("edge_js_people")
NOISED = {"privacy.mechanism": "gaussian", "privacy.norm": "l2", "privacy.sigma": 6.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that is begun, whose devices draw noise."""
    experiment = experiment_of(FEDMF | NOISED, 0)
    return edgefr.simulate(experiment, ROOT / "devices.yaml", out=tmp_path_factory.mktemp("demo") / "run", page=False)


@contextmanager
def open_page(run: Run, folder: Path) -> Iterator[str]:
    """The address of the demo of a copy of a run, of a round that nobody ends; it dies with the tests."""
    yield served_here(Run(shutil.copytree(run.path, folder / "run")))


def served_here(run: Run, port: int = 0) -> str:
    """The address of the demo of a run in this process, with which it ends."""
    urls = queue.Queue[str]()

    def serve() -> None:
        demo.demo(run, 1, port=port, timeout_s=1000.0, ready=urls.put)

    threading.Thread(target=serve, daemon=True).start()
    return urls.get(timeout=200)


def ask(url: str, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    return answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read().decode()


def test_pages_of_other_sites_are_given_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("here")
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setattr(demo, "PAGE", page)
    with open_page(run, tmp_path) as url:
        host = urlsplit(url).netloc
        status, headers, body = ask(url, "GET", "/")
        assert (status, body) == (200, "here")
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        for asked in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
            assert ask(url, "GET", "/", **asked)[0] == 403
            assert ask(url, "POST", "/people", **{"Sec_Fetch_Site": "same-origin", **asked})[0] == 403
        assert ask(url, "POST", "/people")[0] == 403
        assert ask(url, "GET", "/people")[0] == 405
        assert ask(url, "PUT", "/")[0] == 405
        for path in ("/../secret", "/%2e%2e/secret", "//secret", "/index.html/../../secret", "/private/keys.jsonl"):
            status, _, body = ask(url, "GET", path)
            assert (status, "secret" in body) == (404, False)
        for method, path in (("OPTIONS", "/task?after=0"), ("GET", "/task?after=0"), ("GET", "/"), ("POST", "/people")):
            assert not [n for n in ask(url, method, path, Origin=f"http://{host}")[1] if n.startswith("access-control")]
        for path in ("/metrics", "/openapi.json", "/task?after=0"):  # a name that an attacker points to this host
            assert ask(url, "GET", path, Host="evil.example")[0] == 403
        (page / "index.html").unlink()
        status, _, body = ask(url, "GET", "/")
        assert (status, body.count("\n")) == (503, 1)
        own = {"Sec_Fetch_Site": "same-origin", "Origin": f"http://{host}"}
        assert ask(url, "POST", "/people", **own, Transfer_Encoding="chunked")[0] == 411
        assert ask(url, "POST", "/people", **own, Content_Length="900000000")[0] == 413
        given = [json.loads(ask(url, "POST", "/people", **own)[2]) for _ in range(2)]
        assert given[0]["user"] != given[1]["user"]
        for _ in range(4):
            ask(url, "POST", "/people", **own)
        status, _, body = ask(url, "POST", "/people", **own)
        assert (status, body[:17]) == (409, "all 6 people of t")


def test_nobody_is_given_the_place_of_a_person_who_left(run: Run, tmp_path: Path) -> None:
    copy = Run(shutil.copytree(run.path, tmp_path / "run"))
    people = demo.People(Keys(copy.path), origins_of(copy, None).users)
    first = run_users(people)[0]
    forget(copy, first)
    for known in (people, demo.People(Keys(copy.path), origins_of(copy, None).users)):  # while it runs, and later
        given = {known._free(0.0) for _ in range(len(known.users))}
        assert given == {*run_users(known)[1:], None}


def run_users(people: demo.People) -> list[str]:
    return [people.users[client] for client in sorted(people.users)]


def test_a_run_that_broke_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiment.yaml").write_text("")
    monkeypatch.setattr(demo, "resume", lambda folder, **_: folder)
    assert demo.begun(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("clients", "policy", "refused"),
    [
        (0.5, "deadline", True),
        (5, "deadline", True),
        (1.0, "async", True),
        (1.0, "deadline", False),
        (24, "deadline", False),
    ],
)
def test_a_run_whose_rounds_ask_some_alone_is_refused(
    clients: float, policy: str, refused: bool, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_experiment(experiment_of(FEDMF | NOISED | {"clients_per_round": clients}, 0))
    folder.write_devices(load_fleet(ROOT / "devices.yaml", {"rounds": {"policy": policy}}))
    said = pytest.raises(InputError, match=r"ask only some of the users.*clients_per_round=1\.0")
    with said if refused else nullcontext():
        demo.check_everybody(Run(tmp_path / "run"), 24)


def test_the_demo_asks_whether_everybody_is_asked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copytree(run.path, tmp_path / "run"))
    named = copy / "experiment.yaml"
    named.write_text(re.sub(r"(?m)^clients_per_round: .*$", "clients_per_round: 2", named.read_text()))
    monkeypatch.setattr(demo, "page", lambda: tmp_path)
    with pytest.raises(InputError, match="ask only some of the users"):
        demo.demo(Run(copy), 1)


def test_a_demo_without_its_page_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PAGE", tmp_path)
    with pytest.raises(InputError, match="npm run page --prefix edge-js"):
        demo.page()


@pytest.fixture(scope="module")
def paged(built: Path) -> Path:
    """The folder of what is built, the page of the package too."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    made = npm("run", "page")
    assert made.returncode == 0, made.stderr[-2000:]
    return built


@contextmanager
def command(run: Path, port: int) -> Iterator[str]:
    """The address of `edgefr demo` as a process, which ends as by Ctrl+C."""
    options = ["--port", str(port), "--rounds", "5", "--timeout", "1000", "--no-browser"]
    line = [sys.executable, "-m", "edgefr", "demo", str(run), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(line, **pipes, preexec_fn=hear_interrupts) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        try:
            assert "in a browser" in process.stdout.readline()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            finally:
                process.kill()


def test_a_tab_learns_without_its_server_and_waits_for_it(paged: Path, run: Run, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run.path, tmp_path / "run"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with command(copy, port) as url:
        tab = subprocess.Popen(["node", paged / "offline.js", url], **pipes)  # type: ignore[call-overload]
        there = json.loads(tab.stdout.readline())
    with tab:
        tab.stdin.write("\n")
        tab.stdin.flush()
        away = json.loads(tab.stdout.readline())
        served_here(Run(copy), port)
        back = json.loads(tab.communicate("\n", 200)[0])
    assert tab.returncode == 0
    assert there["installabilityErrors"] == there["errors"] == []
    assert there["manifest"].endswith("/manifest.webmanifest")
    assert {"/", "/index.js", "/worker.js", "/ort/ort-wasm-simd-threaded.wasm"} <= set(there["stored"])
    assert not {"/sw.js", "/people", "/task"} & set(there["stored"])
    assert away["same"] == away["before"]
    assert len(away["same"]["list"]) == 6
    assert away["learned"].startswith("Learned here from 2 likes")
    assert away["somebodyNew"].startswith("the server is not reached, and a new person needs it once")
    assert away["sent"] == "0"
    assert back["liked"].endswith("2 liked")


def test_a_wheel_takes_the_page_along() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert demo.PAGE.relative_to(ROOT).as_posix() in wheel["artifacts"]  # which git ignores
    assert "edgefr" in wheel["packages"]


def test_people_like_learn_take_part_and_leave(paged: Path, run: Run, tmp_path: Path) -> None:
    with open_page(run, tmp_path) as url:
        done = subprocess.run(["node", paged / "demo.js", url], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert found["first"]["scrolls"] == 390
    assert re.match(r"the bundle's tensors take [\d.]+ MB, more than maxTensorMb 0\.0001", found["limited"])
    assert found["first"]["list"] == []  # this bundle has no list for new people
    assert len(found["liked"]["list"]) == 6
    assert re.search("which you liked|Nothing you liked is near it", found["liked"]["why"])
    assert "bytes: 640 numbers" in found["liked"]["size"]
    assert all("640 numbers, length" in one for one in found["pictures"])
    assert len(found["pictures"]) == 3
    assert len({found["first"]["who"], found["second"], found["anew"]}) == 3
    assert found["again"] == {"who": found["first"]["who"], "spent": found["spent"]}

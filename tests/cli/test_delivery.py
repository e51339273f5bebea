"""From the shell: a publisher hands over to other keys, and a device goes on under a newer bundle and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from edge.device import Device
from tests.cli.commands import refused
from tests.cli.conftest import Cli
from tests.contract import bundles
from tests.devices import policy_file
from tests.edge.folders import resign


def test_keys_are_handed_over_and_a_revoked_one_is_refused(cli: Cli, tmp_path: Path) -> None:
    bundle, state, file = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "b"), tmp_path / "s", tmp_path / "k.json"
    for name in ("one", "two"):
        assert cli("bundle", "keygen", "--out", tmp_path / name)[0] == 0
    one, two = tmp_path / "one", tmp_path / "two"
    assert cli("bundle", "sign", bundle, "--key", one / "private.pem")[0] == 0
    Device(bundle, state)
    assert "nothing to do; give --key for a new set" in refused(*cli("bundle", "keys", file))
    made = cli("bundle", "keys", file, "--key", two / "public.pem", "--sign", two / "private.pem")
    assert (made[0], "set 1, whose next is signed by 1 of its keys: 1 in all" in made[1]) == (0, True)
    assert "no set of keys is signed by a key that this device trusts" in refused(
        *cli("device", "trust", file, "--state", state)
    )
    signed = cli("bundle", "keys", file, "--sign", one / "private.pem")
    assert "set 1 is signed by 1 of 1 of its own" in signed[1]
    trusted = cli("device", "trust", file, "--state", state)
    assert (trusted[0], trusted[1].startswith("trusted: set 1, with the keys ")) == (0, True)
    words = refused(*cli("device", "status", bundle, "--state", state))
    assert "is not among its publisher's keys (set 1): it is revoked, or another's; get the bundle again" in words
    assert cli("bundle", "sign", bundle, "--key", two / "private.pem")[0] == 0
    code, said, _ = cli("device", "status", bundle, "--state", state)
    assert (code, "publisher" in said, "expires" in said) == (0, True, True)


def test_a_device_goes_on_under_a_newer_bundle_and_back(cli: Cli, tmp_path: Path) -> None:
    old, state = bundles.bundle("fedmf"), tmp_path / "s"
    new = shutil.copytree(old, tmp_path / "new")
    resign(new, lambda record: record.update(serial=record["serial"] + 1))
    assert "holds no state yet" in refused(*cli("device", "update", old, "--to", new, "--state", state))
    learned = cli("device", "learn", old, "--state", state, "--item", "i3", "--policy", policy_file(tmp_path))
    assert learned[0] == 0, learned[2]
    for wrong in ([], ["--to", new, "--undo"]):
        assert "give --to with the newer bundle, or --undo" in refused(
            *cli("device", "update", old, "--state", state, *wrong)
        )
    code, said, _ = cli("device", "update", old, "--to", new, "--state", state)
    assert (code, "goes on under" in said, "interactions kept: 1" in said) == (0, True, True)
    assert "is the state of bundle" in refused(*cli("device", "status", old, "--state", state))
    code, said, _ = cli("device", "update", new, "--undo", "--state", state)
    assert (code, "is as it was before" in said) == (0, True)
    assert cli("device", "status", old, "--state", state)[0] == 0
    assert cli("device", "update", old, "--to", new, "--state", state)[0] == 0
    assert cli("device", "learn", new, "--state", state, "--item", "i4")[0] == 0
    assert "is older than one before it" in refused(*cli("device", "status", old, "--state", state))
    assert json.loads((state / "seen.json").read_bytes())["serial"] == 1795255201

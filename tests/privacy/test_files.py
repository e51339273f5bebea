import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from privacy.errors import InputError, unknown
from privacy.files import packed, sha256_of, write_atomic, write_json


@pytest.mark.parametrize("content", [b"abc\n", "abc\n", lambda file: file.write(b"abc\n")])
def test_writes_bytes_text_or_what_a_function_writes(tmp_path, content):
    path = write_atomic(tmp_path / "new" / "folder" / "file", content)
    assert path.read_bytes() == b"abc\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_the_folder_is_flushed_after_the_rename(tmp_path, monkeypatch):
    """Else a power cut may bring the old name back: a device would release the same round a second time."""
    flushed, fsync = [], os.fsync

    def noted(handle):
        flushed.append((os.path.isdir(f"/dev/fd/{handle}"), (tmp_path / "file").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    write_atomic(tmp_path / "file", "new")
    assert flushed == [(False, False), (True, True)], "(is it the folder, is the file in place)"


def kept(folder):
    """The old content is there, and nothing beside it."""
    assert [entry.name for entry in folder.iterdir()] == ["file"]
    return (folder / "file").read_text() == "old"


def test_a_write_the_system_cuts_short_keeps_the_old_file(tmp_path):
    """A real failing write, without being root: the process may not make files above 64 KiB."""
    (tmp_path / "file").write_text("old")
    code = (
        "import resource, signal, sys\n"
        "from privacy.files import write_atomic\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "write_atomic(sys.argv[1], b'x' * 200_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "InputError: cannot write" in done.stderr
    assert "File too large; nothing was changed" in done.stderr
    assert kept(tmp_path)


def test_a_kill_while_writing_keeps_the_old_file(tmp_path):
    (tmp_path / "file").write_text("old")
    code = (
        "import sys, time\n"
        "from privacy.files import write_atomic\n"
        "def slow(file):\n"
        "    file.write(b'half')\n"
        "    file.flush()\n"
        "    print('half', flush=True)\n"
        "    time.sleep(60)\n"
        "write_atomic(sys.argv[1], slow)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / "file").read_text() == "old"
    assert write_atomic(tmp_path / "file", "new").read_text() == "new"


def test_readers_see_the_old_or_the_new_file_while_it_is_written(tmp_path):
    path = write_atomic(tmp_path / "file", "0" * 100_000)
    code = (
        "import sys\n"
        "from privacy.files import write_atomic\n"
        "print('go', flush=True)\n"
        "for i in range(200): write_atomic(sys.argv[1], str(i % 10) * 100_000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen = set()
        while process.poll() is None:
            text = path.read_text()
            assert len(text) == 100_000
            assert text == text[0] * 100_000
            seen.add(text[0])
            time.sleep(0.001)
    assert len(seen) > 1


def test_a_failing_writer_keeps_the_old_file_and_its_own_error(tmp_path):
    (tmp_path / "file").write_text("old")

    def broken(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "file", broken)
    assert kept(tmp_path)


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(InputError, match="cannot write"):
        write_atomic(tmp_path / "file" / "below", "new")
    assert kept(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_atomic(tmp_path / "folder", "new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def test_json_keeps_order_and_refuses_nan(tmp_path):
    path = write_json(tmp_path / "a.json", {"b": 1, "a": [0.1, "é"]})
    assert list(json.loads(path.read_text())) == ["b", "a"]
    assert "é" in path.read_text()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"b": float("nan")})
    assert json.loads(path.read_text())["b"] == 1


def test_unknown_names_the_nearest():
    assert str(unknown("method", "fedfm", ["transfr", "fedmf"])) == (
        "unknown method 'fedfm'; did you mean 'fedmf'? (known: fedmf, transfr)"
    )
    assert str(unknown("method", "zzz", ["transfr", "fedmf"])) == "unknown method 'zzz' (known: fedmf, transfr)"


def test_arrays_are_packed_as_they_look_not_as_they_lie() -> None:
    from safetensors.numpy import load

    whole = np.arange(12.0).reshape(3, 4)
    views = {"turned": whole.T, "every other": whole[:, ::2], "backwards": whole[::-1], "number": np.array(3.0)}
    for name, found in load(packed(views, {"one": "fact"})).items():
        np.testing.assert_array_equal(found, views[name])
        assert found.shape == views[name].shape


def test_full_disk_on_flush_keeps_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("old")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*file: No space left on device; nothing was changed"):
        write_atomic(tmp_path / "file", "new")
    assert kept(tmp_path)


def test_sha256(tmp_path):
    content = b"x" * 300_000
    assert sha256_of(write_atomic(tmp_path / "a", content)) == hashlib.sha256(content).hexdigest()

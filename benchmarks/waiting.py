"""So many devices wait for a round at once, in a server of their own process: its memory, and when all are told.

    python benchmarks/waiting.py --devices 5000 [--tls]

Each device has a key and a connection of its own, over loopback. Prints the memory of the serving process before and
while they wait, and the seconds from opening a round until the last device has it. Nothing of a model is loaded: the
broker knows a bundle's sizes alone.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import ssl
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge.identity import Identity, IdentityRecord
from edgefr.serving import admission as gate
from edgefr.serving import pages
from edgefr.serving.broker import RoundBroker
from edgefr.serving.keys import Enrolled, Keys
from edgefr.serving.server import Access, Server, own_certificate
from privacy.machine import files_allowed, resident_mb

PATH, BUNDLE = "/task?after=1", "0" * 64
CONTENT = bytes(10_000)


class Sized(RoundBroker):
    """A broker without a bundle: nobody uploads."""

    def __init__(self, users: list[str]):
        release = SimpleNamespace(own_noise=None, clip=None, step=None)
        learning: Any = SimpleNamespace(release=release, tensors=[], trained=lambda *_: [])
        super().__init__(dict.fromkeys(users, BUNDLE), learning, 1)


def serve(run: Path, users: list[str], tls: bool, told: Connection) -> None:
    """Serve until the round is opened, telling memory at each step."""
    pages.POLL_S = 600.0
    files_allowed()
    cert, key = own_certificate(run) if tls else (None, None)
    broker = Sized(users)
    server = Server(broker, Keys(run), Access(cert=cert, key=key))
    server.gate.keys.look()
    server.start()
    told.send((server.server_address[1], server.gate.session, resident_mb()))
    told.recv()  # all of them wait
    told.send(resident_mb())
    told.recv()
    broker.open(2, {BUNDLE: CONTENT}, users)
    told.recv()
    told.send(resident_mb())
    server.stop()


async def wait(identities: list[Identity], port: int, session: str, tls: bool, told: Connection) -> None:
    """Open a connection per device, ask, and read the answers when the round opens."""
    context = ssl.create_default_context() if tls else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    few = asyncio.Semaphore(100)

    async def one(identity: Identity) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with few:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        signed = identity.signed("GET", PATH, b"", session, time.time_ns(), int(time.time()))
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {signed.header}\r\n\r\n".encode())
        await writer.drain()
        return reader, writer

    began = time.perf_counter()
    held = await asyncio.gather(*(one(identity) for identity in identities))
    await asyncio.sleep(3.0)
    told.send("all wait")
    print(f"  {len(held):,} waiting after {time.perf_counter() - began - 3:.1f} s: {told.recv():.0f} MB")
    began = time.perf_counter()
    told.send("open")
    answers = await asyncio.gather(*(reader.readuntil(b"\r\n\r\n") for reader, _ in held))
    took = time.perf_counter() - began
    right = sum(b" 200 OK" in answer and b"edgefr-round: 2" in answer for answer in answers)
    told.send("done")
    print(f"  {right:,} told of the round within {took:.1f} s: {told.recv():.0f} MB")
    for _, writer in held:
        writer.transport.abort()


def main() -> None:
    """Measure once."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--devices", type=int, default=5000)
    asked.add_argument("--tls", action="store_true")
    given = asked.parse_args()
    files_allowed()
    assert gate.CLOCK_S > 60
    with tempfile.TemporaryDirectory() as folder:
        run, users = Path(folder), [f"u{number}" for number in range(given.devices)]
        keys, identities = Keys(run), []
        keys.issue(users)
        for _ in users:
            raw = Ed25519PrivateKey.generate().private_bytes_raw().hex()
            identities.append(Identity(run, IdentityRecord(private=raw)))
        with keys._writing() as append:  # one write for all of them
            pairs = zip(users, identities, strict=True)
            append(*(Enrolled(code=keys.codes[user].code, user=user, key=i.key, at=0) for user, i in pairs))
        here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=serve, args=(run, users, given.tls, there))
        process.start()
        port, session, memory = here.recv()
        print(f"{given.devices:,} devices, TLS {'on' if given.tls else 'off'}; before they come: {memory:.0f} MB")
        asyncio.run(wait(identities, port, session, given.tls, here))
        process.join(30)


if __name__ == "__main__":
    main()

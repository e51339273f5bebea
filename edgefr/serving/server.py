"""The HTTP server of a `RoundBroker` is uvicorn in a thread of its own, over the pages and within limits."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge.connection import LOOPBACK, public_digest
from edge.remote import release_limit
from edgefr.serving.admission import Gate
from edgefr.serving.broker import RoundBroker
from edgefr.serving.delivery import Delivery
from edgefr.serving.keys import Keys
from edgefr.serving.log import Log
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.machine import files_allowed

STOP_S = 5  # for answers that are under way when a server stops
HEADER_BYTES = 1 << 14
BACKLOG = 4096
FILES = 256  # open files that are kept for all but connections
TLS, CERTIFICATE, KEY = "private/tls", "certificate.pem", "key.pem"
YEARS = 20  # devices look at the key alone

Between = Callable[[Any], Any]
"""Takes a server's `Pages`, and returns the application that is served in their place (ASGI)."""


@dataclass(frozen=True)
class Access:
    """This says where a server is open.

    `cert` and `key`: its TLS certificate (PEM), both or neither; a server for other hosts needs them. `client_ca`: the
    authority (PEM) of certificates that devices must show. `connections`: at a time, at most the open files less a
    reserve.

    >>> Access().host
    '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int = 0
    cert: Path | None = None
    key: Path | None = None
    connections: int = 20_000
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InputError("TLS needs a certificate and its key: give both --tls-cert and --tls-key")

    @property
    def needs_tls(self) -> bool:
        """Say whether TLS is needed: for other hosts, or devices with certificates."""
        return self.open or self.client_ca is not None

    @property
    def open(self) -> bool:
        return self.host not in LOOPBACK

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None.

        Raises `InputError` for bad files, and for other hosts without TLS.
        """
        if self.cert is None:
            if self.needs_tls:
                what = "devices show certificates to" if self.client_ca is not None else "other hosts reach"
                raise InputError(f"{what} {self.host}: give a certificate and its key as well")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot use {self.cert} and {self.key} for TLS: {error}") from error
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise InputError(f"{self.client_ca} is no authority's certificate in PEM: {error}") from error
        return context


class Server:
    """This is a server in a thread of its own, from `start` to `stop`; it sends `delivery` and writes to `log`."""

    def __init__(
        self,
        broker: RoundBroker,
        keys: Keys,
        access: Access,
        delivery: Delivery | None = None,
        log: Log | None = None,
        between: Between | None = None,
    ):
        try:
            import uvicorn

            from edgefr.serving.connections import Guarded, Uvicorn
            from edgefr.serving.pages import Pages
        except ImportError as error:
            raise InputError(f"serving needs {error.name}; install it with: pip install 'edgefr[serve]'") from error
        self.broker, self.gate, self.access, self.tls = broker, Gate(keys), access, access.context()
        self.pages = Pages(broker, self.gate, release_limit(broker.learning), delivery or Delivery(), log or Log())
        self.socket = _bound(access)
        self.server_address = self.socket.getsockname()
        config = uvicorn.Config(
            self.pages.app() if between is None else between(self.pages),
            http=Guarded,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            headers=[("connection", "close")],
            backlog=BACKLOG,
            h11_max_incomplete_event_size=HEADER_BYTES,
            timeout_graceful_shutdown=STOP_S,
        )
        config.load()
        config.ssl = self.tls
        self.uvicorn = Uvicorn(config, self.pages, room(access.connections, files_allowed()))
        self.thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [self.socket]}, daemon=True)

    @property
    def url(self) -> str:
        """Return where it is reached."""
        host = f"[{self.access.host}]" if ":" in self.access.host else self.access.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.server_address[1]}"

    def start(self) -> None:
        """Listen, and tell the pages whenever the broker has something new."""
        self.broker.heard = self.pages.wake
        self.thread.start()
        while not self.uvicorn.started and self.thread.is_alive():
            time.sleep(0.005)

    def stop(self) -> None:
        """Answer waiting requests, finish running answers, and end."""
        self.uvicorn.should_exit = True
        self.thread.join()
        self.socket.close()
        self.pages.close()


def room(wanted: int, files: int | None) -> int:
    """Return how many connections fit into the process's limit of open files (None: no limit).

    >>> room(20_000, 1024)
    768
    """
    return wanted if files is None else min(wanted, max(files - FILES, files // 2))


def _bound(access: Access) -> socket.socket:
    """Return a socket on the server's address, which can be reused at once. Raises `OSError`."""
    made = socket.socket(socket.AF_INET6 if ":" in access.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((access.host, access.port))
    except OSError:
        made.close()
        raise
    return made


@contextmanager
def listening(
    broker: RoundBroker,
    keys: Keys,
    access: Access,
    delivery: Delivery | None = None,
    log: Log | None = None,
    between: Between | None = None,
) -> Iterator[Server]:
    """Yield a running server; arguments as those of `Server`. Raises `InputError` for an unusable address."""
    try:
        server = Server(broker, keys, access, delivery, log, between)
    except OSError as error:
        raise InputError(f"cannot listen on {access.host} port {access.port}: {error.strerror or error}") from error
    server.start()
    try:
        yield server
    finally:
        server.stop()


def guarded(access: Access, run: Path) -> Access:
    """Return a server's access, with the run's own certificate where TLS needs one and none was given."""
    if not access.needs_tls or access.cert is not None:
        return access
    cert, key = own_certificate(run)
    return replace(access, cert=cert, key=key)


def own_certificate(run: Path) -> tuple[Path, Path]:
    """Return the files of a run's own certificate, which signs itself, and key; they are made at the first call.

    The digest of its public key is in every one-time code, and a device that enrolled by one talks to its holder alone.
    """
    certificate, key = run / TLS / CERTIFICATE, run / TLS / KEY
    if not certificate.exists():
        (run / TLS).mkdir(mode=0o700, parents=True, exist_ok=True)
        made, secret = _made()
        write_atomic(key, secret, mode=0o600)
        write_atomic(certificate, made)
    return certificate, key


def pin_of(certificate: Path) -> str:
    """Return the digest of a certificate's public key. Raises `InputError` for a file that is no certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{certificate} is not a certificate in PEM: {error}") from error
    digest = public_digest(found.public_bytes(Encoding.DER))
    assert digest is not None
    return digest


def _made() -> tuple[bytes, bytes]:
    """Return a certificate that signs itself, and its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edgefr")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), secret

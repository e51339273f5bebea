"""A server without another certificate makes one, once for a run, which it signs itself.

RUN/private/tls has it and its key. The digest of its public key is in every one-time code of `edgefr enrol`, and a
device that enrolled by such a code talks to the holder of that key alone.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from edge.connection import public_digest
from privacy.errors import InputError
from privacy.files import write_atomic

FOLDER, CERTIFICATE, KEY = "private/tls", "certificate.pem", "key.pem"
YEARS = 20  # devices look at the key alone


def own(run: Path) -> tuple[Path, Path]:
    """Return the files of a run's own certificate and key, which are made at the first call."""
    certificate, key = run / FOLDER / CERTIFICATE, run / FOLDER / KEY
    if not certificate.exists():
        (run / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
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

"""Makes the certificate of a Dask cluster, once: `python make_certificates.py FOLDER`.

Scheduler, workers and clients have the same one, which is also the authority that they trust.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

CERTIFICATE, KEY = "cluster.pem", "cluster.key"
VALID = timedelta(days=3650)


def make(folder: Path) -> None:
    """Write certificate and key, unless they are there."""
    if (folder / CERTIFICATE).exists():
        return
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "costada-cluster")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / KEY).write_bytes(secret)
    part = folder / f"{CERTIFICATE}.part"
    part.write_bytes(certificate.public_bytes(Encoding.PEM))
    part.rename(folder / CERTIFICATE)  # last: who finds it finds the key


make(Path(sys.argv[1]))

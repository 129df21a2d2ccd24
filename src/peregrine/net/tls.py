"""TLS between routers and their clients: which files say who is trusted, and files for a deployment of one's own.

A client learns with the address of a router whom to trust, as with the address of a database:

    127.0.0.1:4711                                          no TLS
    127.0.0.1:4711?ca=/etc/peregrine/ca.pem                 a router whose certificate this CA has signed
    127.0.0.1:4711?ca=...&cert=...&key=...                  and which wants to see a certificate of the client

The token is asked for in any case: a certificate says who the router is, the token that the caller may call.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from peregrine.errors import ConfigurationError

DAYS = 825  # clients on some systems trust no certificate for longer
CA, CERT, KEY = "ca.pem", "cert.pem", "cert.key"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class TlsFiles(NamedTuple):
    """Paths of PEM files: of the CA to trust, and of the own certificate and its key, where there is one."""

    ca: str
    cert: str = ""
    key: str = ""


def with_tls(address: str, files: TlsFiles) -> str:
    """The address of a router, with whom to trust there in place of what it said before."""
    said = {name: path for name, path in files._asdict().items() if path}
    return f"{where(address)}?{urlencode(said, safe='/')}"


def where(address: str) -> str:
    """`host:port` alone."""
    return address.partition("?")[0]


def files_of(address: str) -> TlsFiles | None:
    """None: without TLS."""
    said = dict(parse_qsl(address.partition("?")[2]))
    if not said:
        return None
    if not said.keys() <= set(TlsFiles._fields) or "ca" not in said or ("cert" in said) != ("key" in said):
        raise ConfigurationError(
            f"the address {address!r} does not say whom to trust",
            "write host:port, host:port?ca=FILE, or host:port?ca=FILE&cert=FILE&key=FILE",
        )
    return TlsFiles(**said)


def client_options(address: str) -> tuple[str, dict[str, Any]]:
    """The location for a Flight client, and what it needs besides."""
    files = files_of(address)
    if files is None:
        return f"grpc://{address}", {}
    options: dict[str, Any] = {"tls_root_certs": _read(files.ca)}
    if files.cert:
        options |= {"cert_chain": _read(files.cert), "private_key": _read(files.key)}
    return f"grpc+tls://{where(address)}", options


def server_options(host: str, port: int, files: TlsFiles | None, verify_clients: bool) -> tuple[str, dict[str, Any]]:
    """The location for a Flight server, and what it needs besides."""
    if files is None:
        return f"grpc://{host}:{port}", {}
    options: dict[str, Any] = {"tls_certificates": [(_read(files.cert), _read(files.key))]}
    if verify_clients:
        options |= {"verify_client": True, "root_certificates": _read(files.ca)}
    return f"grpc+tls://{host}:{port}", options


def tls_settings(directory: Path) -> dict[str, str]:
    """For the settings of the routers of a deployment: the files in the directory, made if they are not there yet."""
    files = TlsFiles(*(str(directory / name) for name in (CA, CERT, KEY)))
    if not Path(files.cert).exists():  # the last that is made
        make_tls(directory)
    return {f"tls_{name}": path for name, path in files._asdict().items()}


def make_tls(directory: Path, hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> TlsFiles:
    """A new CA and a certificate that it has signed, for routers at these hosts and their clients.

    Only the owner can read the keys. For a deployment over machines of several owners use certificates of your own.
    """
    if shutil.which("openssl") is None:
        raise ConfigurationError(
            "the program openssl is not there to make certificates with", "install it, or name certificates of your own"
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca, cert, key = (str(directory / name) for name in (CA, CERT, KEY))
    ca_key, request, extensions = (str(directory / name) for name in ("ca.key", "cert.csr", "cert.ext"))
    names = ",".join(f"{'IP' if host.replace('.', '').isdigit() else 'DNS'}:{host}" for host in hosts)
    Path(extensions).write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", ca_key, "-out", ca, "-days", str(DAYS), "-subj", "/CN=Peregrine CA")
    _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", "/CN=Peregrine")
    signed = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", str(DAYS), "-extfile", extensions)
    _openssl("x509", "-req", "-in", request, *signed, "-out", cert)
    for path in (request, extensions, str(directory / "ca.srl")):
        Path(path).unlink(missing_ok=True)
    return TlsFiles(ca, cert, key)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, umask=0o077, check=False
    )
    if done.returncode:
        raise ConfigurationError(
            f"openssl {arguments[0]} failed: {done.stderr.strip()[-300:]}", "name certificates of your own"
        )


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path or 'a file without a name'}: {error.strerror}", "name PEM files that exist (tls_*, ca=)"
        ) from error
    if b"-----BEGIN " not in data:
        raise ConfigurationError(f"{os.fspath(path)} is no PEM file", "convert it, or name another")
    return data

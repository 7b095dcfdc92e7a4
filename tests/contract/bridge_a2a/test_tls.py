"""`https:` agents: a certificate that is trusted, and those that are not."""

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from corral.local.a2a_agent import Options, Server
from corral.local.a2a_tasks import Agent
from corral.local.topology import base_environment
from tests.harness.a2a_peers import sdk_python

# In the SDK's environment, which has a library for certificates. Arguments: folder, name.
MAKE = """
import datetime, ipaddress, pathlib, sys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

folder, host = pathlib.Path(sys.argv[1]), ipaddress.ip_address(sys.argv[2])
key = ec.generate_private_key(ec.SECP256R1())
name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "made up")])
now = datetime.datetime.now(datetime.timezone.utc)
made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
made = made.serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
made = made.not_valid_after(now + datetime.timedelta(days=1))
made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(host)]), False)
made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
cert = made.sign(key, hashes.SHA256())
(folder / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
(folder / "key.pem").write_bytes(key.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
"""
# A process of its own: which issuers are trusted is decided once in a process.
ASK = """
import asyncio, sys
from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.a2a.target import Target
from corral.bridge.ports import Submission

async def main():
    found = HttpAgents({"a": Target("a", sys.argv[1])})
    print(await found.send(Submission("a", "m", "c", None, "echo hi", "@u:x")))
    await found.close()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    agent = Agent(folder / "effects")
    runner = web.AppRunner(Server(agent, Options()).app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()
        agent.close()


async def asked(url: str, trusted: Path | None) -> str:
    trust = {"SSL_CERT_FILE": str(trusted)} if trusted else {}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", ASK, url,
        env=base_environment() | trust, stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return out.decode().strip()


@pytest.mark.parametrize(
    ("host", "trusted", "answer"),
    [
        ("127.0.0.1", True, "Task("),
        ("127.0.0.1", False, "NeverLeft(code='a2a_tls'"),
        ("127.0.0.2", True, "NeverLeft(code='a2a_tls'"),
    ],
    ids=["trusted", "unknown issuer", "another name"],
)
async def test_certificates(tmp_path: Path, host: str, trusted: bool, answer: str) -> None:
    subprocess.run([sdk_python("1"), "-P", "-c", MAKE, tmp_path, host], check=True)
    async with serving(tmp_path) as url:
        found = await asked(url, tmp_path / "cert.pem" if trusted else None)
    assert found.startswith(answer)

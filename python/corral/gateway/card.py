"""The agent card, one document for both versions of the protocol. Pure."""

from typing import Any, Final

from corral import __version__

# A message that comes again under its id is not begun a second time (docs/reference/bridge-a2a.md).
IDEMPOTENT_URI: Final = "urn:corral:a2a:idempotent-message:1"


def card(agent: str, url: str, *, retention_s: int, description: str = "") -> dict[str, Any]:
    """The card of an agent that is spoken to at `url`; message ids are known for `retention_s`."""
    interfaces = [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version}
        for version in ("1.0", "0.3")
    ]
    text = description or f"the agent {agent}"
    extension = {
        "uri": IDEMPOTENT_URI,
        "description": "a message id that comes again has the task that it had",
        "required": False,
        "params": {"retentionSeconds": retention_s},
    }
    return {
        "name": agent,
        "description": text,
        "version": __version__,
        "supportedInterfaces": interfaces,
        # What 0.3 looks for.
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extensions": [extension],
        },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "talk", "name": agent, "description": text, "tags": ["text"]}],
    }

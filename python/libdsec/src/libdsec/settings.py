"""Where the platform is and which key to use: arguments, then the environment, then the file that `dsec up` writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from .errors import DsecError, printable


@dataclass(frozen=True)
class Settings:
    #: "http://host:port" or "https://…".
    endpoint: str
    #: "dsec_…".
    api_key: str = field(repr=False)


def config_file(env: Mapping[str, str] = os.environ) -> Path:
    """Path of the file that `dsec up` and `dsec key create --for` write."""
    home = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(home, "dsec", "config.json")


def load_settings(
    endpoint: str | None = None, api_key: str | None = None, env: Mapping[str, str] = os.environ
) -> Settings:
    """Reads the settings. `DSEC_ENDPOINT` and `DSEC_API_KEY` win over the file, arguments over both.

    Raises:
        DsecError: NOT_CONFIGURED where nothing names an endpoint or a key; INVALID_ARGUMENT for a damaged file or URL.
    """
    for name, value in (("endpoint", endpoint), ("api_key", api_key)):
        if value is not None and not isinstance(value, str):
            raise DsecError("INVALID_ARGUMENT", f"{name} is {type(value).__name__}; it must be str")
    address = endpoint or env.get("DSEC_ENDPOINT") or ""
    key = api_key or env.get("DSEC_API_KEY") or ""
    if not address or not key:
        file = config_file(env)
        stored = _read_config(file)
        # A key belongs to its endpoint: one from the file is not sent to an address from elsewhere.
        if not key and (not address or _origin(address) == _origin(stored.get("endpoint", ""))):
            key = stored.get("apiKey", "")
        address = address or stored.get("endpoint", "")
        if not address:
            raise DsecError("NOT_CONFIGURED", f"no endpoint: DSEC_ENDPOINT is not set and {file} does not name one")
        if not key:
            unset = f"DSEC_API_KEY is not set and {file} holds none for it"
            raise DsecError("NOT_CONFIGURED", f"no key for {address}: {unset}")
    origin = _origin(address)
    if origin is None:
        raise DsecError("INVALID_ARGUMENT", f"the endpoint {printable(address)} is not an http:// or https:// URL")
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise DsecError("INVALID_ARGUMENT", "the API key holds characters that no key has")
    return Settings(origin, key)


def _origin(address: str) -> str | None:
    try:
        url = urlsplit(address.strip())
        port = url.port
    except ValueError:
        return None
    if url.scheme not in ("http", "https") or not url.hostname:
        return None
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    default = 80 if url.scheme == "http" else 443
    return f"{url.scheme}://{host}" + ("" if port in (None, default) else f":{port}")


def _read_config(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise DsecError("NOT_CONFIGURED", f"{file} cannot be read: {error}") from error
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DsecError("INVALID_ARGUMENT", f"{file} is not a JSON object")
    return {name: one for name, one in value.items() if isinstance(one, str)}

"""The catalogue: bases (also imported images), workspaces and toolkits."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode

from ._http.body import send_body
from ._http.calls import Calls
from ._wire import messages as m
from ._wire.codec import WireError, from_json
from .command_options import InputSource, text
from .errors import DsecError, printable
from .files_tar import tar_of
from .results import name_of, number_of, time_of


@dataclass(frozen=True)
class ImageConfig:
    """What an image says about how it wants to run."""

    env: list[str]
    user: str
    working_dir: str
    entrypoint: list[str]
    cmd: list[str]
    labels: dict[str, str]


@dataclass(frozen=True)
class Layer:
    #: "project/name".
    name: str
    version: int
    #: "base", "workspace", "toolkit".
    kind: str
    #: Lowest first.
    digests: list[str]
    metadata_bytes: int
    data_bytes: int
    entries: int
    created_at: datetime
    built_from: str
    config: ImageConfig
    #: Of an import: the content was there already.
    existed: bool = False

    @property
    def full_name(self) -> str:
        """ "project/name@v3"."""
        return f"{self.name}@v{self.version}"


class Layers:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def import_(
        self,
        *,
        kind: str,
        name: str,
        format: str = "tar",
        body: InputSource | None = None,
        path: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        project: str | None = None,
        env: Iterable[str] = (),
        user: str | None = None,
        working_dir: str | None = None,
        built_from: str | None = None,
    ) -> Layer:
        """Sends content and enters it under the name; a new version is made.

        Args:
            kind: "base", "workspace" or "toolkit".
            name: "name" in the key's project.
            format: Of what is sent: "tar" (plain, gzip or zstd), "oci-archive", "docker-archive".
            body: The archive; or
            path: a file here; or
            directory: a directory here: its content becomes the layer, or with "oci-archive" it is an OCI layout.
            env: "NAME=VALUE", for what is no image.
            built_from: For people: where it came from.

        Raises:
            DsecError: ARCHIVE_INVALID, ARCHIVE_LIMIT, PERMISSION_DENIED
        """
        query = [("kind", text(kind, "kind")), ("name", text(name, "name")), ("format", text(format, "format"))]
        query += [("env", text(entry, "env")) for entry in env]
        named = {"project": project, "user": user, "working_dir": working_dir, "built_from": built_from}
        query += [(key, text(value, key)) for key, value in named.items() if value]
        if sum(one is not None for one in (body, path, directory)) != 1:
            raise DsecError("INVALID_ARGUMENT", "give exactly one of body, path and directory")
        if body is not None:
            answer = await self._send(query, body)
        elif directory is not None:
            local = Path(directory)
            _present(local)
            if not local.is_dir():
                raise DsecError("NOT_A_DIRECTORY", f"{printable(str(local))} is no directory")
            answer = await self._send(query, tar_of(os.fsencode(local.absolute())))
        else:
            assert path is not None
            _present(Path(path))
            with open(path, "rb") as file:
                answer = await self._send(query, file)
        try:
            reply = from_json(m.ImportLayerResponse, json.loads(answer))
        except (WireError, ValueError) as error:
            raise DsecError("INTERNAL", f"the answer to an import cannot be read: {error}") from error
        if reply.layer is None:
            raise DsecError("INTERNAL", "the answer to an import holds no layer")
        return _layer_of(reply.layer, reply.existed)

    async def _send(self, query: list[tuple[str, str]], source: InputSource) -> bytes:
        return await send_body(self._calls, "POST", f"/v1/layers?{urlencode(query)}", source)

    async def list(
        self, *, kinds: Iterable[str] = (), project: str = "", name_prefix: str = ""
    ) -> AsyncGenerator[Layer, None]:
        """Layers that the key may use; newest version of a name first."""
        numbers = []
        for kind in kinds:
            found = number_of(m.LAYER_KIND, text(kind, "a kind"))
            if found is None:
                raise DsecError("INVALID_ARGUMENT", f"{printable(kind)} is no kind of layer: base, workspace, toolkit")
            numbers.append(found)
        request = m.ListLayersRequest(text(project, "project"), numbers, 0, "", text(name_prefix, "name_prefix"))
        while True:
            page = await self._calls.call(m.LIST_LAYERS, request)
            for layer in page.layers:
                yield _layer_of(layer)
            request.page_token = page.next_page_token
            if request.page_token == "":
                return

    async def get(self, name: str) -> Layer:
        """Raises DsecError LAYER_NOT_FOUND."""
        reply = await self._calls.call(m.GET_LAYER, m.GetLayerRequest(text(name, "name")))
        if reply.layer is None:
            raise DsecError("LAYER_NOT_FOUND", f"the answer holds no layer {printable(name)}")
        return _layer_of(reply.layer)

    async def delete(self, name: str) -> None:
        """Raises DsecError LAYER_IN_USE, saying by what."""
        await self._calls.call(m.DELETE_LAYER, m.DeleteLayerRequest(text(name, "name")))


def _present(local: Path) -> None:
    if not local.exists():
        raise DsecError("FILE_NOT_FOUND", f"{printable(str(local))} is not here")


def _layer_of(wire: m.LayerVersion, existed: bool = False) -> Layer:
    config = wire.config or m.ImageConfig()
    return Layer(
        name=wire.name,
        version=wire.version,
        kind=name_of(m.LAYER_KIND, wire.kind).lower(),
        digests=wire.digests,
        metadata_bytes=wire.metadata_bytes,
        data_bytes=wire.data_bytes,
        entries=wire.entries,
        created_at=time_of(wire.created_at_ms),
        built_from=wire.built_from,
        config=ImageConfig(config.env, config.user, config.working_dir, config.entrypoint, config.cmd, config.labels),
        existed=existed,
    )

"""Where a gate's dataset comes from: a ConfigMap, an address, a file of the operator's, or the one that comes with kvroll."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp

from kvroll_core.gate import Dataset, DatasetError, bundled, parse
from kvroll_operator.api.gate import GateDataset
from kvroll_operator.cluster.client import Api, ApiError
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.finding import GateSourceError
from kvroll_operator.gate.web import MOST_BYTES, Web

FETCH_SECONDS = 60.0


@dataclass(frozen=True)
class DatasetReader:
    """Reads datasets anew for each measurement. `folder` is the only place of the operator's file system that a spec may name."""

    api: Api
    paths: Paths
    web: Web
    folder: Path

    async def read(self, wanted: GateDataset | None) -> Dataset:
        """The dataset.

        Raises:
            GateSourceError: it is not there, too long, or no dataset.
        """
        if wanted is None:
            return bundled()
        where, text = await self._text(wanted)
        try:
            return parse(text)
        except DatasetError as error:
            # The end of that message quotes the line: what a spec can point at is not always what its author may read.
            raise GateSourceError(f"{where} is no dataset: {str(error).partition(', found')[0]}") from error

    async def _text(self, wanted: GateDataset) -> tuple[str, str]:
        if wanted.config_map is not None:
            name, key = wanted.config_map.name, wanted.config_map.key
            where = f"ConfigMap {name}, key {key}"
            try:
                data = (await self.api.get(self.paths.config_maps(name))).get("data") or {}
            except ApiError as error:
                raise GateSourceError(f"{where}: {error}") from error
            if key not in data:
                raise GateSourceError(f"{where}: expected the key, found {', '.join(sorted(data)) or 'none'}")
            return where, str(data[key])
        uri = wanted.uri or ""
        if uri.startswith("file://"):
            return uri, await asyncio.to_thread(self._file, uri)
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        return uri, await self.web.text("GET", uri, timeout=timeout)

    def _file(self, uri: str) -> str:
        folder = self.folder.resolve()
        path = Path(unquote(urlsplit(uri).path)).resolve()
        if not path.is_relative_to(folder):
            raise GateSourceError(f"{uri}: expected a file below {folder} (the operator's --dataset-folder)")
        try:
            if path.stat().st_size > MOST_BYTES:
                raise GateSourceError(f"{uri}: expected at most {MOST_BYTES >> 20} MiB, found more")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GateSourceError(f"{uri}: cannot be read: {type(error).__name__}") from error

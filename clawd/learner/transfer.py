"""Adapter versions as one file, and as the beginning of another adapter.

The file is a plain zip of the version's own files: PEFT's two, the GGUF that serves, the optimiser's state and the
manifest. Reading one trusts nothing: only those names are taken, by content of bounded size, and no pickle is ever
opened; what was taken must be whole by its own manifest, made for the base that is served, and PEFT's weights must be
those of the GGUF, so that what would be trained on is what would be served.
"""

from __future__ import annotations

import json
import lzma
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from clawd.errors import AdapterRejected, StoreError, UnknownName
from clawd.learner.job import ADAPTER_GGUF, MANIFEST_FILE, Manifest
from clawd.learner.jobs import RESULT_FILES, file_sha256
from clawd.learner.peft_check import check_peft
from clawd.learner.publish import ASIDE, sync
from clawd.model.lora import LoraBase, check_adapter_file
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Adapter, Origin, Version

FILES = (MANIFEST_FILE, *RESULT_FILES)
LARGEST_RANK = 256  # that the settings allow
SMALL_FILE = 2**24
CHUNK = 2**20
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    RuntimeError,  # encrypted
    NotImplementedError,  # packed in a way that Python doesn't know
    EOFError,
    ValueError,
)
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


def export(version: Version, target: Path) -> None:
    """Write `version` as the file `target`, which appears whole.

    Raises:
        UnknownName: its files are gone.
        StoreError: `target` can't be written.
    """
    aside = target.with_name(f".{target.name}.part")
    try:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_STORED) as archive:  # numbers don't compress
            for name in FILES:
                archive.write(version.folder / name, name)
        aside.replace(target)
    except FileNotFoundError as error:
        if not target.parent.is_dir():
            raise StoreError(f"{target} can't be written: there is no folder {target.parent}.") from None
        raise UnknownName(f"Version {version.number} has lost its files: {error.filename} is gone.") from None
    except OSError as error:
        raise StoreError(f"{target} can't be written: {error.strerror}.") from None
    finally:
        aside.unlink(missing_ok=True)


def import_file(source: Path, adapter: Adapter, base: LoraBase, data: DataFolder, store: Store) -> Version:
    """Make the file `source` a new version of `adapter`. It doesn't serve yet.

    Raises:
        AdapterRejected: it isn't an exported version, is damaged, dangerous, or made for another base; it says which.
    """
    with _aside(data) as folder:
        unpack(source, folder, base)
        return _add(folder, adapter, "import", f"{source.name}", data, store)


def copy(version: Version, name: str, adapter: Adapter, data: DataFolder, store: Store) -> Version:
    """Make a copy of `version`, which is called `name`, the first version of another adapter.

    Raises UnknownName: its files are gone.
    """
    with _aside(data) as folder:
        for file in FILES:
            try:
                shutil.copyfile(version.folder / file, folder / file)
            except FileNotFoundError:
                raise UnknownName(f"{name} has lost its files: {version.folder / file} is gone.") from None
        return _add(folder, adapter, "copy", name, data, store)


def unpack(source: Path, folder: Path, base: LoraBase) -> Manifest:
    """Take the files of an exported version into the empty `folder`, and check them all.

    Raises:
        AdapterRejected: names what is wrong.
    """
    try:
        with source.open("rb") as file:
            magic = file.read(4)
        if not zipfile.is_zipfile(source):
            raise AdapterRejected(_no_archive(source, magic))
        with zipfile.ZipFile(source) as archive:
            _check_names(source, archive)
            for name in FILES:
                _extract(source, archive, name, folder / name, _largest(name, base))
    except OSError as error:
        raise AdapterRejected(f"{source} can't be read: {error.strerror or error}.") from None
    except UNREADABLE as error:
        raise AdapterRejected(f"{source} is damaged, encrypted or packed in another way: {error}.") from None
    return _check(source, folder, base)


def _no_archive(source: Path, magic: bytes) -> str:
    if magic[:1] == b"\x80" or source.suffix.lower() in PICKLED:
        return f"{source} is a pickle, which could run any program when it is opened: {_wanted()}"
    what = "is empty" if not magic else f"is no zip file (it begins with {magic!r})"
    return f"{source} {what}: {_wanted()}"


def _wanted() -> str:
    return "what `clawd adapter export` writes is taken, and nothing else."


def _check_names(source: Path, archive: zipfile.ZipFile) -> None:
    """Exactly the known names, each once; others are told apart by how dangerous they are."""
    names = [info.filename for info in archive.infolist()]
    for name in names:
        if name.lower().endswith(PICKLED):
            raise AdapterRejected(f"{source} holds a pickle, {name!r}, which could run any program: {_wanted()}")
        if name.startswith(("/", "\\")) or ".." in Path(name.replace("\\", "/")).parts or ":" in name:
            raise AdapterRejected(f"{source} holds {name!r}, a path that leads out of its folder: {_wanted()}")
    strange, missing = sorted(set(names) - set(FILES)), sorted(set(FILES) - set(names))
    if missing or strange or len(names) != len(FILES):
        told = [f"it lacks {', '.join(missing)}"] if missing else []
        told += [f"it holds {', '.join(map(repr, strange[:3]))} besides"] if strange else []
        raise AdapterRejected(f"{source} is no exported version: {' and '.join(told) or 'it holds a file twice'}.")


def _largest(name: str, base: LoraBase) -> int:
    """Bytes that a file can have at most, for this base and the highest rank: a longer one is no such file."""
    if name in (MANIFEST_FILE, "adapter_config.json"):
        return SMALL_FILE
    factors = sum((out + into) * LARGEST_RANK * 4 for out, into in base.linears.values())
    return SMALL_FILE + factors * (2 if name.startswith("optimizer") else 1)


def _extract(source: Path, archive: zipfile.ZipFile, name: str, target: Path, most: int) -> None:
    """What the archive says of a file's size may be a lie, so the bytes are counted as they come."""
    with archive.open(name) as packed, target.open("xb") as file:
        count = 0
        while chunk := packed.read(CHUNK):
            count += len(chunk)
            if count > most:
                raise AdapterRejected(f"{source}: {name} is longer than {most} bytes, more than this base allows.")
            file.write(chunk)


def _check(source: Path, folder: Path, base: LoraBase) -> Manifest:
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise AdapterRejected(f"{source} has no valid manifest: {first['msg']}.") from None
    if manifest.base_fingerprint != base.fingerprint:
        raise AdapterRejected(
            f"{source} was made for another base model ({manifest.base_fingerprint[:12]}) than the one that is served "
            f"({base.fingerprint[:12]})."
        )
    for name in RESULT_FILES:
        if file_sha256(folder / name) != manifest.sha256.get(name):
            raise AdapterRejected(f"{source}: {name} is not as the manifest says.")
    try:
        check_adapter_file(folder / ADAPTER_GGUF, base)
        check_peft(folder, base)
    except AdapterRejected as error:
        raise AdapterRejected(str(error).replace(f"{folder}/", f"{source}: ")) from None
    return manifest


def _add(folder: Path, adapter: Adapter, origin: Origin, source: str, data: DataFolder, store: Store) -> Version:
    """Move `folder` to its final place, as a version that says where it comes from."""
    told = Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())

    def place(version_id: str, number: int) -> tuple[Path, str, str]:
        mine = told.model_copy(
            update={"update_id": version_id, "adapter_id": adapter.id, "number": number, "parent": source}
        )
        (folder / MANIFEST_FILE).write_text(mine.model_dump_json())
        target = data.adapters / adapter.id / f"v{number:04d}"
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if target.exists():
            shutil.rmtree(target)  # no row has this number
        for path in (*folder.iterdir(), folder):
            sync(path)
        folder.rename(target)
        sync(target.parent)
        return target, told.sha256[ADAPTER_GGUF], told.base_fingerprint

    facts = {"from": source, "metrics": told.metrics, "settings": told.settings, "samples": len(told.sample_ids)}
    return store.lifecycle.add(adapter.id, origin, json.loads(json.dumps(facts)), place)


@contextmanager
def _aside(data: DataFolder) -> Iterator[Path]:
    """An empty folder that is gone afterwards, unless it was moved."""
    folder = Path(tempfile.mkdtemp(dir=data.cache, prefix=ASIDE))  # mode 0700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

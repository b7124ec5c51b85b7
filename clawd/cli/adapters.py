"""adapter list, show, use, rollback, accept, refuse, pin, unpin, create, rename, rm, share, unshare, resume, export,
import."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from clawd.cli import adapter_view
from clawd.cli.opening import base_fingerprint, open_folder, open_store, served_model
from clawd.cli.switching import serve
from clawd.doorbell import ring
from clawd.errors import ClawdError, StoreError, UnknownName
from clawd.model import names
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Adapter, Version

adapters = typer.Typer(
    help="What has been learnt: which version serves, which stay, who may use it.", no_args_is_help=True
)
BASE = "base"

Name = Annotated[str, typer.Argument(metavar="NAME", help="An adapter.")]
VersionName = Annotated[str, typer.Argument(metavar="NAME:vN", help="A version of an adapter.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_to(app: typer.Typer) -> None:
    app.add_typer(adapters, name="adapter")


@adapters.command("list")
def list_adapters(as_json: AsJson = False) -> None:
    """List the adapters: what serves, who uses them."""
    folder = open_folder()
    base = base_fingerprint(folder)
    with open_store(folder) as store:
        facts = [adapter_view.adapter_facts(store, adapter, base) for adapter in store.people.adapters()]
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        adapter_view.show_adapters(facts)


@adapters.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show an adapter's versions: state, date, size, what they were made from, how far they have moved."""
    folder = open_folder()
    base = base_fingerprint(folder)
    with open_store(folder) as store:
        adapter = store.people.adapter(adapter_name(name))
        versions = [adapter_view.version_facts(store, version, base) for version in store.updates.versions(adapter.id)]
        facts = adapter_view.adapter_facts(store, adapter, base)
    if as_json:
        typer.echo(json.dumps({**facts, "versions": versions}, ensure_ascii=False))
        return
    adapter_view.show_adapters([facts])
    if versions:
        adapter_view.show_versions(versions)


@adapters.command()
def use(version: Annotated[str, typer.Argument(metavar="NAME:vN", help="A version, or NAME:base: none.")]) -> None:
    """Have a version answer from now on. Running answers end on theirs; nothing is restarted."""
    folder = open_folder()
    with open_store(folder) as store:
        adapter, chosen = find(store, version)
        serve(folder, store, adapter, chosen, f"clawd adapter use {version}")
    typer.echo(f"{names.adapter_model(adapter.name)} answers with {_shown(chosen)}")


@adapters.command()
def rollback(name: Name) -> None:
    """Go back to the version that the present one was made from."""
    folder = open_folder()
    with open_store(folder) as store:
        adapter = store.people.adapter(adapter_name(name))
        active = store.updates.active_version(adapter.id)
        if active is None:
            raise UnknownName(f"{adapter.name!r} has nothing to go back from: the bare base answers.")
        before = store.lifecycle.before(active)
        serve(folder, store, adapter, before, f"clawd adapter rollback {name}")
    typer.echo(f"{names.adapter_model(adapter.name)} answers with {_shown(before)} instead of version {active.number}")


@adapters.command()
def accept(name: Name) -> None:
    """Let the version serve that the gate objects to and that waits for your word."""
    folder = open_folder()
    with open_store(folder) as store:
        adapter, version = _in_doubt(store, name)
        store.updates.accept(version.id)
        store.event("version_accepted", version.id, number=version.number, doubt=version.doubt)
    ring(folder.server_bell)
    typer.echo(f"{names.adapter_model(adapter.name)} will answer with version {version.number}")


@adapters.command()
def refuse(name: Name) -> None:
    """Turn down the version that waits for your word. What serves stays; its samples are put aside."""
    with open_store() as store:
        adapter, version = _in_doubt(store, name)
        store.updates.reject(version.id, f"turned down by a person. {version.doubt}")
        store.event("version_rejected", version.id, reason=f"turned down by a person. {version.doubt}")
    typer.echo(f"{names.adapter_model(adapter.name)} stays as it is: version {version.number} is turned down")


def _in_doubt(store: Store, name: str) -> tuple[Adapter, Version]:
    """Raises UnknownName: nothing of the adapter waits for a person's word."""
    adapter = store.people.adapter(adapter_name(name))
    for version in store.updates.staged_versions():
        if version.adapter_id == adapter.id and version.needs_word:
            return adapter, version
    raise UnknownName(f"No version of {adapter.name!r} waits for your word: `clawd status` shows those that do.")


@adapters.command()
def pin(version: VersionName) -> None:
    """Keep a version, whatever its age."""
    _pin(version, True)


@adapters.command()
def unpin(version: VersionName) -> None:
    """Let a version go when it is old."""
    _pin(version, False)


def _pin(version: str, pinned: bool) -> None:
    with open_store() as store:
        store.lifecycle.pin(find_version(store, version)[1].id, pinned)


@adapters.command()
def create(
    name: Name,
    source: Annotated[
        str | None, typer.Option("--from", metavar="NAME[:vN]", help="Begin as a copy of this adapter's version.")
    ] = None,
    user: Annotated[list[str] | None, typer.Option(help="Who may use it; may be given several times.")] = None,
) -> None:
    """Make an adapter, for a project or for several users; its model name is clawd@NAME."""
    folder = open_folder()
    with open_store(folder) as store:
        version = existing_version(store, source) if source else None
        adapter = store.people.create_adapter(name, user or [])
        if version is None:
            typer.echo(f"{names.adapter_model(name)} begins as the bare base")
            return
        called = names.adapter_model(adapter_name((source or "").partition(":")[0]), version.number)
        try:
            _begin_as(store, folder, adapter, version, called)
        except ClawdError:
            if store.updates.active_version(adapter.id) is None:
                store.people.remove_adapter(adapter)  # it was to begin as that version, or not at all
            raise
    typer.echo(f"{names.adapter_model(name)} begins as {called}")


def _begin_as(store: Store, folder: DataFolder, adapter: Adapter, version: Version, called: str) -> None:
    from clawd.learner import transfer  # noqa: PLC0415  loads numpy and gguf

    copied = transfer.copy(version, called, adapter, folder, store)
    serve(folder, store, adapter, copied, f"it begins as {called}")


def existing_version(store: Store, text: str) -> Version:
    """What NAME:vN, or NAME for its active version, means. Raises UnknownName."""
    if ":" in text:
        return find_version(store, text)[1]
    adapter = store.people.adapter(adapter_name(text))
    version = store.updates.active_version(adapter.id)
    if version is None:
        raise UnknownName(f"{adapter.name!r} has no active version to begin from.")
    return version


@adapters.command()
def rename(name: Name, new: Annotated[str, typer.Argument(metavar="NEW")]) -> None:
    """Give an adapter another name. Requests for the old one are told the new one."""
    with open_store() as store:
        adapter = store.people.rename_adapter(store.people.adapter(adapter_name(name)), new)
    typer.echo(f"the model name is {names.adapter_model(adapter.name)} now")


@adapters.command()
def share(name: Name, user: str) -> None:
    """Let a user ask for an adapter by its name, and teach it by that."""
    with open_store() as store:
        store.people.share(store.people.adapter(adapter_name(name)), store.people.named(user))


@adapters.command()
def unshare(name: Name, user: str) -> None:
    """Take that back. What the adapter has learnt from them stays."""
    with open_store() as store:
        store.people.unshare(store.people.adapter(adapter_name(name)), store.people.named(user))


@adapters.command()
def resume(name: Name) -> None:
    """Let an adapter learn again that was halted after updates that went wrong."""
    with open_store() as store:
        adapter = store.people.adapter(adapter_name(name))
        was_halted = store.lifecycle.resume(adapter.id)
    typer.echo(f"{adapter.name} learns again" if was_halted else f"{adapter.name} was not halted")


@adapters.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="NAME[:vN]", help="An adapter, or one version of it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Remove a version, or an adapter with all its versions. Never what somebody or something still needs."""
    with open_store() as store:
        if ":" in name:
            _remove_version(store, name, yes)
        else:
            _remove_adapter(store, store.people.adapter(adapter_name(name)), yes)


def _remove_version(store: Store, name: str, yes: bool) -> None:
    _, version = find_version(store, name)
    if not yes:
        typer.confirm(f"Remove {name} for good?", abort=True)
    store.lifecycle.remove(version.id)
    _remove_files([version])


def _remove_adapter(store: Store, adapter: Adapter, yes: bool) -> None:
    store.people.check_ownerless(adapter)
    versions = store.updates.versions(adapter.id)
    if not yes:
        typer.confirm(f"Remove {adapter.name} and its {len(versions)} versions for good?", abort=True)
    if store.updates.active_version(adapter.id) is not None:
        serve(open_folder(), store, adapter, None, "it is to be removed")
    store.people.remove_adapter(adapter)
    _remove_files(versions)


def _remove_files(versions: list[Version]) -> None:
    """Rows have said already that they may go; what is left over by a kill here, the learner removes."""
    for version in versions:
        shutil.rmtree(version.folder, ignore_errors=True)
        with suppress(OSError):  # other versions are left
            version.folder.parent.rmdir()


@adapters.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME[:vN]", help="A version; without :vN the active one.")],
    file: Annotated[Path | None, typer.Argument(help="Where to; default NAME-vN.zip, here.")] = None,
) -> None:
    """Write a version as one file, which `clawd adapter import` takes. It may hold what conversations have taught."""
    from clawd.learner import transfer  # noqa: PLC0415  loads numpy and gguf

    with open_store() as store:
        version = existing_version(store, name)
        target = file or Path(f"{adapter_name(name.partition(':')[0])}-v{version.number}.zip")
        refuse_to_overwrite(target)
        transfer.export(version, target)
    typer.echo(str(target))


@adapters.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="What `clawd adapter export` wrote.")],
    name: Name,
    use_it: Annotated[bool, typer.Option("--use", help="Have it answer at once.")] = False,
) -> None:
    """Check a file and make it a new version of an adapter. It answers when it is chosen (`clawd adapter use`)."""
    from clawd.learner import transfer  # noqa: PLC0415  loads numpy and gguf
    from clawd.model.lora import read_lora_base  # noqa: PLC0415

    folder = open_folder()
    base = read_lora_base(*served_model(folder))
    with open_store(folder) as store:
        adapter = store.people.adapter(adapter_name(name))
        version = transfer.import_file(file, adapter, base, folder, store)
        if use_it:
            serve(folder, store, adapter, version, f"clawd adapter import {file.name} --use")
    typer.echo(names.adapter_model(adapter.name, version.number))


def refuse_to_overwrite(file: Path) -> None:
    """Raises StoreError: there is such a file."""
    if file.exists():
        raise StoreError(f"{file} exists already: name another file, or remove that one.")


def adapter_name(text: str) -> str:
    """People may write it as it is called in requests."""
    return text.removeprefix(f"{names.FAMILY}@")


def find(store: Store, text: str) -> tuple[Adapter, Version | None]:
    """What NAME:vN or NAME:base means; None: the bare base. Raises UnknownName."""
    name, _, number = text.rpartition(":")
    if number != BASE:
        return find_version(store, text)
    return store.people.adapter(adapter_name(name)), None


def find_version(store: Store, text: str) -> tuple[Adapter, Version]:
    """What NAME:vN means. Raises UnknownName."""
    parsed = names.parse(f"{names.FAMILY}@{adapter_name(text)}")
    if parsed is None or parsed.name is None or parsed.number is None:
        raise UnknownName(f"{text!r} names no version: write NAME:vN, as `clawd adapter show NAME` lists them.")
    adapter = store.people.adapter(parsed.name)
    version = store.updates.version_number(adapter.id, parsed.number)
    if version is None:
        raise UnknownName(f"{adapter.name!r} has no version {parsed.number}: `clawd adapter show {adapter.name}`.")
    return adapter, version


def _shown(version: Version | None) -> str:
    return f"version {version.number}" if version else "the bare base"

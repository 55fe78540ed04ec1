"""Finds what of the machine a sandboxed command sees besides its workspace: the system, and the tools on `PATH`.

Nothing is visible because it was forgotten: a folder is listed here, holds a tool that `PATH` names, or is named by the
persona. Tools often lie in the user's home (pyenv, nvm, rustup, pipx); then their own folder is visible, not the home.
"""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"),
    *("/nix/store", "/gnu/store", "/sys/devices/system/cpu"),
)
# Of /etc only what programs need to run; keys, passwords and the settings of services are not in it.
SYSTEM_FILES = tuple(
    f"/etc/{name}"
    for name in (
        *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "gai.conf", "services", "protocols", "shells"),
        *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime", "timezone"),
        *("locale.alias", "locale.conf", "locale.gen", "default/locale", "profile", "profile.d", "bash.bashrc"),
        *("inputrc", "terminfo", "mime.types", "magic", "papersize", "os-release", "debian_version", "lsb-release"),
        *("redhat-release", "alpine-release", "machine-id", "login.defs", "gitconfig", "gitattributes"),
        *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf", "pki/ca-trust"),
        *("ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "java", "java-8-openjdk"),
        *("java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "python3", "perl", "php", "R", "maven", "gradle"),
        *("vim", "xml", "sgml", "ImageMagick-6", "ImageMagick-7", "apt/sources.list.d", "mke2fs.conf"),
    )
)
# Folders of tools in a home, and the variable by which they are found when `HOME` is another one.
TOOLCHAINS = {
    ".pyenv": "PYENV_ROOT",
    ".rbenv": "RBENV_ROOT",
    ".nvm": "NVM_DIR",
    ".rustup": "RUSTUP_HOME",
    ".volta": "VOLTA_HOME",
    ".asdf": "ASDF_DATA_DIR",
    ".sdkman": "SDKMAN_DIR",
    ".bun": "BUN_INSTALL",
    ".deno": "DENO_INSTALL_ROOT",
    ".dotnet": "DOTNET_ROOT",
    ".ghcup": "",
    ".juliaup": "",
    ".local/share/mise": "MISE_DATA_DIR",
    ".local/share/uv": "",
    ".local/share/pipx": "",
    ".local/share/fnm": "FNM_DIR",
    ".local/pipx": "",
}
_PROGRAM_FOLDERS = frozenset({"bin", "sbin", "shims"})
_MOST_LINKS = 400


def lies_in(path: Path, folder: Path) -> bool:
    """Tell whether a path is a folder or below it, by their names; `is_relative_to` takes ten times as long."""
    name = str(folder)
    return str(path) == name or str(path).startswith(name if name == "/" else f"{name}/")


def find_tools(search_path: str, *, home: Path, private: Sequence[Path]) -> list[Path]:
    """Find the folders of the tools on a `PATH`: each entry, and the installation that it belongs to.

    An installation is the folder around `bin`, and where a link in an entry leads to. One that holds a place in
    `private` (the home, the checkout, our data) is never returned, only the entry itself.
    """
    stamps = tuple(_stamp_folder(word) for word in search_path.split(":"))
    return list(_find_tools(search_path, home, tuple(private), stamps))


def _stamp_folder(name: str) -> object:
    """Return what tells that something was put into a folder of programs, or taken out."""
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino


@lru_cache(maxsize=32)  # hundreds of links are followed, for every phase of every run
def _find_tools(search_path: str, home: Path, private: tuple[Path, ...], _stamps: object) -> tuple[Path, ...]:
    never = (home, *private)
    found: list[Path] = []
    for word in search_path.split(":"):
        entry = Path(word)
        if not entry.is_absolute() or not entry.is_dir() or _holds(entry.resolve(), never):
            continue
        found += [place for place in _find_places(entry.resolve(), home, never) if place not in found]
    found = [place for place in found if not _is_system(place)]
    return tuple(place for place in found if not _is_below(place, [other for other in found if other != place]))


def find_interpreters(folder: Path, *, home: Path, private: Sequence[Path]) -> Iterator[Path]:
    """Find the Python installations that virtual environments in a folder are made from.

    The folder is the agent's, so what it says is only followed to what is a Python installation.
    """
    for name in (".venv", "venv", "env"):
        link = folder / name / "bin" / "python"
        target = link.resolve() if link.is_symlink() else None
        if target is None or not target.is_file() or target.parent.name != "bin":
            continue
        prefix = target.parent.parent
        if not _holds(prefix, (home, *private)) and any((prefix / "lib").glob("python3*/os.py")):
            yield prefix


def _find_places(entry: Path, home: Path, never: Sequence[Path]) -> Iterator[Path]:
    yield _find_installation(entry, home, never)
    if entry == home / ".cargo/bin" and (home / ".rustup").is_dir():
        yield home / ".rustup"
    if _is_system(entry):
        return
    try:
        links = [Path(item.path) for item in os.scandir(entry) if item.is_symlink()][:_MOST_LINKS]
    except OSError:
        return
    for link in links:
        target = link.resolve()
        if not target.is_file() or _is_system(target) or target.is_relative_to(entry):
            continue
        if "node_modules" in target.parts:
            yield Path(*target.parts[: target.parts.index("node_modules") + 1])
        else:
            place = _find_installation(target.parent, home, never)
            yield place if place != target.parent else target


def _find_installation(folder: Path, home: Path, never: Sequence[Path]) -> Path:
    for name in TOOLCHAINS:
        if folder.is_relative_to(home / name):
            return home / name
    around = folder.parent
    is_installation = folder.name in _PROGRAM_FOLDERS and ((around / "lib").is_dir() or folder.name == "shims")
    is_shared = around in (home / ".local", home / ".cargo") or len(around.parts) < 2
    is_checkout = folder.name != "shims" and (around / ".git").exists()  # pyenv and its like are clones
    return around if is_installation and not is_shared and not is_checkout and not _holds(around, never) else folder


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SYSTEM_FOLDERS)


def _is_below(path: Path, others: Sequence[Path]) -> bool:
    return any(path.is_relative_to(other) for other in others)


def _holds(folder: Path, places: Sequence[Path]) -> bool:
    return any(place.is_relative_to(folder) for place in places)

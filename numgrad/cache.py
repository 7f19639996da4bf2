"""The compile cache on disk: entries that survive the process.

An entry is a small JSON header and named binary blobs (object code), filed under a key that is
a sha256 over everything the code depends on; whoever makes the key must include
:func:`source_fingerprint`, so that a changed numgrad never replays old code.  Nothing is ever
pickled.

The cache may fail in any way without the user's program noticing more than one warning: what
is corrupt, truncated or foreign is a miss, what can't be written is not written.  Entries are
code, so a folder that somebody else owns or may write to is refused.

One file per entry, named after its key::

    magic (8)  version (4)  header length (4)  total length (8)
    header (JSON)  blobs, one after the other  sha256 of all of the above (32)

Writes go to a temporary file that is renamed, so readers and other writers see whole entries
only.  A read touches the file's time stamp; when the folder outgrows its limit the entries
that were not read for longest are removed.  Start reading at :class:`Store`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import stat
import struct
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numgrad.config import config, default_cache_dir
from numgrad.errors import InternalError, NumgradCacheWarning

__all__ = ["CacheInfo", "Entry", "Store", "clear", "info", "source_fingerprint", "store"]

_MAGIC = b"NUMGRAD\x00"
_VERSION = 1
_PREFIX = struct.Struct("<8sIIQ")
_DIGEST_SIZE = hashlib.sha256().digest_size
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_SUFFIX = ".ngc"
_TEMPORARY = ".tmp"
# A temporary file this old was left by a process that died; a younger one may be in use.
_STALE_SECONDS = 3600.0
# Eviction goes below the limit, so that the next put does not have to evict again.
_EVICT_TO = 0.8
# Other processes add entries too, so the running total is counted anew every so many puts.
_RESCAN_EVERY = 64
_O_BINARY = getattr(os, "O_BINARY", 0)


class Entry(NamedTuple):
    """What the cache holds for one key."""

    key: str
    header: dict[str, Any]
    blobs: dict[str, bytes]


class CacheInfo(NamedTuple):
    """The state of the cache: the folder, and what this process did with it.

    Attributes
    ----------
    directory : Path or None
        The folder; None if the cache is off.
    entries, bytes : int
        Number of entries in the folder, and their size.
    limit : int
        The most bytes the folder may take.
    hits, misses, writes, errors : int
        Counts of this process; an error is a broken entry or a failed write.
    """

    directory: Path | None
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    writes: int
    errors: int


class _File(NamedTuple):
    path: Path
    size: int
    used: int  # time of the last use, ns


class _DefectError(Exception):
    """An entry can't be used; never leaves this module."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


_warned: set[str] = set()


def _warn_once(kind: str, message: str) -> None:
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(f"numgrad cache: {message}", NumgradCacheWarning, stacklevel=2)


# ---- the file format ---------------------------------------------------------------


def _encode(key: str, header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bytes:
    sizes = [(name, len(blob)) for name, blob in blobs.items()]
    document = {"key": key, "header": dict(header), "blobs": sizes}
    text = json.dumps(document, separators=(",", ":")).encode()
    total = _PREFIX.size + len(text) + sum(size for _, size in sizes) + _DIGEST_SIZE
    body = b"".join([_PREFIX.pack(_MAGIC, _VERSION, len(text), total), text, *blobs.values()])
    return body + hashlib.sha256(body).digest()


def _decode(key: str, data: bytes) -> Entry:
    """The entry in a file's bytes; raises _DefectError for anything that is not exactly one."""
    if not data.startswith(_MAGIC):
        raise _DefectError("truncated" if _MAGIC.startswith(data) else "foreign")
    if len(data) < _PREFIX.size + _DIGEST_SIZE:
        raise _DefectError("truncated")
    _, version, header_size, total = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise _DefectError("of another format version")
    if len(data) < total:
        raise _DefectError("truncated")
    body = memoryview(data)[:-_DIGEST_SIZE]
    if len(data) != total or hashlib.sha256(body).digest() != data[-_DIGEST_SIZE:]:
        raise _DefectError("corrupt")
    # The checksum holds, but it is no proof of who wrote the file: keep checking.
    try:
        at = _PREFIX.size + header_size
        document = json.loads(bytes(body[_PREFIX.size : at]))
        found, header, sizes = document["key"], dict(document["header"]), document["blobs"]
        blobs: dict[str, bytes] = {}
        for name, size in sizes:
            if not isinstance(name, str) or not 0 <= size <= len(body) - at:
                raise _DefectError("corrupt")
            blobs[name] = bytes(body[at : at + size])
            at += size
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _DefectError("corrupt") from None
    if at != len(body):
        raise _DefectError("corrupt")
    if found != key:
        raise _DefectError("filed under the wrong key")
    return Entry(key, header, blobs)


# ---- the store ---------------------------------------------------------------------


class Store:
    """A folder of entries. Apart from malformed arguments nothing here raises.

    Parameters
    ----------
    directory
        The folder, made when the first entry is written; None for a store that does nothing.
    limit_bytes
        The size above which the least recently used entries are removed.
    """

    def __init__(self, directory: Path | None, limit_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._refused = False
        # Bytes in the folder, as far as this process knows; None before the first count.
        self._total: int | None = None
        self._puts_since_scan = 0
        # Counters without a lock: a lock held during a fork would hang the child.
        self._hits = self._misses = self._writes = self._errors = 0

    def get(self, key: str) -> Entry | None:
        """The entry of a key, or None. A broken entry is removed and counts as missing."""
        path = self._path(key)
        if path is None:
            return None
        entry = self._read(key, path) if self._trusted() else None
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        with contextlib.suppress(OSError):
            os.utime(path)
        return entry

    def put(self, key: str, header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bool:
        """Write an entry, in place of one with the same key.

        Parameters
        ----------
        key
            A sha256 in hexadecimal.
        header
            What JSON can express.
        blobs
            Named binary parts.

        Returns
        -------
        bool
            Whether it was written. False if the cache is off or can't be written to, and for
            an entry that alone exceeds the limit.
        """
        path = self._path(key)
        if path is None:
            return False
        data = _encode(key, header, blobs)
        if len(data) > self.limit_bytes or not self._trusted(create=True):
            return False
        try:
            _write_atomically(path, data)
        except OSError as error:
            self._errors += 1
            _warn_once("write", f"can't write to {path.parent} ({error}); going on without it")
            return False
        self._writes += 1
        self._make_room(path, len(data))
        return True

    def info(self) -> CacheInfo:
        """The state of the folder and the counts of this process."""
        files = self._scan()
        return CacheInfo(
            directory=None if self._refused else self.directory,
            entries=len(files),
            bytes=sum(file.size for file in files),
            limit=self.limit_bytes,
            hits=self._hits,
            misses=self._misses,
            writes=self._writes,
            errors=self._errors,
        )

    def clear(self) -> int:
        """Remove all entries and leftovers; files that are not the cache's stay.

        Returns
        -------
        int
            How many entries were removed.
        """
        if not self._trusted():
            return 0
        removed = sum(_remove(file.path) for file in self._scan(stale_after=0.0))
        self._total = None
        return removed

    def _path(self, key: str) -> Path | None:
        if not _KEY.match(key):
            raise InternalError(f"{key!r} is not a cache key")
        if self.directory is None or self._refused:
            return None
        return self.directory / (key + _SUFFIX)

    def _trusted(self, create: bool = False) -> bool:
        """Whether the folder exists and only this user can write to it."""
        if self.directory is None or self._refused:
            return False
        try:
            if create:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(self.directory)
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(f"{self.directory} is not a folder")
        except (FileNotFoundError, NotADirectoryError) as error:
            if create:
                self._fail("directory", f"can't make {self.directory} ({error})")
            return False
        except OSError as error:
            self._fail("directory", f"can't use {self.directory} ({error})")
            return False
        if _others_can_write(status):
            self._refused = True
            self._fail(
                "refused",
                f"{self.directory} belongs to another user, or others may write to it, so what "
                "is in it can't be trusted; the disk cache is off (chmod 700 it, or name another "
                "folder in NUMGRAD_CACHE_DIR)",
            )
            return False
        return True

    def _fail(self, kind: str, message: str) -> None:
        self._errors += 1
        _warn_once(kind, message)

    def _read(self, key: str, path: Path) -> Entry | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | _O_BINARY)
            with open(descriptor, "rb") as file:
                # The folder may have been open to others before it was made private.
                if _others_can_write(os.fstat(descriptor)):
                    raise _DefectError("writable by other users")
                data = file.read()
            return _decode(key, data)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail("read", f"can't read {path} ({error})")
        except _DefectError as defect:
            _remove(path)
            self._fail(defect.kind, f"{path} is {defect.kind}; it is compiled again")
        return None

    def _make_room(self, newest: Path, size: int) -> None:
        self._puts_since_scan += 1
        if self._total is None or self._puts_since_scan >= _RESCAN_EVERY:
            self._total = sum(file.size for file in self._scan())
            self._puts_since_scan = 0
        else:
            self._total += size
        if self._total <= self.limit_bytes:
            return
        # The running total counts a replaced entry twice: look again before removing anything.
        files = sorted(self._scan(), key=lambda file: file.used)
        total = sum(file.size for file in files)
        if total > self.limit_bytes:
            for file in files:
                if total <= self.limit_bytes * _EVICT_TO:
                    break
                if file.path != newest and _remove(file.path):
                    total -= file.size
        self._total = total

    def _scan(self, stale_after: float = _STALE_SECONDS) -> list[_File]:
        """The entries in the folder; temporary files older than this are removed on the way."""
        files: list[_File] = []
        if self.directory is None or self._refused:
            return files
        oldest = time.time() - stale_after
        try:
            with os.scandir(self.directory) as found:
                for item in found:
                    name, suffix = os.path.splitext(item.name)
                    if suffix not in (_SUFFIX, _TEMPORARY) or not _KEY.match(name[:64]):
                        continue  # not ours
                    try:
                        status = item.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # another process removed it meanwhile
                    if suffix == _SUFFIX:
                        files.append(_File(Path(item.path), status.st_size, status.st_mtime_ns))
                    elif status.st_mtime <= oldest:
                        _remove(Path(item.path))
        except OSError:
            pass  # no folder yet, or not readable: nothing to count
        return files


def _others_can_write(status: os.stat_result) -> bool:
    """Whether another user owns a file or may change it (POSIX; elsewhere never)."""
    if not hasattr(os, "geteuid"):
        return False
    return status.st_uid != os.geteuid() or bool(status.st_mode & 0o022)


def _write_atomically(path: Path, data: bytes) -> None:
    # In the same folder, because a rename is atomic within one file system only.
    temporary = path.with_name(f"{path.stem}-{secrets.token_hex(8)}{_TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_BINARY
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)
        _replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _replace(temporary: Path, path: Path) -> None:
    try:
        os.replace(temporary, path)
    except PermissionError:
        # Windows does not replace a file that is being read.  The key stands for the content,
        # so the entry that is there is as good.
        if not path.exists():
            raise
        _remove(temporary)


def _remove(path: Path) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


# ---- the store of this process -----------------------------------------------------

_store: tuple[tuple[object, ...], Store] | None = None


def store() -> Store:
    """The store that the settings ask for; the same one until the settings change."""
    global _store
    settings = (config.cache, config.cache_dir, config.cache_size)
    if _store is None or _store[0] != settings:
        directory = (config.cache_dir or default_cache_dir()) if config.cache else None
        _store = settings, Store(directory, config.cache_size)
    return _store[1]


def info() -> CacheInfo:
    """The state of the compile cache on disk.

    Examples
    --------
    >>> import numgrad as ng
    >>> ng.cache.info().limit
    536870912
    """
    return store().info()


def clear() -> int:
    """Empty the compile cache on disk.

    Returns
    -------
    int
        How many entries were removed.
    """
    return store().clear()


# ---- the fingerprint of numgrad itself ---------------------------------------------


@functools.cache
def source_fingerprint(*package_dirs: str | os.PathLike[str]) -> str:
    """A sha256 over the text of all Python files of the given packages.

    It must be part of every key: whatever changes in numgrad, old entries no longer match.

    Parameters
    ----------
    *package_dirs
        The folders; by default those of numgrad and its kernels.

    Returns
    -------
    str
        The digest in hexadecimal. Where the source can't be read, as in a zip file, it differs
        from process to process, so that nothing old is ever found.
    """
    folders = [os.fspath(folder) for folder in package_dirs] or _own_folders()
    digest = hashlib.sha256()
    try:
        for folder in folders:
            files = sorted(_python_files(folder))
            if not files:
                raise FileNotFoundError(folder)
            for path in files:
                with open(path, "rb") as file:
                    text = file.read()
                name = os.path.relpath(path, folder).replace(os.sep, "/")
                # With lengths, so that text can't move from one file to the next unnoticed.
                digest.update(f"{name}\0{len(text)}\0".encode())
                digest.update(text)
    except OSError:
        return secrets.token_hex(_DIGEST_SIZE)
    return digest.hexdigest()


def _own_folders() -> list[str]:
    package = os.path.dirname(os.path.abspath(__file__))
    # In the repository kernels/ lies beside the package, installed it is inside it.
    beside = os.path.join(os.path.dirname(package), "kernels")
    inside = os.path.join(package, "kernels")
    return [package] if os.path.isdir(inside) or not os.path.isdir(beside) else [package, beside]


def _python_files(folder: str) -> list[str]:
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.join(parent, name) for name in names if name.endswith(".py")]
    return found

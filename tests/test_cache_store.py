"""The disk cache: whatever happens to the folder, a miss or a warning and never an error."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from numgrad import cache
from numgrad.config import config
from numgrad.errors import InternalError, NumgradCacheWarning

POSIX = hasattr(os, "geteuid")
HEADER = {"graph": "a = add x y", "flags": [1, 2.5, None], "nested": {"width": 8}}
BLOBS = {"object": bytes(range(256)) * 3, "empty": b"", "source": "é".encode()}


def key_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


KEY = key_of("key")


@pytest.fixture(autouse=True)
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test sees its warnings, although a process shows each kind once."""
    monkeypatch.setattr(cache, "_warned", set())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def store(folder: Path) -> cache.Store:
    return cache.Store(folder, 2**20)


@pytest.fixture
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def entry_file(folder: Path, key: str = KEY) -> Path:
    return folder / (key + ".ngc")


def counts(store: cache.Store) -> tuple[int, int, int, int]:
    info = store.info()
    return info.hits, info.misses, info.writes, info.errors


# ---- the ordinary course --------------------------------------------------------------------


@pytest.mark.usefixtures("no_warnings")
def test_round_trip(store: cache.Store, folder: Path) -> None:
    assert store.get(KEY) is None
    assert not folder.exists()  # reading makes no folder
    assert store.put(KEY, HEADER, BLOBS)
    assert store.get(KEY) == cache.Entry(KEY, HEADER, BLOBS)
    assert cache.Store(folder, 2**20).get(KEY) == cache.Entry(KEY, HEADER, BLOBS)
    assert store.get(key_of("other")) is None
    assert counts(store) == (1, 2, 1, 0)
    info = store.info()
    assert info.directory == folder
    assert (info.entries, info.bytes) == (1, entry_file(folder).stat().st_size)
    assert os.listdir(folder) == [KEY + ".ngc"]


@pytest.mark.usefixtures("no_warnings")
def test_replace_and_empty_entry(store: cache.Store) -> None:
    assert store.put(KEY, HEADER, BLOBS)
    assert store.put(KEY, {}, {})
    assert store.get(KEY) == cache.Entry(KEY, {}, {})
    assert store.info().entries == 1


@pytest.mark.skipif(not POSIX, reason="permissions are POSIX's")
def test_folder_and_files_are_private(store: cache.Store, folder: Path) -> None:
    before = os.umask(0)
    try:
        store.put(KEY, HEADER, BLOBS)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert entry_file(folder).stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("no_warnings")
def test_clear_removes_what_is_the_caches_and_nothing_else(
    store: cache.Store, folder: Path
) -> None:
    for name in "abc":
        store.put(key_of(name), HEADER, BLOBS)
    (folder / "notes.txt").write_text("mine")
    (folder / "notes.tmp").write_text("mine")
    (folder / f"{KEY}-0123456789abcdef.tmp").write_text("left over")
    assert store.clear() == 3
    assert sorted(os.listdir(folder)) == ["notes.tmp", "notes.txt"]
    assert store.info().entries == 0
    assert store.put(KEY, HEADER, BLOBS)
    assert store.get(KEY) is not None


@pytest.mark.usefixtures("no_warnings")
def test_store_without_a_folder_does_nothing() -> None:
    store = cache.Store(None, 2**20)
    assert not store.put(KEY, HEADER, BLOBS)
    assert store.get(KEY) is None
    assert store.clear() == 0
    assert store.info() == cache.CacheInfo(None, 0, 0, 2**20, 0, 0, 0, 0)


@pytest.mark.parametrize("key", ["", "abc", "../" + KEY, KEY.upper(), KEY + "\n"])
def test_a_key_is_a_sha256(store: cache.Store, key: str) -> None:
    with pytest.raises(InternalError, match="not a cache key"):
        store.get(key)
    with pytest.raises(InternalError):
        store.put(key, {}, {})


def test_process_wide_store_follows_the_settings(tmp_path: Path) -> None:
    with config.override(cache=True, cache_dir=tmp_path / "a", cache_size="1M"):
        assert cache.store() is cache.store()
        assert cache.store().put(KEY, HEADER, BLOBS)
        assert cache.info().entries == 1
        assert cache.info().limit == 2**20
        with config.override(cache_dir=tmp_path / "b"):
            assert cache.info().entries == 0
        with config.override(cache=False):
            assert cache.info().directory is None
            assert not cache.store().put(KEY, HEADER, BLOBS)
        assert cache.clear() == 1


# ---- broken entries -------------------------------------------------------------------------


def assert_miss(store: cache.Store, path: Path, match: str = "") -> None:
    """A miss, one warning, and the file is gone."""
    cache._warned.clear()
    with pytest.warns(NumgradCacheWarning, match=match) as caught:
        assert store.get(KEY) is None
    assert len(caught) == 1
    assert not path.exists()


def test_every_flipped_byte_is_a_miss(store: cache.Store, folder: Path) -> None:
    store.put(KEY, {"a": 1}, {"code": b"0123456789"})
    path = entry_file(folder)
    whole = path.read_bytes()
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0x41
        path.write_bytes(broken)
        path.chmod(0o600)
        assert_miss(store, path)
    path.write_bytes(whole)
    path.chmod(0o600)
    assert store.get(KEY) is not None


def test_every_truncation_is_a_miss(store: cache.Store, folder: Path) -> None:
    store.put(KEY, {"a": 1}, {"code": b"0123456789"})
    path = entry_file(folder)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        path.chmod(0o600)
        assert_miss(store, path, "truncated")


def reseal(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def sealed(document: bytes, blobs: bytes = b"") -> bytes:
    """A file with a right checksum around any header."""
    total = cache._PREFIX.size + len(document) + len(blobs) + 32
    prefix = cache._PREFIX.pack(cache._MAGIC, cache._VERSION, len(document), total)
    return reseal(prefix + document + blobs)


GOOD_KEY = b'"key":"' + KEY.encode() + b'"'


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\x80\x04some other file, which is long enough to be an entry of the cache", "foreign"),
        (b"", "truncated"),
        (sealed(b"not json"), "corrupt"),
        (sealed(b"\xff\xfe"), "corrupt"),
        (sealed(b"[]"), "corrupt"),
        (sealed(b"{}"), "corrupt"),
        (sealed(b"[" * 100_000), "corrupt"),
        (sealed(b"{" + GOOD_KEY + b',"header":3,"blobs":[]}'), "corrupt"),
        (sealed(b"{" + GOOD_KEY + b',"header":{},"blobs":3}'), "corrupt"),
        (sealed(b"{" + GOOD_KEY + b',"header":{},"blobs":[["a",-1]]}'), "corrupt"),
        (sealed(b"{" + GOOD_KEY + b',"header":{},"blobs":[["a",99]]}'), "corrupt"),
        (sealed(b"{" + GOOD_KEY + b',"header":{},"blobs":[["a",0.5]]}', b"x"), "corrupt"),
        (sealed(b"{" + GOOD_KEY + b',"header":{},"blobs":[[["a"],1]]}', b"x"), "corrupt"),
        (sealed(b"{" + GOOD_KEY + b',"header":{},"blobs":[]}', b"left over"), "corrupt"),
        (sealed(b'{"key":"0","header":{},"blobs":[]}'), "wrong key"),
        (sealed(b'{"key":[],"header":{},"blobs":[]}'), "wrong key"),
        (reseal(cache._PREFIX.pack(cache._MAGIC, cache._VERSION + 1, 0, 52)), "version"),
        (reseal(cache._PREFIX.pack(cache._MAGIC, cache._VERSION, 2**32 - 1, 56)), "corrupt"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_malformed_files(store: cache.Store, folder: Path, content: bytes, match: str) -> None:
    store.put(KEY, HEADER, BLOBS)
    path = entry_file(folder)
    path.write_bytes(content)
    path.chmod(0o600)
    assert_miss(store, path, match)
    assert counts(store) == (0, 1, 1, 1)


def test_entry_copied_to_another_key(store: cache.Store, folder: Path) -> None:
    store.put(key_of("other"), HEADER, BLOBS)
    entry_file(folder, key_of("other")).rename(entry_file(folder))
    assert_miss(store, entry_file(folder), "wrong key")


@pytest.mark.skipif(not POSIX, reason="permissions are POSIX's")
def test_entry_that_others_may_write_to(store: cache.Store, folder: Path) -> None:
    store.put(KEY, HEADER, BLOBS)
    entry_file(folder).chmod(0o666)
    assert_miss(store, entry_file(folder), "writable by other users")


def test_one_warning_per_kind(store: cache.Store, folder: Path) -> None:
    for name in "ab":
        store.put(key_of(name), HEADER, BLOBS)
        entry_file(folder, key_of(name)).write_bytes(b"foreign" * 20)
    with pytest.warns(NumgradCacheWarning) as caught:
        assert store.get(key_of("a")) is None
        assert store.get(key_of("b")) is None
    assert len(caught) == 1
    assert store.info().errors == 2


def test_entry_that_is_a_folder(store: cache.Store, folder: Path) -> None:
    store.put(key_of("other"), HEADER, BLOBS)
    entry_file(folder).mkdir()
    with pytest.warns(NumgradCacheWarning, match="can't read"):
        assert store.get(KEY) is None
    with pytest.warns(NumgradCacheWarning, match="can't write"):
        assert not store.put(KEY, HEADER, BLOBS)
    assert not list(folder.glob("*.tmp"))


# ---- several processes ----------------------------------------------------------------------

WORKER = """
import sys, time, warnings
from pathlib import Path
from numgrad import cache
from numgrad.errors import NumgradCacheWarning

warnings.simplefilter("error", NumgradCacheWarning)
store = cache.Store(Path(sys.argv[1]), 2**26)
mark, rounds = int(sys.argv[2]), int(sys.argv[3])
keys = [format(i, "064x") for i in range(rounds)]
print("ready", flush=True)
sys.stdin.readline()
for key in keys:
    for _ in range(5):
        assert store.put(key, {"mark": mark}, {"code": bytes([mark]) * 200_000})
"""


def test_two_writers_and_a_reader(folder: Path) -> None:
    rounds = 20
    root = str(Path(cache.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": root, "NUMGRAD_CACHE": "0"}
    command = [sys.executable, "-c", WORKER, str(folder)]
    writers = [
        subprocess.Popen(
            [*command, str(mark), str(rounds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for mark in (1, 2)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()

    store = cache.Store(folder, 2**26)
    keys = [format(i, "064x") for i in range(rounds)]

    def read(key: str) -> bool:
        entry = store.get(key)
        if entry is None:
            return False
        assert entry.blobs["code"] == bytes([entry.header["mark"]]) * 200_000
        return True

    with warnings.catch_warnings():
        warnings.simplefilter("error", NumgradCacheWarning)
        while any(writer.poll() is None for writer in writers):
            for key in keys:
                read(key)
        assert all(read(key) for key in keys)
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert sorted(os.listdir(folder)) == sorted(key + ".ngc" for key in keys)
    assert store.info().errors == 0


# ---- folders that can't be used -------------------------------------------------------------


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_read_only_folder(
    store: cache.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(KEY, HEADER, BLOBS)
    real_open = os.open

    def read_only_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            refuse()
        return real_open(path, flags, *args, **kwargs)

    # Root may write anywhere, so the refusal is simulated.
    monkeypatch.setattr(os, "open", read_only_open)
    monkeypatch.setattr(os, "utime", refuse)
    with pytest.warns(NumgradCacheWarning, match="can't write") as caught:
        assert not store.put(key_of("a"), HEADER, BLOBS)
        assert not store.put(key_of("b"), HEADER, BLOBS)
    assert len(caught) == 1
    assert store.get(KEY) is not None
    assert counts(store) == (1, 0, 1, 2)


@pytest.mark.skipif(not POSIX or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_for_real(store: cache.Store, folder: Path) -> None:
    store.put(KEY, HEADER, BLOBS)
    folder.chmod(0o500)
    try:
        with pytest.warns(NumgradCacheWarning, match="can't write"):
            assert not store.put(key_of("a"), HEADER, BLOBS)
        assert store.get(KEY) is not None
    finally:
        folder.chmod(0o700)


def test_entry_that_may_not_be_read(store: cache.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, HEADER, BLOBS)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.warns(NumgradCacheWarning, match="can't read"):
        assert store.get(KEY) is None


def test_broken_entry_that_can_not_be_removed(
    store: cache.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(KEY, HEADER, BLOBS)
    entry_file(folder).write_bytes(b"foreign" * 20)
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.warns(NumgradCacheWarning, match="foreign"):
        assert store.get(KEY) is None


def test_full_disk(store: cache.Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, HEADER, BLOBS)
    real_write = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) <= 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data[:100])  # a short write first, as a full disk does

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.warns(NumgradCacheWarning, match="No space left") as caught:
            assert not store.put(key_of("a"), HEADER, BLOBS)
            assert not store.put(key_of("b"), HEADER, BLOBS)
    assert len(caught) == 1
    assert os.listdir(folder) == [KEY + ".ngc"]  # nothing half written is left
    assert store.get(key_of("a")) is None
    assert store.get(KEY) is not None
    assert store.put(key_of("a"), HEADER, BLOBS)  # space again


def test_short_writes_are_continued(store: cache.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real_write(fd, data[:7]))
        assert store.put(KEY, HEADER, BLOBS)
    assert store.get(KEY) == cache.Entry(KEY, HEADER, BLOBS)


def test_folder_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for directory in (tmp_path / "file", tmp_path / "file" / "cache"):
        cache._warned.clear()
        store = cache.Store(directory, 2**20)
        assert store.get(KEY) is None
        with pytest.warns(NumgradCacheWarning):
            assert not store.put(KEY, HEADER, BLOBS)
        assert store.info().entries == 0
        assert store.clear() == 0


@pytest.mark.skipif(not POSIX, reason="permissions are POSIX's")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o1777])
def test_folder_that_others_may_write_to(store: cache.Store, folder: Path, mode: int) -> None:
    store.put(KEY, HEADER, BLOBS)
    folder.chmod(mode)
    with pytest.warns(NumgradCacheWarning, match="others may write to it") as caught:
        assert store.get(KEY) is None
        assert not store.put(KEY, HEADER, BLOBS)
        assert store.clear() == 0
    assert len(caught) == 1
    assert store.info().directory is None
    assert entry_file(folder).exists()
    folder.chmod(0o700)
    assert store.get(KEY) is None  # off for good in this process


@pytest.mark.skipif(not POSIX, reason="permissions are POSIX's")
def test_folder_of_another_user(
    store: cache.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(KEY, HEADER, BLOBS)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(NumgradCacheWarning, match="belongs to another user"):
        assert not store.put(KEY, HEADER, BLOBS)
    assert store.get(KEY) is None
    assert store.info().directory is None


# ---- size -----------------------------------------------------------------------------------


def set_age(folder: Path, name: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(entry_file(folder, key_of(name)), (then, then))


def test_least_recently_used_entries_go_first(folder: Path) -> None:
    blobs = {"code": bytes(1000)}
    probe = cache.Store(folder, 2**20)
    probe.put(KEY, {}, blobs)
    size = probe.info().bytes
    probe.clear()

    store = cache.Store(folder, 5 * size)
    for age, name in enumerate("edcba"):  # e is the newest
        store.put(key_of(name), {}, blobs)
        set_age(folder, name, 100.0 * (age + 1))
    assert store.info().entries == 5
    assert store.get(key_of("a")) is not None  # the oldest, but used now
    store.put(key_of("f"), {}, blobs)
    # From six down to 80 % of five: the two that were not used for longest are gone.
    left = {name for name in "abcdef" if entry_file(folder, key_of(name)).exists()}
    assert left == {"a", "d", "e", "f"}
    assert store.info().bytes == 4 * size


def test_size_counts_entries_of_earlier_processes(folder: Path) -> None:
    blobs = {"code": bytes(1000)}
    earlier = cache.Store(folder, 2**20)
    for name in "abcdefgh":
        earlier.put(key_of(name), {}, blobs)
    limit = earlier.info().bytes // 2
    cache.Store(folder, limit).put(KEY, {}, blobs)
    assert cache.Store(folder, limit).info().bytes <= limit
    assert entry_file(folder).exists()


def test_replacing_an_entry_evicts_nothing(folder: Path) -> None:
    store = cache.Store(folder, 5000)
    store.put(key_of("a"), {}, {"code": bytes(1000)})
    for _ in range(20):
        store.put(KEY, {}, {"code": bytes(1000)})
    assert store.info().entries == 2


@pytest.mark.usefixtures("no_warnings")
def test_entry_larger_than_the_limit(folder: Path) -> None:
    store = cache.Store(folder, 1000)
    assert store.put(KEY, {}, {"code": bytes(100)})
    assert not store.put(key_of("big"), {}, {"code": bytes(1000)})
    assert store.get(KEY) is not None


def test_left_over_temporary_files(store: cache.Store, folder: Path) -> None:
    store.put(KEY, HEADER, BLOBS)
    old, young = (folder / f"{KEY}-{i:016x}.tmp" for i in range(2))
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (1.0, 1.0))
    cache.Store(folder, 2**20).put(KEY, HEADER, BLOBS)
    assert not old.exists()
    assert young.exists()  # another process may be writing it


# ---- the fingerprint ------------------------------------------------------------------------


def fingerprint(*folders: Path) -> str:
    return cache.source_fingerprint.__wrapped__(*folders)


def test_fingerprint_is_of_names_and_text(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "sub").mkdir(parents=True)
    (package / "a.py").write_text("x = 1\n")
    (package / "sub" / "b.py").write_text("y = 2\n")
    first = fingerprint(package)
    assert len(first) == 64
    assert fingerprint(package) == first

    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.py").write_text("not source")
    (package / "notes.txt").write_text("not source")
    os.utime(package / "a.py", (1, 1))
    assert fingerprint(package) == first

    moved = package.rename(tmp_path / "elsewhere")
    assert fingerprint(moved) == first
    (moved / "sub" / "b.py").rename(moved / "sub" / "c.py")
    renamed = fingerprint(moved)
    (moved / "a.py").write_text("x = 3\n")
    changed = fingerprint(moved)
    assert len({first, renamed, changed, fingerprint(moved, moved / "sub")}) == 4


def test_fingerprint_without_source_never_repeats(tmp_path: Path) -> None:
    assert fingerprint(tmp_path) != fingerprint(tmp_path)


def test_fingerprint_of_numgrad_is_the_same_in_every_process() -> None:
    root = str(Path(cache.__file__).parents[1])
    code = "from numgrad.cache import source_fingerprint as f; print(f())"
    output = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert output.strip() == cache.source_fingerprint.__wrapped__()

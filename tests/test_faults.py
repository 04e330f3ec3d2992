"""The fault injector: a test that rests on it must not pass because it did nothing."""

import errno
import os
from pathlib import Path

import pytest

from buoyline.testing import Faults, every_fault


def write(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(descriptor, b"x")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("fail_at", "left"), [(1, None), (2, b""), (3, b"x")])
def test_a_call_that_fails_before_its_effect_has_none(tmp_path: Path, fail_at: int, left: bytes | None) -> None:
    path = tmp_path / "file"
    with Faults(fail_at, errno.ENOSPC) as faults, pytest.raises(OSError, match="space") as caught:
        write(path)

    assert (faults.count, faults.has_struck, caught.value.errno) == (fail_at, True, errno.ENOSPC)
    assert (path.read_bytes() if path.exists() else None) == left


@pytest.mark.parametrize(("fail_at", "left"), [(1, b""), (2, b"x"), (3, b"x")])
def test_a_call_that_fails_after_its_effect_has_had_it(tmp_path: Path, fail_at: int, left: bytes) -> None:
    path = tmp_path / "file"
    with Faults(fail_at, errno.EIO, after=True), pytest.raises(OSError, match="error"):
        write(path)

    assert path.read_bytes() == left


def test_a_file_that_was_opened_before_the_failure_is_closed(tmp_path: Path) -> None:
    before = os.dup(0)
    os.close(before)
    with Faults(1, errno.EIO, after=True), pytest.raises(OSError, match="error"):
        write(tmp_path / "file")
    after = os.dup(0)
    os.close(after)

    assert after == before


def test_the_calls_are_themselves_again_behind_the_block(tmp_path: Path) -> None:
    real = os.open, os.write, os.fsync
    with Faults(2, errno.EIO), pytest.raises(OSError, match="error"):
        write(tmp_path / "file")

    assert (os.open, os.write, os.fsync) == real
    write(tmp_path / "file")


def test_without_a_call_to_fail_the_calls_are_only_counted(tmp_path: Path) -> None:
    with Faults(0, errno.EIO) as faults:
        write(tmp_path / "file")

    assert (faults.count, faults.has_struck) == (3, False)


def test_calls_that_are_not_named_neither_count_nor_fail(tmp_path: Path) -> None:
    with Faults(1, errno.EIO, calls=["fsync", "no such call"]) as faults, pytest.raises(OSError, match="error"):
        write(tmp_path / "file")

    assert faults.count == 1
    assert (tmp_path / "file").read_bytes() == b"x"


def test_a_sweep_ends_with_a_block_that_succeeds(tmp_path: Path) -> None:
    failed = []
    for faults in every_fault(errno.EIO):
        with faults:
            try:
                write(tmp_path / "file")
            except OSError:
                failed.append(faults.count)

    assert failed == [1, 2, 3]

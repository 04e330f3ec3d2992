import base64
import hashlib
import importlib
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import buoyline
from buoyline.tokens.o200k import o200k_base

PACKAGE = Path(buoyline.__file__).parent
PACKING_SCRIPT = Path(__file__).parents[1] / "scripts" / "pack_vocabulary.py"
SHA256_PINNED_BY_TIKTOKEN = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
ORDINARY_TOKENS = 199_998


def run_python(code: str, **environment: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.fixture(scope="module")
def tokens() -> list[bytes]:
    encoding = o200k_base()
    return [encoding.decode_single_token_bytes(rank) for rank in range(ORDINARY_TOKENS)]


@pytest.fixture(scope="module")
def rank_file(tokens: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    path = tmp_path_factory.mktemp("ranks") / "o200k_base.tiktoken"
    path.write_bytes(b"".join(lines))
    return path


def test_the_ranks_are_to_the_byte_those_that_tiktoken_pins(rank_file: Path) -> None:
    assert hashlib.sha256(rank_file.read_bytes()).hexdigest() == SHA256_PINNED_BY_TIKTOKEN


def test_the_encoding_is_built_from_what_tiktoken_would_build_it_from(
    tokens: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ranks_without_a_download(_url: str, expected_hash: str) -> dict[bytes, int]:
        assert expected_hash == SHA256_PINNED_BY_TIKTOKEN
        return {token: rank for rank, token in enumerate(tokens)}

    openai_public = importlib.import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", ranks_without_a_download)

    assert o200k_base().__getstate__() == openai_public.o200k_base()


def test_counting_needs_no_network_no_home_and_no_cache(tmp_path: Path) -> None:
    code = """
import os, socket

def refuse(*_arguments, **_options):
    raise AssertionError("the network was used")

socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
environment = dict(os.environ)

import tiktoken.registry
from buoyline.tokens import default_counter

print(default_counter().count("hello world"))
assert os.environ == environment
assert not tiktoken.registry.ENCODINGS, "a registered o200k_base would break tiktoken.get_encoding"
"""
    home, cache = tmp_path / "home", tmp_path / "cache"
    home.mkdir()
    cache.mkdir()

    printed = run_python(code, HOME=str(home), TMPDIR=str(cache), TIKTOKEN_CACHE_DIR=str(cache))

    assert printed == "2"
    assert not [*home.iterdir(), *cache.iterdir()]


def test_importing_the_package_neither_imports_tiktoken_nor_reads_the_ranks() -> None:
    code = """
import sys

opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)

import buoyline.tokens

counter = buoyline.tokens.default_counter()
assert "tiktoken" not in sys.modules
assert not any(name.endswith(".zlib") for name in opened), opened

counter.count("now")
assert "tiktoken" in sys.modules
assert sum(name.endswith(".zlib") for name in opened) == 1, opened
"""
    run_python(code)


def test_the_licence_of_the_ranks_ships_with_them() -> None:
    notice = (PACKAGE / "tokens/data/LICENSE.tiktoken").read_text(encoding="utf-8")

    assert notice.startswith("MIT License")
    assert "Copyright (c) 2022 OpenAI, Shantanu Jain" in notice


def pack(rank_file: Path, packed_file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PACKING_SCRIPT), str(rank_file), str(packed_file)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_packs_the_rank_file_into_what_ships(rank_file: Path, tmp_path: Path) -> None:
    finished = pack(rank_file, tmp_path / "packed")

    (shipped,) = (PACKAGE / "tokens/data").glob("*.zlib")
    # Compared unpacked: another build of zlib may compress the same bytes to others.
    assert zlib.decompress((tmp_path / "packed").read_bytes()) == zlib.decompress(shipped.read_bytes())
    assert SHA256_PINNED_BY_TIKTOKEN in finished.stdout

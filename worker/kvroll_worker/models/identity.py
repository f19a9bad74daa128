"""The hashes that identify a model folder: weights, config, tokenizer, chat template.

Hashing gigabytes at each start is slow, so shard hashes are remembered in the user's cache under path, size, mtime and inode.
The model's own folder is never written: it is often read-only and shared.
"""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from kvroll_worker.models.folder import cache_dir, sha256_of
from kvroll_worker.models.safetensors_folder import shard_paths
from kvroll_worker.models.spec import ModelSpec
from kvroll_worker.models.tokenizer import Tokenizer


def weights_id(folder: Path) -> str:
    """SHA-256 over the sorted SHA-256 of every shard: renaming or re-ordering shards changes nothing."""
    digests = sorted(_remembered_sha256(path) for path in shard_paths(folder))
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def config_hash(spec: ModelSpec) -> str:
    """Hash of everything in the config that KV depends on; fields that the engine does not read do not count."""
    return _digest(json.dumps(asdict(spec), sort_keys=True))


def tokenizer_hash(folder: Path) -> str:
    """Hash of tokenizer.json."""
    return sha256_of(folder / "tokenizer.json")


def chat_template_hash(tokenizer: Tokenizer) -> str:
    """Hash of the chat template's text, empty where the model has none."""
    return _digest(tokenizer.chat_template) if tokenizer.chat_template else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _remembered_sha256(path: Path) -> str:
    real = path.resolve()
    stat = real.stat()
    key = f"{real} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
    memory = cache_dir() / "shard-hashes" / _digest(key)
    with suppress(OSError, ValueError):
        text = memory.read_text()
        if len(text) == 64 and int(text, 16) >= 0:
            return text
    digest = sha256_of(real)
    # A cache that cannot be written only costs time.
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary = memory.with_name(f"{memory.name}.{os.getpid()}")
        temporary.write_text(digest)
        temporary.replace(memory)
    return digest

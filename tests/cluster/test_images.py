"""The archives that stand in for a registry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

from kvroll_cluster.images import HOST_IMAGE, archive, host_entries, pause_entries


def read(blob: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_the_archive_names_its_layer_and_config_by_digest() -> None:
    files = read(archive(HOST_IMAGE, host_entries(), {"Cmd": ["/bin/sh"]}))
    [manifest] = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/kvroll:dev"]
    config = files[manifest["Config"]]
    assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    [layer] = manifest["Layers"]
    image = json.loads(config)
    assert image["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(files[layer]).hexdigest()}"]
    assert image["config"] == {"Cmd": ["/bin/sh"]}


def test_the_same_content_gives_the_same_bytes() -> None:
    assert archive("a:1", host_entries(), {}) == archive("a:1", host_entries(), {})


def test_the_root_has_mount_points_users_and_a_tmp_for_everyone() -> None:
    layer = read(archive("a:1", host_entries(), {}))["layer.tar"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        members = {member.name: member for member in tar}
    assert {"usr", "lib", "lib64", "bin", "etc/passwd", "etc/nsswitch.conf"} <= set(members)
    assert members["tmp"].mode == 0o1777
    assert members["root"].mode == 0o755  # another user's Python may lie below it
    assert all(member.uid == 0 and member.mtime == 0 for member in members.values())
    assert list(members).index("var") < list(members).index("var/tmp")


def test_pause_is_one_executable() -> None:
    layer = read(archive("p:1", pause_entries(b"\x7fELF"), {}))["layer.tar"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(member.name, member.mode) for member in tar] == [("pause", 0o755)]

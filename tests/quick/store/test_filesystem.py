from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.disks import small_disk
from workbench.store.db.filesystem import filesystem_type, is_network, machine_id


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "fuse.sshfs", "fuse.rclone", "gpfs"]
)
def test_file_systems_that_machines_share_are_known(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "apfs", "fuse.ntfs-3g", "zfs", ""]
)
def test_file_systems_of_one_machine_are_known(kind: str) -> None:
    assert not is_network(kind)


def test_the_type_is_that_of_the_mount_that_holds_the_path(tmp_path: Path) -> None:
    with small_disk(tmp_path / "a disk") as disk:
        (disk / "below").mkdir()
        (tmp_path / "link").symlink_to(disk / "below")

        assert filesystem_type(disk) == "tmpfs"
        assert filesystem_type(disk / "below" / "not there yet") == "tmpfs"
        assert filesystem_type(tmp_path / "link") == "tmpfs"
        assert filesystem_type(tmp_path / "a disk and more") == filesystem_type(tmp_path)


def test_a_machine_has_a_lasting_id() -> None:
    assert machine_id()
    assert machine_id() == machine_id()

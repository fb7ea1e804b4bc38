"""On which kind of file system a ledger lies, by what /proc/mounts says."""

from pathlib import Path

import pytest

from airflows.file_system import file_system, is_on_network

MOUNTS = r"""
proc /proc proc rw,relatime 0 0
/dev/vda1 / ext4 rw,relatime 0 0
auto.home /home autofs rw,fd=6,indirect 0 0
filer:/vol/home /home nfs4 rw,vers=4.2 0 0
10.0.0.1@tcp:/scratch /scratch lustre rw,flock 0 0
/dev/vdb1 /scratch/local ext4 rw 0 0
//nas/share\040one /mnt/share\040one cifs rw,username=a 0 0
user@host: /mnt/remote fuse.sshfs rw 0 0
tmpfs /mnt tmpfs rw 0 0
odd line
"""
# The later of two mounts on one directory lies on top of the other.
COVERED = MOUNTS + "/dev/vdc1 /home ext4 rw 0 0\n"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/airflows/ledger.db", "ext4"),
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/ada/.airflows/ledger.db", "nfs4"),
        ("/homework/ledger.db", "ext4"),
        ("/scratch/ada/ledger.db", "lustre"),
        ("/scratch/local/ada/ledger.db", "ext4"),
        ("/scratch/localhost/ledger.db", "lustre"),
        ("/mnt/share one/ledger.db", "cifs"),
        ("/mnt/remote/ledger.db", "fuse.sshfs"),
        ("/mnt/other/ledger.db", "tmpfs"),
    ],
)
def test_the_nearest_mount_decides(path, kind):
    assert file_system(path, MOUNTS) == kind


def test_of_two_mounts_on_one_directory_the_later_one_counts():
    assert file_system("/home/ada", COVERED) == "ext4"


@pytest.mark.parametrize("mounts", ["", "\n", "odd line\n", "none"])
def test_without_mounts_nothing_is_known(mounts):
    assert file_system("/home/ada", mounts) == ""


@pytest.fixture
def mounted(monkeypatch, tmp_path):
    """Make this test's directory `shared` lie on NFS, as far as /proc/mounts says."""
    text = MOUNTS + f"filer:/vol {tmp_path}/shared nfs rw 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda _path, **_: text)
    (tmp_path / "shared").mkdir()
    return tmp_path


def test_a_ledger_on_nfs_is_on_the_network_whether_it_is_there_or_not(mounted):
    assert is_on_network(mounted / "shared" / "deep" / "ledger.db")
    assert not is_on_network(mounted / "ledger.db")


def test_a_link_to_nfs_is_on_the_network(mounted):
    (mounted / "home").symlink_to(mounted / "shared")

    assert is_on_network(mounted / "home" / "ledger.db")


def test_where_there_is_no_list_of_mounts_nothing_is_on_the_network(monkeypatch, tmp_path):
    def missing(_path, **_):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)

    assert not is_on_network(tmp_path)

"""Room for models: the disk they lie on, and the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.hardware.report import DiskReport
from engine.hardware.sources import Sources
from engine.words import say

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "glusterfs", "lustre", "fuse.sshfs")
IN_MEMORY = ("tmpfs", "ramfs")
#: File systems that live on disks, for the list of places where models could go.
ON_DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "ntfs", "ntfs3", "fuseblk", "exfat")
#: Holds nothing but the system's starter.
NOT_FOR_MODELS = ("/boot", "/efi", "/snap", "/var/lib/docker", "/proc", "/sys", "/dev", "/run")


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo. number: "8:1", as in /sys/dev/block."""

    number: str
    point: str
    system: str
    device: str


def read_disk(sources: Sources, folder: Path) -> tuple[DiskReport, list[str]]:
    """Free space where `folder` is, or will be: its nearest existing parent is asked."""
    why = say("no such drive")
    for place in (folder, *folder.parents):
        try:
            total, _, free = sources.disk_usage(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            why = error.strerror or str(error)
            break
        return DiskReport(str(folder), int(free), int(total), _kind_of(sources, place)), []
    warning = say(
        "Free space of {folder} could not be read: {why}; choose another folder for models in the settings.",
        folder=folder,
        why=why,
    )
    return DiskReport(str(folder), 0, 0), [warning]


def read_disks(sources: Sources) -> list[DiskReport]:
    """One entry per file system on a disk, where it is mounted first; empty where the system does not say."""
    disks = []
    seen: set[str] = set()
    for mount in _mounts(sources):
        if mount.system not in ON_DISKS or mount.point.startswith(NOT_FOR_MODELS) or mount.device in seen:
            continue
        seen.add(mount.device)
        try:
            total, _, free = sources.disk_usage(Path(mount.point))
        except OSError:
            continue
        disks.append(DiskReport(mount.point, int(free), int(total), _kind(sources, mount)))
    return disks


def _kind_of(sources: Sources, place: Path) -> str:
    """Of the mount that lies closest above."""
    above = [mount for mount in _mounts(sources) if place == Path(mount.point) or Path(mount.point) in place.parents]
    # Of two mounts on one point the later one is seen.
    best = max(enumerate(above), key=lambda found: (len(found[1].point), found[0]), default=None)
    return _kind(sources, best[1]) if best else ""


def _mounts(sources: Sources) -> Iterator[Mount]:
    for line in sources.text("proc/self/mountinfo").splitlines():
        before, dash, after = line.partition(" - ")
        place, kind = before.split(), after.split()
        if dash and len(place) >= 5 and len(kind) >= 2:
            yield Mount(place[2], place[4].replace("\\040", " "), kind[0], kind[1])


def _kind(sources: Sources, mount: Mount) -> str:
    if mount.system in NETWORK:
        return "network"
    if mount.system in IN_MEMORY:
        return "memory"
    name = mount.device.rpartition("/")[2]
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith(("vd", "xvd")):
        return ""  # a virtual machine's disk turns by name only
    # btrfs and mapped disks have numbers of their own; a partition's queue is its disk's.
    for folder in (f"sys/dev/block/{mount.number}", f"sys/class/block/{name}"):
        for queue in (f"{folder}/queue", f"{folder}/../queue"):
            turning = sources.number(f"{queue}/rotational")
            if turning is not None:
                return "hdd" if turning else "ssd"
    return ""

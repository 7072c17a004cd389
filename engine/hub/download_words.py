"""How a download stands, in words: the same on the command line and in the window."""

from __future__ import annotations

from engine.hub.downloads import DownloadStatus
from engine.units import size_text
from engine.words import joined, say


def progress_text(status: DownloadStatus) -> str:
    """ "1.2 / 4.7 GB (26%) · 34 MB/s · 2 min left", "Verifying 40%", "Waiting", "Paused at 26%", "4.7 GB"."""
    share = f"{_percent(status)}%"
    if status.state == "downloading":
        parts = [f"{_of(status.done, status.total)} ({share})"]
        if status.bytes_per_s:
            parts.append(f"{size_text(status.bytes_per_s)}/s")
        if status.remaining_s is not None:
            parts.append(say("{duration} left", duration=duration(status.remaining_s)))
        return joined(" · ", parts)
    waiting = say("Waiting for its turn, {share} is here", share=share) if status.done else say("Waiting for its turn")
    return {
        "verifying": say("Verifying {share}", share=share),
        "queued": waiting,
        "paused": say("Paused at {share}", share=share),
        "failed": say("Stopped at {share}", share=share),
        "finished": size_text(status.total),
    }[status.state]


def duration(seconds: float) -> str:
    """ "12 s", "2 min", "1 h 5 min", "3 days": as exact as a guess about a network is."""
    if seconds < 60:
        return say("{seconds} s", seconds=max(1, round(seconds)))
    minutes = round(seconds / 60)
    if minutes < 60:
        return say("{minutes} min", minutes=minutes)
    if minutes < 600:
        hours, minutes = divmod(minutes, 60)
        return (
            say("{hours} h {minutes} min", hours=hours, minutes=minutes) if minutes else say("{hours} h", hours=hours)
        )
    hours = round(minutes / 60)
    return say("{hours} h", hours=hours) if hours < 48 else say("{days} days", days=round(hours / 24))


def _percent(status: DownloadStatus) -> int:
    """Never 100 before it is all there."""
    if status.done >= status.total:
        return 100
    return min(99, round(100 * status.done / status.total)) if status.total else 0


def _of(done: int, total: int) -> str:
    """ "1.2 / 4.7 GB", or with both units where they differ."""
    whole = size_text(total)
    return f"{size_text(done).removesuffix(whole[whole.index(' ') :])} / {whole}"

"""Resumes of a run: what it was continued with that it had not begun with."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.logs.journal import Event

# Fields that a resume must keep. The division of an update into micro-batches, workers, threads and the evaluation's
# batch are free. The digest of the recipe leaves out its folder and its device.
SAME = (
    *("framework", "framework_version", "ranks", "global_batch", "compute", "level", "precision", "loss_scale"),
    *("channels_last", "compile", "loader", "recipe_sha256"),
)


def problems(begin: Event, events: Iterable[Event]) -> list[str]:
    """List what differs in the resumes of a run. A field that either event lacks (of an older version) is the same.

    Args:
        begin: the event `begin` of the run.
        events: of the run.
    """
    then = _facts(begin)
    lines = []
    for event in events:
        if event["event"] == "data_changed":
            lines.append(
                f"continued at step {event.get('first_step')} with data whose checksum is {event.get('checksum')}"
            )
        if event["event"] != "resume":
            continue
        at = f"continued at step {event['step']} with"
        now = _facts(event)
        names = [name for name in now if name in then and now[name] != then[name]]
        lines += [f"{at} {name} {_shown(now[name])}, begun with {_shown(then[name])}" for name in names]
        git = event.get("git")
        if "git" in event and not git:
            lines.append(f"{at} code of an unknown commit")
        elif git and git.get("dirty"):
            lines.append(f"{at} code that differed from its commit")
    return lines


def accelerators(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all accelerators of a run, sorted."""
    return sorted(str(device.get("name")) for host in hosts for device in host.get("accelerators") or [])


def _facts(event: Event) -> dict[str, Any]:
    """Return the fields that must not change, by the names of the messages."""
    facts = {name: event[name] for name in SAME if name in event}
    facts |= {f"optimizer.{name}": value for name, value in (event.get("optimizer") or {}).items()}
    git = event.get("git") or {}
    facts |= {"commit": git["commit"]} if "commit" in git else {}
    hosts = event.get("hosts") or []
    return facts | ({"machines": len(hosts), "accelerators": accelerators(hosts)} if hosts else {})


def _shown(value: Any) -> str:
    """Format a value: a list as its different entries."""
    return ", ".join(dict.fromkeys(map(str, value))) or "none" if isinstance(value, list) else str(value)

"""``peloton volume``: the volumes that instances of services have on hosts."""

from __future__ import annotations

import click

from cli.command import Group
from cli.names import JOB
from cli.output import Table, print_for_programs, print_list, print_message
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from cli.times import seconds_text
from cli.wire import v0

TABLE: Table[v0.volume.PersistentVolumeInfo] = Table(
    ("Id", lambda one: one.id.value),
    ("Pod", lambda one: one.podName),
    ("Pod state", lambda one: one.podState),
    ("Host", lambda one: one.hostname),
    ("State", lambda one: state_of(one)),
    ("MB", lambda one: one.sizeMB),
    ("Path", lambda one: one.containerPath),
    ("Created", lambda one: seconds_text(one.createTime)),
    ("Cluster", lambda one: one.cluster),
    ("Pool", lambda one: one.respoolID),
    ("Message", lambda one: one.message),
    whole=["Id", "Host", "State", "MB"],
    spare=["Pool", "Cluster", "Created", "Path", "Pod state"],
    nothing="No volumes",
    name=lambda one: one.id.value,
)
TO_BE_DELETED = "DELETING"
"""The state of a volume that its host has yet to destroy."""
PAGES_MAX = 1_000


@click.group(cls=Group)
def volume() -> None:
    """Show the volumes of services, and delete those that no job needs any more."""


@volume.command("list")
@click.argument("job_id", metavar="[JOB]", type=JOB, required=False, default="")
@click.option("--orphaned", is_flag=True, help="Only volumes that no pod will use again.")
@pass_settings
def list_volumes(settings: Settings, job_id: str, orphaned: bool) -> None:
    """List the volumes of a job, or of all jobs.

    \b
    Examples:
      peloton volume list database
      peloton volume list --orphaned -o name
    """
    answer = v0.volume_svc.ListVolumesResponse()
    request = v0.volume_svc.ListVolumesRequest(orphaned=orphaned)
    request.jobId.value = job_id
    for _ in range(PAGES_MAX):
        page = settings.client.volumes.ListVolumes(request)
        answer.MergeFrom(page)
        request.after = answer.next = page.next
        if not page.next:
            break
    found = sorted(answer.volumes.values(), key=lambda one: (one.jobId.value, one.instanceId, one.createTime))
    print_list(settings, answer, TABLE, found)


@volume.command()
@click.argument("volume_id", metavar="VOLUME")
@pass_settings
def get(settings: Settings, volume_id: str) -> None:
    """Print one volume.

    \b
    Example:
      peloton volume get 2b1d3c9e-8a64-4d0b-9f0e-6f6f7a3d1c55
    """
    request = v0.volume_svc.GetVolumeRequest(id=v0.peloton.VolumeID(value=volume_id))
    answer = settings.client.volumes.GetVolume(request)
    print_message(settings, answer, [answer.result.id.value])


@volume.command()
@click.argument("volume_ids", metavar="VOLUME...", nargs=-1, required=True)
@click.option("--give-up", is_flag=True, help="Give a pod that waits for the volume a new, empty one.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@pass_settings
def delete(settings: Settings, volume_ids: tuple[str, ...], give_up: bool, yes: bool) -> None:
    """Delete volumes with all that is on them. Refused while a pod has the volume, or comes back to it.

    A volume that is LOST is given up with --give-up: the pod that waits for it begins with an empty one, and if the
    host comes back, it destroys the old one.

    \b
    Examples:
      peloton volume delete 2b1d3c9e-8a64-4d0b-9f0e-6f6f7a3d1c55
      peloton volume delete --give-up 2b1d3c9e-8a64-4d0b-9f0e-6f6f7a3d1c55
    """
    names = ", ".join(volume_ids)
    if not yes and not click.confirm(f"Delete {names} with all that is on it?", err=True):
        raise click.Abort
    for volume_id in volume_ids:
        request = v0.volume_svc.DeleteVolumeRequest(id=v0.peloton.VolumeID(value=volume_id), giveUp=give_up)
        answer = settings.client.volumes.DeleteVolume(request)
        if not print_for_programs(settings, answer, [volume_id]):
            echo(f"Volume {volume_id} is deleted; its host destroys it")


def state_of(one: v0.volume.PersistentVolumeInfo) -> str:
    is_going = one.goalState == v0.volume.DELETED
    return TO_BE_DELETED if is_going else v0.volume.VolumeState.Name(one.state)

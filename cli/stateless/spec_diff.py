"""The difference that a new spec of a service makes: its instances, and the lines of its YAML."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from cli.output import as_yaml
from cli.terminal import echo
from cli.wire import v1

# A container's process can be written in two ways. The API answers with both; a file has one of them.
OLDER_WORDS = ("container", "command", "executor")
NEWER_WORDS = ("entrypoint", "environment", "image", "volume_mounts")
NEWER_POD_WORDS = ("volumes", "mesos_spec")
STYLES = {"+": "green", "-": "red", "@": "cyan"}


def print_difference(
    answer: v1.job_svc.GetReplaceJobDiffResponse,
    old: v1.job.JobSpec,
    new: v1.job.JobSpec,
    names: tuple[str, str],
    err: bool = False,
) -> None:
    for line in instance_lines(answer):
        echo(line, err=err)
    for line in spec_lines(old, new, names):
        echo(line, fg=STYLES.get(line[:1]), bold=line.startswith(("+++", "---")) or None, err=err)


def instance_lines(answer: v1.job_svc.GetReplaceJobDiffResponse) -> Iterator[str]:
    for what in ("added", "removed", "updated", "unchanged"):
        ranges = getattr(answer, f"instances_{what}")
        yield f"{f'Instances {what}:':<21} {ranges_text((getattr(each, 'from'), each.to) for each in ranges)}"


def ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    """Format ranges whose end is included, as in answers of v1alpha."""
    pairs = list(ranges)
    texts = [str(start) if start == stop else f"{start}-{stop}" for start, stop in pairs]
    count = sum(stop - start + 1 for start, stop in pairs)
    return f"{', '.join(texts)} ({count})" if texts else "none"


def spec_lines(old: v1.job.JobSpec, new: v1.job.JobSpec, names: tuple[str, str]) -> list[str]:
    """Return a unified diff, empty when the specs are equal."""
    before, after = (type(spec).FromString(spec.SerializeToString()) for spec in (old, new))
    for spec in (before, after):
        spec.ClearField("revision")
    write_alike(before, after)
    return list(difflib.unified_diff(as_yaml(before).splitlines(), as_yaml(after).splitlines(), *names, lineterm=""))


def write_alike(before: v1.job.JobSpec, after: v1.job.JobSpec) -> None:
    """Leave out of ``before`` the spelling that ``after`` does not use."""
    for container_words, pod_words in ((OLDER_WORDS, ()), (NEWER_WORDS, NEWER_POD_WORDS)):
        if any(uses(pod, container_words, pod_words) for pod in pods_of(after)):
            continue
        for pod in pods_of(before):
            for word in pod_words:
                pod.ClearField(word)  # type: ignore[arg-type]
            for container in pod.containers:
                for word in container_words:
                    container.ClearField(word)  # type: ignore[arg-type]


def uses(pod: v1.pod.PodSpec, container_words: Iterable[str], pod_words: Iterable[str]) -> bool:
    used = {field.name for container in pod.containers for field, _ in container.ListFields()}
    return not used.isdisjoint(container_words) or not {field.name for field, _ in pod.ListFields()}.isdisjoint(
        pod_words
    )


def pods_of(spec: v1.job.JobSpec) -> list[v1.pod.PodSpec]:
    default = [spec.default_spec] if spec.HasField("default_spec") else []
    return [*default, *(spec.instance_spec[instance] for instance in sorted(spec.instance_spec))]

"""Images fetched ahead of the pods that need them."""

from __future__ import annotations

from temporalio import activity

from activities.errors import translated
from peloton.model.host import Prefetched
from peloton.model.ids import JobId
from peloton.ports import ImagePrefetcher, JobRecords


class ImageActivities:
    def __init__(self, records: JobRecords, images: ImagePrefetcher) -> None:
        self._records = records
        self._images = images

    @activity.defn(name="prefetch_images")
    @translated
    def prefetch(self, job_id: str) -> Prefetched:
        """For the instances that the job's update begins next."""
        wanted = self._records.coming_images(JobId(job_id))
        return self._images.prefetch(wanted) if wanted else Prefetched()

"""Activities that prefetch images for pods."""

from __future__ import annotations

from activities.definition import define_activity
from peloton.model.host import Prefetched
from peloton.model.ids import JobId
from peloton.ports import ImagePrefetcher, UpdateRecords


class ImageActivities:
    def __init__(self, updates: UpdateRecords, images: ImagePrefetcher) -> None:
        self._updates = updates
        self._prefetcher = images

    @define_activity("prefetch_images")
    def prefetch(self, job_id: str) -> Prefetched:
        """Prefetch images for the instances that the job's update replaces next."""
        images = self._updates.images_to_prefetch(JobId(job_id))
        return self._prefetcher.prefetch(images) if images else Prefetched()

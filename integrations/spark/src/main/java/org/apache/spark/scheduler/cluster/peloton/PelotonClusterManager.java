package org.apache.spark.scheduler.cluster.peloton;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExternalClusterManager;
import org.apache.spark.scheduler.SchedulerBackend;
import org.apache.spark.scheduler.TaskScheduler;
import org.apache.spark.scheduler.TaskSchedulerImpl;

/** Spark finds this class by the service file of the jar, and asks it whether a master URL is Peloton's. */
public final class PelotonClusterManager implements ExternalClusterManager {
  @Override
  public boolean canCreate(String masterUrl) {
    return MasterUrl.isPeloton(masterUrl);
  }

  @Override
  public TaskScheduler createTaskScheduler(SparkContext context, String masterUrl) {
    return new TaskSchedulerImpl(context);
  }

  @Override
  public SchedulerBackend createSchedulerBackend(SparkContext context, String masterUrl, TaskScheduler scheduler) {
    return new PelotonSchedulerBackend((TaskSchedulerImpl) scheduler, context, MasterUrl.parse(masterUrl));
  }

  @Override
  public void initialize(TaskScheduler scheduler, SchedulerBackend backend) {
    ((TaskSchedulerImpl) scheduler).initialize(backend);
  }
}

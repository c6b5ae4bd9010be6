package org.apache.spark.scheduler.cluster.peloton;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import org.apache.spark.SparkContext;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEndpointAddress;
import org.apache.spark.scheduler.ExecutorDecommission;
import org.apache.spark.scheduler.ExecutorLossReason;
import org.apache.spark.scheduler.ExecutorProcessLost;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.apache.spark.scheduler.cluster.SchedulerBackendUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.concurrent.Future;
import scala.concurrent.Future$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Asks Peloton for executors, and tells Spark why they end.
 *
 * <p>Requests of Spark are noted, and one thread carries them out: all that came within a moment are one change of the
 * job. The same thread polls the states of all instances with one call.
 */
final class PelotonSchedulerBackend extends CoarseGrainedSchedulerBackend {
  private static final Logger LOG = LoggerFactory.getLogger(PelotonSchedulerBackend.class);

  private static final long POLL_MS = 1_000;
  private static final long GATHER_MS = 50;
  private static final long STOP_WAIT_S = 30;

  /** Disconnected executors whose pods are asked for in one turn. */
  private static final int LOST_PER_TURN_MAX = 50;

  /** A process that ended is reported sooner: after this time it is the host or the network that is away. */
  private static final long END_REPORTED_WITHIN_MS = 10_000;

  private static final int FAILURES_MIN = 3;

  private final TaskSchedulerImpl taskScheduler;
  private final SparkContext context;
  private final MasterUrl master;
  private final PelotonApi api;
  private final int initialTarget;
  private final String driverJob;
  private final ScheduledExecutorService worker =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "peloton-executors");
            thread.setDaemon(true);
            return thread;
          });

  private final AtomicBoolean isTurnDue = new AtomicBoolean();
  private final Map<String, Long> lost = new ConcurrentHashMap<>();
  private final List<ExecutorId> toKill = new ArrayList<>();
  private volatile int target;
  private volatile boolean isStopping;

  // Of the worker alone:
  private ExecutorJob job;
  private Opening opening;
  private Instances instances;
  private int rounds;
  private int roundsSeen;
  private Instances.Change unsent;
  private int countBefore;

  /** A job whose creation has no answer yet: the next turn repeats it as it was, so that there is one job. */
  private record Opening(String id, int count) {}

  PelotonSchedulerBackend(TaskSchedulerImpl taskScheduler, SparkContext context, MasterUrl master) {
    super(taskScheduler, context.env().rpcEnv());
    this.taskScheduler = taskScheduler;
    this.context = context;
    this.master = master;
    this.api = new PelotonApi(master.api());
    this.initialTarget =
        SchedulerBackendUtils.getInitialTargetExecutorNumber(
            conf(), SchedulerBackendUtils.DEFAULT_NUMBER_EXECUTORS());
    this.driverJob = conf().get("spark.peloton.driver.job", "");
    conf().set("spark.executor.decommission.signal", ExecutorPod.DECOMMISSION);
  }

  @Override
  public void start() {
    super.start();
    target = initialTarget;
    worker.execute(this::takeTurn);
    worker.scheduleWithFixedDelay(this::takeTurn, POLL_MS, POLL_MS, TimeUnit.MILLISECONDS);
  }

  @Override
  public void stop() {
    isStopping = true;
    try {
      super.stop();
    } finally {
      worker.execute(this::releaseAll);
      worker.shutdown();
      try {
        worker.awaitTermination(STOP_WAIT_S, TimeUnit.SECONDS);
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  @Override
  public boolean sufficientResourcesRegistered() {
    return totalRegisteredExecutors().get() >= initialTarget * minRegisteredRatio();
  }

  @Override
  public Future<Object> doRequestTotalExecutors(
      scala.collection.immutable.Map<ResourceProfile, Object> executorsByProfile) {
    int total = 0;
    for (Object count : CollectionConverters.asJava(executorsByProfile).values()) {
      total += (Integer) count;
    }
    target = total;
    return takeTurnSoon();
  }

  @Override
  public Future<Object> doKillExecutors(Seq<String> executorIds) {
    synchronized (toKill) {
      for (String id : CollectionConverters.asJava(executorIds)) {
        toKill.add(ExecutorId.parse(id));
      }
    }
    return takeTurnSoon();
  }

  @Override
  public DriverEndpoint createDriverEndpoint() {
    return new PelotonDriverEndpoint();
  }

  private Future<Object> takeTurnSoon() {
    boolean isTaken = !isStopping;
    if (isTaken && isTurnDue.compareAndSet(false, true)) {
      try {
        worker.schedule(this::takeTurn, GATHER_MS, TimeUnit.MILLISECONDS);
      } catch (RejectedExecutionException stopped) {
        isTaken = false;
      }
    }
    return Future$.MODULE$.successful((Object) isTaken);
  }

  // What the worker does.

  private void takeTurn() {
    isTurnDue.set(false);
    if (isStopping) {
      return;
    }
    try {
      if (job != null) {
        send();
        instances.observe(job.states());
        checkFailures();
      }
      explainLosses();
      kill();
      approachTarget();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } catch (PelotonApi.ApiException refusal) {
      LOG.error("Peloton refused a request: {}", refusal.getMessage());
      taskScheduler.error("Peloton refused a request: " + refusal.getMessage());
    } catch (Exception away) {
      LOG.warn("Peloton does not answer; the next turn tries again", away);
    }
  }

  private void kill() throws IOException, InterruptedException {
    List<Integer> killed = new ArrayList<>();
    synchronized (toKill) {
      for (ExecutorId executor : toKill) {
        if (!isOfClosedJob(executor)) {
          killed.add(executor.instance());
        }
      }
      toKill.clear();
    }
    if (job != null && !killed.isEmpty()) {
      apply(instances.stop(killed), instances.count());
    }
  }

  private void approachTarget() throws IOException, InterruptedException {
    int wanted = target;
    if (job == null) {
      if (wanted == 0 && opening == null) {
        return;
      }
      openJob(wanted);
      if (driverJob.isEmpty()) {
        return;
      }
    }
    int before = instances.count();
    apply(instances.approach(wanted, registered()::containsKey), before);
  }

  private void openJob(int wanted) throws IOException, InterruptedException {
    ExecutorPod executor = new ExecutorPod(conf(), context.executorMemory());
    ObjectNode pod = executor.config(driverUrl(), applicationId(), rounds, !driverJob.isEmpty());
    if (driverJob.isEmpty()) {
      if (opening == null) {
        opening = new Opening(UUID.randomUUID().toString(), wanted);
      }
      int count = opening.count();
      job = ExecutorJob.create(api, opening.id(), master.pool(), describe(executor), pod, count);
      opening = null;
      instances = new Instances(0);
      instances.approach(count, instance -> false);
      LOG.info("Executors are the instances of job {} in {}", job.id(), master.pool());
      return;
    }
    job = ExecutorJob.ofDriver(api, driverJob, pod);
    instances = new Instances(job.instanceCount());
    if (instances.first() > 1) { // executors of a run of the driver that has ended
      job.stop(IntStream.range(1, instances.first()).boxed().toList());
    }
    LOG.info("Executors are the instances of the driver's job {} from {} on", driverJob, instances.first());
  }

  private ExecutorJob.Description describe(ExecutorPod executor) {
    Map<String, String> labels = new LinkedHashMap<>(executor.pairs("spark.peloton.labels"));
    labels.put("spark.app", applicationId());
    if (context.uiWebUrl().isDefined()) {
      labels.put("spark.ui", context.uiWebUrl().get());
    }
    String name = conf().get("spark.peloton.job.name", context.appName());
    String team = conf().get("spark.peloton.team", context.sparkUser());
    return new ExecutorJob.Description(name, team, labels, conf().getInt("spark.peloton.priority", 0));
  }

  private String driverUrl() {
    int port = Integer.parseInt(conf().get("spark.driver.port"));
    return RpcEndpointAddress.apply(conf().get("spark.driver.host"), port, ENDPOINT_NAME()).toString();
  }

  private void apply(Instances.Change change, int before) throws IOException, InterruptedException {
    if (change.isEmpty(before)) {
      return;
    }
    LOG.info(
        "Target {}: {} added, {} started, {} stopped",
        target, change.count() - before, change.started().size(), change.stopped().size());
    if (driverJob.isEmpty() && instances.liveCount() == 0) { // a job of ended instances ends: the next request makes one
      closeJob();
      return;
    }
    unsent = change;
    countBefore = before;
    send();
  }

  /** Carry out what has been decided; a turn that fails leaves it to the next one, for repeating it does no harm. */
  private void send() throws IOException, InterruptedException {
    if (unsent == null) {
      return;
    }
    if (!unsent.stopped().isEmpty()) {
      job.stop(unsent.stopped());
    }
    if (!unsent.started().isEmpty()) {
      job.start(unsent.started());
    }
    if (unsent.count() > countBefore && !job.grow(countBefore, unsent.count())) {
      taskScheduler.error("job " + job.id() + " has been stopped, and with it the executors");
    }
    unsent = null;
  }

  private void closeJob() throws IOException, InterruptedException {
    job.stop();
    registered();
    for (String id : lost.keySet()) {
      roundsSeen = Math.max(roundsSeen, ExecutorId.parse(id).round());
    }
    rounds = roundsSeen;
    job = null;
    instances = null;
    unsent = null;
  }

  private void releaseAll() {
    if (job == null) {
      return;
    }
    try {
      if (driverJob.isEmpty()) {
        job.stop();
      } else if (instances.count() > instances.first()) {
        job.stop(IntStream.range(instances.first(), instances.count()).boxed().toList());
      }
    } catch (IOException away) {
      LOG.warn("Job {} could not be stopped: its executors end as they miss their driver", job.id(), away);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private void checkFailures() {
    int most = conf().getInt("spark.executor.maxNumFailures", Math.max(FAILURES_MIN, 2 * Math.max(target, initialTarget)));
    int failed = instances.failedCount();
    if (failed > most) {
      taskScheduler.error(failed + " executors of job " + job.id() + " failed, spark.executor.maxNumFailures is " + most);
    }
  }

  /** Return the executors that serve now, by their instance. */
  private Map<Integer, String> registered() {
    Map<Integer, String> found = new HashMap<>();
    for (String id : CollectionConverters.asJava(getExecutorIds())) {
      ExecutorId executor = ExecutorId.parse(id);
      roundsSeen = Math.max(roundsSeen, executor.round());
      found.put(executor.instance(), id);
    }
    return found;
  }

  /** Tell Spark of executors that have disconnected, as soon as it is known why. */
  private void explainLosses() throws IOException, InterruptedException {
    int asked = 0;
    for (Map.Entry<String, Long> one : lost.entrySet()) {
      if (++asked > LOST_PER_TURN_MAX) {
        return;
      }
      Optional<ExecutorLossReason> reason = reasonOf(ExecutorId.parse(one.getKey()));
      if (reason.isEmpty() && System.currentTimeMillis() - one.getValue() > END_REPORTED_WITHIN_MS) {
        reason = Optional.of(innocent("its host or the network is away"));
      }
      if (reason.isPresent()) {
        lost.remove(one.getKey());
        removeExecutor(one.getKey(), reason.get());
      }
    }
  }

  private Optional<ExecutorLossReason> reasonOf(ExecutorId executor) throws IOException, InterruptedException {
    if (isOfClosedJob(executor)) {
      return Optional.of(innocent("its job was stopped"));
    }
    try {
      return LossReasons.of(job.events(executor.instance(), executor.round() - rounds));
    } catch (PelotonApi.ApiException refusal) {
      LOG.warn("No events of executor {}: {}", executor, refusal.getMessage());
      return Optional.empty();
    }
  }

  private boolean isOfClosedJob(ExecutorId executor) {
    return job == null || executor.round() <= rounds;
  }

  private static ExecutorLossReason innocent(String why) {
    return new ExecutorProcessLost(why, Option.empty(), false);
  }

  /** Disables an executor that disconnects until Peloton has said why. */
  private final class PelotonDriverEndpoint extends DriverEndpoint {
    @Override
    public void onDisconnected(RpcAddress address) {
      Option<String> executor = addressToExecutorId().get(address);
      if (isStopping || executor.isEmpty()) {
        return;
      }
      String id = executor.get();
      if (executorsPendingDecommission().contains(id)) {
        removeExecutor(id, new ExecutorDecommission(Option.empty(), "decommissioned"));
      } else if (disableExecutor(id)) {
        lost.put(id, System.currentTimeMillis());
        takeTurnSoon();
      }
    }
  }
}

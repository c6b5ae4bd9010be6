import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import peloton.api.job.JobManagerGrpc;
import peloton.api.respool.ResourceManagerGrpc;
import peloton.api.task.TaskManagerGrpc;
import peloton.api.v0.job.JobConfig;
import peloton.api.v1alpha.job.stateless.JobSpec;
import peloton.api.v1alpha.job.stateless.svc.CreateJobRequest;
import peloton.api.v1alpha.job.stateless.svc.DeleteJobRequest;
import peloton.api.v1alpha.job.stateless.svc.GetJobRequest;
import peloton.api.v1alpha.job.stateless.svc.JobServiceGrpc;
import peloton.api.v1alpha.peloton.JobID;
import peloton.api.v1alpha.pod.PodState;
import peloton.api.v1alpha.watch.svc.WatchRequest;
import peloton.client.PelotonClient;
import peloton.client.Refusal;

/**
 * Runs a batch job, waits for it, reads a refusal, and watches the pods of a service:
 *
 * <pre>java -cp 'target/*:target/lib/*' examples/Tour.java localhost:5397 /tutorial</pre>
 */
public final class Tour {
  private static final int INSTANCES = 3;
  private static final int REPLICAS = 2;
  private static final Duration JOB_TIME = Duration.ofMinutes(3);

  private final PelotonClient client;
  private final String pool;

  private Tour(PelotonClient client, String poolPath) {
    this.client = client;
    this.pool = findPool(client, poolPath);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: Tour HOST:PORT POOL");
      System.exit(2);
    }
    try (PelotonClient client = PelotonClient.connect(arguments[0])) {
      Tour tour = new Tour(client, arguments[1]);
      tour.runBatch();
      tour.readRefusal();
      tour.watchService();
    }
  }

  private static String findPool(PelotonClient client, String path) {
    var request = peloton.api.v0.respool.LookupRequest.newBuilder();
    request.getPathBuilder().setValue(path);
    var found = client.stub(ResourceManagerGrpc::newBlockingStub).lookupResourcePoolID(request.build());
    if (found.hasError()) {
      throw new IllegalArgumentException("pool " + path + ": " + found.getError());
    }
    return found.getId().getValue();
  }

  private void runBatch() throws InterruptedException {
    var config = JobConfig.newBuilder().setName("java-batch").setInstanceCount(INSTANCES);
    config.getRespoolIDBuilder().setValue(pool);
    config.getSlaBuilder().setPreemptible(true);
    config.getDefaultConfigBuilder().getResourceBuilder().setCpuLimit(0.1).setMemLimitMb(32);
    config.getDefaultConfigBuilder().getCommandBuilder().setShell(true).setValue("echo hello; sleep 1");
    var created =
        client
            .stub(JobManagerGrpc::newBlockingStub)
            .create(peloton.api.v0.job.CreateRequest.newBuilder().setConfig(config).build());
    if (created.hasError()) { // v0 puts some refusals into its answers
      throw new IllegalStateException("refused: " + created.getError());
    }
    System.out.println("created job " + created.getJobId().getValue());

    var ended = client.waitForJob(created.getJobId().getValue(), JOB_TIME);
    System.out.println("job ended as " + ended.getRuntime().getState());

    var request = peloton.api.v0.task.ListRequest.newBuilder().setJobId(created.getJobId()).build();
    var pods = client.stub(TaskManagerGrpc::newBlockingStub).list(request).getResult().getValueMap();
    for (int instance = 0; instance < INSTANCES; instance++) {
      var runtime = pods.get(instance).getRuntime();
      System.out.println("instance " + instance + " " + runtime.getState() + " on " + runtime.getHost());
    }
  }

  private void readRefusal() {
    try {
      client.stub(JobServiceGrpc::newBlockingStub).getJob(get("unknown"));
    } catch (StatusRuntimeException error) {
      var refusal = Refusal.of(error);
      System.out.println("refused: " + refusal.getReason() + " " + refusal.getMetadataMap());
    }
  }

  /** Watch a service whose pods end every few seconds, until each of them runs the second time. */
  private void watchService() throws InterruptedException {
    String id = UUID.randomUUID().toString();
    var services = client.stub(JobServiceGrpc::newBlockingStub);
    Set<String> restarted = new HashSet<>();
    AtomicInteger streams = new AtomicInteger();
    var request = WatchRequest.newBuilder();
    request.getPodFilterBuilder().getJobIdBuilder().setValue(id);
    client.watch(
        request.build(),
        response -> {
          if (!response.getWatchId().isEmpty()) {
            System.out.println("watch stream " + streams.incrementAndGet());
            if (streams.get() == 1) { // changes from now on are seen
              services.createJob(CreateJobRequest.newBuilder().setJobId(id(id)).setSpec(service()).build());
            }
          }
          for (var pod : response.getPodsList()) {
            String run = pod.getStatus().getPodId().getValue();
            System.out.println("pod " + run + " " + pod.getStatus().getState());
            if (pod.getStatus().getState() == PodState.POD_STATE_RUNNING && !run.endsWith("-1")) {
              restarted.add(pod.getPodName().getValue());
            }
          }
          return restarted.size() < REPLICAS;
        });
    var version = services.getJob(get(id)).getJobInfo().getStatus().getVersion();
    services.deleteJob(DeleteJobRequest.newBuilder().setJobId(id(id)).setVersion(version).setForce(true).build());
    System.out.println("service deleted");
  }

  private JobSpec service() {
    var spec = JobSpec.newBuilder().setName("java-service").setInstanceCount(REPLICAS);
    spec.getRespoolIdBuilder().setValue(pool);
    spec.getSlaBuilder().setPreemptible(true);
    var container = spec.getDefaultSpecBuilder().addContainersBuilder();
    container.getResourceBuilder().setCpuLimit(0.1).setMemLimitMb(32);
    container.getEntrypointBuilder().setValue("sleep 5");
    return spec.build();
  }

  private static GetJobRequest get(String id) {
    return GetJobRequest.newBuilder().setJobId(id(id)).build();
  }

  private static JobID id(String id) {
    return JobID.newBuilder().setValue(id).build();
  }
}

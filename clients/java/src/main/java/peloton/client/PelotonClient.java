package peloton.client;

import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Predicate;
import peloton.api.job.JobManagerGrpc;
import peloton.api.v0.job.GetRequest;
import peloton.api.v0.job.GetResponse;
import peloton.api.v0.job.JobInfo;
import peloton.api.v0.peloton.JobID;
import peloton.api.v1alpha.watch.svc.WatchRequest;
import peloton.api.v1alpha.watch.svc.WatchResponse;
import peloton.api.v1alpha.watch.svc.WatchServiceGrpc;

/**
 * A connection to one Peloton. Thread-safe.
 *
 * <pre>
 * try (PelotonClient client = PelotonClient.connect("localhost:5397")) {
 *   var jobs = client.stub(JobManagerGrpc::newBlockingStub);
 * }
 * </pre>
 *
 * <p>A call without a deadline ends {@link #ATTEMPT_TIMEOUT} after each attempt; a stream has none. A call that a busy
 * server refused, which has done nothing, is repeated when the server says so; a call that only reads is repeated when
 * the server is not available. Other calls are not repeated: after UNAVAILABLE or DEADLINE_EXCEEDED, read whether they
 * were carried out.
 */
public final class PelotonClient implements AutoCloseable {
  /** The address of the API of {@code peloton up}. */
  public static final String DEFAULT_ADDRESS = "localhost:5397";

  public static final Duration ATTEMPT_TIMEOUT = Duration.ofSeconds(20);

  /** The time after the first failure in which a call is repeated. */
  public static final Duration REPEAT_TIME = Duration.ofSeconds(60);

  static final int MESSAGE_BYTES_MAX = 256 << 20;
  static final Duration FIRST_POLL = Duration.ofMillis(200);
  static final Duration LONGEST_POLL = Duration.ofSeconds(5);
  private static final Duration CLOSE_TIME = Duration.ofSeconds(5);

  private final ManagedChannel connection;
  private final Channel channel;

  PelotonClient(ManagedChannel connection) {
    this.connection = connection;
    this.channel = ClientInterceptors.intercept(connection, new Headers(), new Repeats());
  }

  /**
   * Return a client of the API at an address, HOST:PORT, or of several with commas between, which take calls in turn. It
   * does not wait for a connection.
   */
  public static PelotonClient connect(String addresses) {
    return connect(addresses, InsecureChannelCredentials.create());
  }

  /** Do the same with TLS, whose files {@link io.grpc.TlsChannelCredentials} takes, or with a token of each call. */
  public static PelotonClient connect(String addresses, ChannelCredentials credentials) {
    Addresses servers = new Addresses(addresses);
    return new PelotonClient(
        NettyChannelBuilder.forTarget(Addresses.SCHEME + ":///api", credentials)
            .nameResolverFactory(servers)
            .defaultLoadBalancingPolicy("round_robin")
            .maxInboundMessageSize(MESSAGE_BYTES_MAX)
            .proxyDetector(address -> null)
            .build());
  }

  /** Return the channel with headers and repeats, for stubs of any kind. */
  public Channel channel() {
    return channel;
  }

  /** Return a stub, as in {@code client.stub(JobManagerGrpc::newBlockingStub)}. */
  public <S> S stub(Function<Channel, S> make) {
    return make.apply(channel);
  }

  /**
   * Return a batch job when it has ended, in whatever state. It takes restarts of the API for pauses, and throws
   * DEADLINE_EXCEEDED when the job has not ended in this time.
   */
  public JobInfo waitForJob(String id, Duration limit) throws InterruptedException {
    GetRequest request = GetRequest.newBuilder().setId(JobID.newBuilder().setValue(id)).build();
    long until = System.nanoTime() + limit.toNanos();
    for (Duration pause = FIRST_POLL; ; pause = shorter(pause.multipliedBy(2), LONGEST_POLL)) {
      GetResponse answer = JobManagerGrpc.newBlockingStub(channel).get(request);
      if (answer.getError().hasNotFound()) {
        throw Status.NOT_FOUND.withDescription(answer.getError().getNotFound().getMessage()).asRuntimeException();
      }
      switch (answer.getJobInfo().getRuntime().getState()) {
        case SUCCEEDED:
        case FAILED:
        case KILLED:
          return answer.getJobInfo();
        default:
      }
      if (System.nanoTime() + pause.toNanos() > until) {
        throw Status.DEADLINE_EXCEEDED
            .withDescription("job " + id + " has not ended in " + limit)
            .asRuntimeException();
      }
      Thread.sleep(pause.toMillis());
    }
  }

  /**
   * Call {@code see} with each change of service jobs or their pods until it returns false. The first message of a stream
   * has the revision after which changes follow. When the API restarts, or this watcher was too slow, it resumes after
   * the last revision seen: no change is missed, and the last one of each object is seen again at most. An error that
   * outlasts {@link #REPEAT_TIME} is thrown.
   */
  public void watch(WatchRequest request, Predicate<WatchResponse> see) throws InterruptedException {
    var watches = WatchServiceGrpc.newBlockingStub(channel);
    WatchRequest.Builder next = request.toBuilder();
    Pauses pauses = new Pauses(true);
    while (true) {
      io.grpc.Context.CancellableContext stream = io.grpc.Context.current().withCancellation();
      io.grpc.Context before = stream.attach();
      try {
        var responses = watches.watch(next.build());
        while (responses.hasNext()) {
          WatchResponse response = responses.next();
          if (!see.test(response)) {
            return;
          }
          next.setStartRevision(response.getRevision());
          pauses = new Pauses(true);
        }
        throw Status.UNAVAILABLE.withDescription("the watch has ended").asRuntimeException();
      } catch (StatusRuntimeException error) {
        if (!Refusal.of(error).getReason().equals("WATCH_OVERFLOW")) {
          Duration pause = pauses.after(error.getStatus(), error.getTrailers()).orElseThrow(() -> error);
          Thread.sleep(pause.toMillis());
        }
      } finally {
        stream.detach(before);
        stream.cancel(null);
      }
    }
  }

  /** End the connection, and all calls on it. */
  @Override
  public void close() {
    connection.shutdownNow();
    try {
      connection.awaitTermination(CLOSE_TIME.toMillis(), TimeUnit.MILLISECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  static Duration shorter(Duration one, Duration other) {
    return one.compareTo(other) < 0 ? one : other;
  }
}

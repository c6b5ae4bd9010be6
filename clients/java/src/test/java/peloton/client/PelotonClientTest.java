package peloton.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.inprocess.InProcessChannelBuilder;
import io.grpc.inprocess.InProcessServerBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import peloton.api.job.JobManagerGrpc;
import peloton.api.v0.job.CreateRequest;
import peloton.api.v0.job.CreateResponse;
import peloton.api.v0.job.GetRequest;
import peloton.api.v0.job.GetResponse;
import peloton.api.v0.job.JobInfo;
import peloton.api.v0.job.JobState;
import peloton.api.v0.job.RuntimeInfo;
import peloton.api.v1alpha.watch.svc.WatchRequest;
import peloton.api.v1alpha.watch.svc.WatchResponse;
import peloton.api.v1alpha.watch.svc.WatchServiceGrpc;

/** Calls of a client to a server that fails as the test says. */
final class PelotonClientTest {
  private final Queue<StatusRuntimeException> failures = new ArrayDeque<>();
  private final Queue<JobState> states = new ArrayDeque<>();
  private final List<Metadata> headers = new ArrayList<>();
  private final List<Long> revisions = new ArrayList<>();
  private Server server;
  private PelotonClient client;

  @BeforeEach
  void start() throws Exception {
    ServerInterceptor seeHeaders =
        new ServerInterceptor() {
          @Override
          public <Q, A> ServerCall.Listener<Q> interceptCall(
              ServerCall<Q, A> call, Metadata sent, ServerCallHandler<Q, A> next) {
            headers.add(sent);
            return next.startCall(call, sent);
          }
        };
    server =
        InProcessServerBuilder.forName("peloton")
            .directExecutor()
            .addService(ServerInterceptors.intercept(new Jobs(), seeHeaders))
            .addService(new Watches())
            .build()
            .start();
    client = new PelotonClient(InProcessChannelBuilder.forName("peloton").build());
  }

  @AfterEach
  void stop() {
    client.close();
    server.shutdownNow();
  }

  private final class Jobs extends JobManagerGrpc.JobManagerImplBase {
    @Override
    public void create(CreateRequest request, StreamObserver<CreateResponse> answers) {
      answer(CreateResponse.getDefaultInstance(), answers);
    }

    @Override
    public void get(GetRequest request, StreamObserver<GetResponse> answers) {
      RuntimeInfo runtime = RuntimeInfo.newBuilder().setState(states.isEmpty() ? JobState.RUNNING : states.remove()).build();
      answer(GetResponse.newBuilder().setJobInfo(JobInfo.newBuilder().setRuntime(runtime)).build(), answers);
    }

    private <A> void answer(A answer, StreamObserver<A> answers) {
      if (failures.isEmpty()) {
        answers.onNext(answer);
        answers.onCompleted();
      } else {
        answers.onError(failures.remove());
      }
    }
  }

  private final class Watches extends WatchServiceGrpc.WatchServiceImplBase {
    @Override
    public void watch(WatchRequest request, StreamObserver<WatchResponse> answers) {
      revisions.add(request.getStartRevision());
      answers.onNext(WatchResponse.newBuilder().setRevision(revisions.size() * 10L).build());
      answers.onError(failures.remove());
    }
  }

  private static StatusRuntimeException failure(Status status, String... trailers) {
    Metadata metadata = new Metadata();
    for (int at = 0; at < trailers.length; at += 2) {
      metadata.put(Metadata.Key.of(trailers[at], Metadata.ASCII_STRING_MARSHALLER), trailers[at + 1]);
    }
    return status.asRuntimeException(metadata);
  }

  @Test
  void headersAreSentOnce() {
    failures.add(failure(Status.UNAVAILABLE));
    client.stub(JobManagerGrpc::newBlockingStub).get(GetRequest.getDefaultInstance());
    for (Metadata sent : headers) {
      List<String> roles = new ArrayList<>();
      sent.getAll(Metadata.Key.of("rpc-service", Metadata.ASCII_STRING_MARSHALLER)).forEach(roles::add);
      assertEquals(List.of("peloton-jobmgr"), roles);
    }
    assertEquals(2, headers.size());
  }

  @Test
  void aReadIsRepeatedWhenTheServerIsAway() {
    failures.addAll(List.of(failure(Status.UNAVAILABLE), failure(Status.UNAVAILABLE)));
    assertTrue(client.stub(JobManagerGrpc::newBlockingStub).get(GetRequest.getDefaultInstance()).hasJobInfo());
  }

  @Test
  void aWriteIsNotRepeatedWhenTheServerIsAway() {
    failures.add(failure(Status.UNAVAILABLE));
    var jobs = client.stub(JobManagerGrpc::newBlockingStub);
    var error = assertThrows(StatusRuntimeException.class, () -> jobs.create(CreateRequest.getDefaultInstance()));
    assertEquals(Status.Code.UNAVAILABLE, error.getStatus().getCode());
    assertEquals(1, headers.size());
  }

  @Test
  void aWriteThatABusyServerRefusedIsRepeatedWhenItSays() {
    failures.add(failure(Status.RESOURCE_EXHAUSTED, "retry-after-ms", "5"));
    client.stub(JobManagerGrpc::newBlockingStub).create(CreateRequest.getDefaultInstance());
    assertEquals(2, headers.size());
  }

  @Test
  void aRefusalIsNotRepeatedAndHasItsReason() {
    ErrorInfo info = ErrorInfo.newBuilder().setReason("JOB_NOT_FOUND").setDomain("peloton").putMetadata("job", "x").build();
    failures.add(
        StatusProto.toStatusRuntimeException(
            com.google.rpc.Status.newBuilder().setCode(Status.Code.NOT_FOUND.value()).addDetails(Any.pack(info)).build()));
    var jobs = client.stub(JobManagerGrpc::newBlockingStub);
    var error = assertThrows(StatusRuntimeException.class, () -> jobs.get(GetRequest.getDefaultInstance()));
    assertEquals(info, Refusal.of(error));
    assertEquals("", Refusal.of(failure(Status.INTERNAL)).getReason());
  }

  @Test
  void aJobIsWaitedForUntilItHasEnded() throws Exception {
    states.addAll(List.of(JobState.PENDING, JobState.RUNNING, JobState.FAILED));
    assertEquals(JobState.FAILED, client.waitForJob("x", Duration.ofSeconds(10)).getRuntime().getState());
    var late = assertThrows(StatusRuntimeException.class, () -> client.waitForJob("x", Duration.ofMillis(300)));
    assertEquals(Status.Code.DEADLINE_EXCEEDED, late.getStatus().getCode());
  }

  @Test
  void aWatchResumesAfterTheLastRevision() {
    failures.addAll(List.of(failure(Status.UNAVAILABLE), failure(Status.OUT_OF_RANGE)));
    List<Long> seen = new ArrayList<>();
    var error =
        assertThrows(
            StatusRuntimeException.class,
            () -> client.watch(WatchRequest.getDefaultInstance(), response -> seen.add(response.getRevision())));
    assertEquals(Status.Code.OUT_OF_RANGE, error.getStatus().getCode());
    assertEquals(List.of(0L, 10L), revisions);
    assertEquals(List.of(10L, 20L), seen);
  }

  @Test
  void anAddressHasHostAndPort() {
    for (String wrong : List.of("", "localhost", "a:1,b", "a:0", "a:65536", ":5397", "a:x")) {
      assertThrows(IllegalArgumentException.class, () -> PelotonClient.connect(wrong));
    }
    PelotonClient.connect("one:5397, two:5398").close();
  }
}

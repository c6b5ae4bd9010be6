package peloton.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.TlsServerCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.File;
import org.junit.jupiter.api.Test;
import peloton.api.job.JobManagerGrpc;
import peloton.api.v0.job.CreateRequest;

/** Calls of an API that asks for certificates. */
final class TlsTest {
  private static final File FOLDER = new File("../../tests/certificates");
  private static final File AUTHORITY = new File(FOLDER, "ca.pem");

  @Test
  void anApiWithTlsIsCalledWithACertificate() throws Exception {
    File own = new File(FOLDER, "server.pem");
    File shown = new File(FOLDER, "client.pem");
    var asks =
        TlsServerCredentials.newBuilder()
            .keyManager(own, own)
            .trustManager(AUTHORITY)
            .clientAuth(TlsServerCredentials.ClientAuth.REQUIRE)
            .build();
    Server server =
        NettyServerBuilder.forPort(0, asks).addService(new JobManagerGrpc.JobManagerImplBase() {}).build().start();
    try {
      var trusts = TlsChannelCredentials.newBuilder().trustManager(AUTHORITY);
      assertEquals(Status.Code.UNAVAILABLE, codeOf(server, trusts));
      assertEquals(Status.Code.UNIMPLEMENTED, codeOf(server, trusts.keyManager(shown, shown)));
    } finally {
      server.shutdownNow();
    }
  }

  private static Status.Code codeOf(Server server, TlsChannelCredentials.Builder credentials) {
    try (PelotonClient client = PelotonClient.connect("127.0.0.1:" + server.getPort(), credentials.build())) {
      var jobs = client.stub(JobManagerGrpc::newBlockingStub);
      var refused =
          assertThrows(StatusRuntimeException.class, () -> jobs.create(CreateRequest.getDefaultInstance()));
      return refused.getStatus().getCode();
    }
  }
}

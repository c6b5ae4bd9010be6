package peloton.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Gives calls with one request and one answer their deadline, and repeats them where {@link PelotonClient} says so. */
final class Repeats implements ClientInterceptor {
  /** The beginnings of names of methods that change nothing. */
  private static final List<String> READS = List.of("Get", "List", "Query", "Find", "Lookup", "Browse", "Plan");

  private static final ScheduledExecutorService TIMER = timer();

  private static ScheduledExecutorService timer() {
    ScheduledThreadPoolExecutor timer =
        new ScheduledThreadPoolExecutor(
            1,
            work -> {
              Thread thread = new Thread(work, "peloton-repeats");
              thread.setDaemon(true);
              return thread;
            });
    timer.setRemoveOnCancelPolicy(true);
    return timer;
  }

  static boolean isRead(String method) {
    return READS.stream().anyMatch(method::startsWith);
  }

  @Override
  public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel channel) {
    return method.getType() == MethodType.UNARY
        ? new RepeatedCall<>(method, options, channel)
        : channel.newCall(method, options);
  }

  /** A call whose request is kept until its last attempt has ended; listeners see that attempt alone. */
  private static final class RepeatedCall<Q, A> extends ClientCall<Q, A> {
    private final MethodDescriptor<Q, A> method;
    private final CallOptions options;
    private final Channel channel;
    private final Pauses pauses;
    private Listener<A> listener;
    private Metadata headers;
    private Q request;
    private int messages;
    private ClientCall<Q, A> attempt;
    private boolean cancelled;

    RepeatedCall(MethodDescriptor<Q, A> method, CallOptions options, Channel channel) {
      this.method = method;
      this.options = options;
      this.channel = channel;
      this.pauses = new Pauses(isRead(method.getBareMethodName()));
    }

    @Override
    public void start(Listener<A> listener, Metadata headers) {
      this.listener = listener;
      this.headers = headers;
    }

    @Override
    public void request(int count) {
      messages += count;
    }

    @Override
    public void sendMessage(Q message) {
      request = message;
    }

    @Override
    public void halfClose() {
      begin();
    }

    @Override
    public void cancel(String message, Throwable cause) {
      ClientCall<Q, A> running;
      synchronized (this) {
        cancelled = true;
        running = attempt;
      }
      if (running != null) {
        running.cancel(message, cause);
      }
    }

    private void begin() {
      CallOptions bounded =
          options.getDeadline() != null
              ? options
              : options.withDeadlineAfter(PelotonClient.ATTEMPT_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
      ClientCall<Q, A> next = channel.newCall(method, bounded);
      boolean isOver;
      synchronized (this) {
        attempt = next;
        isOver = cancelled;
      }
      Metadata sent = new Metadata();
      sent.merge(headers);
      next.start(new Attempt(), sent);
      if (isOver) {
        next.cancel("cancelled during a pause", null);
        return;
      }
      next.request(messages);
      next.sendMessage(request);
      next.halfClose();
    }

    private synchronized Optional<Duration> pauseAfter(Status status, Metadata trailers) {
      return cancelled ? Optional.empty() : pauses.after(status, trailers);
    }

    private final class Attempt extends Listener<A> {
      private Metadata answered;
      private A answer;

      @Override
      public void onHeaders(Metadata headers) {
        answered = headers;
      }

      @Override
      public void onMessage(A message) {
        answer = message;
      }

      @Override
      public void onClose(Status status, Metadata trailers) {
        Optional<Duration> pause = status.isOk() ? Optional.empty() : pauseAfter(status, trailers);
        if (pause.isPresent()) {
          TIMER.schedule(RepeatedCall.this::begin, pause.get().toMillis(), TimeUnit.MILLISECONDS);
          return;
        }
        if (answered != null) {
          listener.onHeaders(answered);
        }
        if (answer != null) {
          listener.onMessage(answer);
        }
        listener.onClose(status, trailers);
      }
    }
  }
}

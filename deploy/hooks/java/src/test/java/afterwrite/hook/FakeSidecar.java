package afterwrite.hook;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A sidecar's HTTP door that keeps what it hears. */
final class FakeSidecar implements AutoCloseable {
  final List<JsonNode> heard = new CopyOnWriteArrayList<>();
  final List<String> tokens = new CopyOnWriteArrayList<>();
  /** Statuses of the next answers; then 200. */
  final BlockingQueue<Integer> statuses = new LinkedBlockingQueue<>();

  volatile long delayMs;
  /** Bodies beyond are refused, as the sidecar does. */
  volatile int mostBytes = Integer.MAX_VALUE;
  private final HttpServer server;

  FakeSidecar() throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.setExecutor(Executors.newCachedThreadPool(task -> {
      Thread thread = new Thread(task);
      thread.setDaemon(true);
      return thread;
    }));
    server.createContext("/v1/commits", exchange -> {
      byte[] body = exchange.getRequestBody().readAllBytes();
      tokens.add(String.valueOf(exchange.getRequestHeaders().getFirst("Authorization")));
      pause(delayMs);
      Integer status = body.length > mostBytes ? Integer.valueOf(413) : statuses.poll();
      if (status == null) {
        new ObjectMapper().readTree(body).forEach(heard::add);
      }
      exchange.sendResponseHeaders(status == null ? 200 : status, -1);
      exchange.close();
    });
    server.start();
  }

  String endpoint() {
    return "http://127.0.0.1:" + server.getAddress().getPort();
  }

  /** Waits until so many events were heard. */
  List<JsonNode> await(int events) {
    for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20); heard.size() < events && System.nanoTime() < end; ) {
      pause(10);
    }
    return heard;
  }

  static void pause(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Override
  public void close() {
    server.stop(0);
  }
}

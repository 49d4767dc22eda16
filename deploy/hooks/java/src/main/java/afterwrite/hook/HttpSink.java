package afterwrite.hook;

import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;

/** Posts lists of events to the sidecar's HTTP door. */
final class HttpSink implements Sink {
  private final HttpClient client;
  private final HttpRequest.Builder request;

  HttpSink(Settings settings) {
    Duration timeout = Duration.ofMillis(settings.timeoutMs());
    // redirects are not followed: the token is for this address
    client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(timeout).build();
    request = HttpRequest.newBuilder(settings.endpoint()).timeout(timeout).header("Content-Type", "application/json");
    if (settings.token() != null) {
      request.header("Authorization", "Bearer " + settings.token());
    }
  }

  @Override
  public void send(List<Message> messages) throws IOException, InterruptedException, Refused {
    String body = messages.stream().map(m -> m.json).collect(Collectors.joining(",", "[", "]"));
    HttpRequest post = request.copy().POST(HttpRequest.BodyPublishers.ofString(body)).build();
    int status = client.send(post, HttpResponse.BodyHandlers.discarding()).statusCode();
    if (status / 100 == 2) {
      return;
    }
    if (status == 429 || status >= 500) {
      throw new IOException("answered " + status);
    }
    throw new Refused("answered " + status);
  }

  @Override
  public void close() {}
}

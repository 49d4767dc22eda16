package afterwrite.hook;

import java.io.Serializable;
import java.net.URI;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/**
 * The hook's settings, from the properties of a catalog.
 *
 * <table>
 * <tr><td>{@code afterwrite.endpoint}</td><td>the sidecar's HTTP door, {@code http://host:7412}</td></tr>
 * <tr><td>{@code afterwrite.token}</td><td>its bearer token; else the environment's {@code AFTERWRITE_TOKEN}</td></tr>
 * <tr><td>{@code afterwrite.kafka.topic}</td><td>instead of an endpoint: a topic that the sidecar reads as {@code json}</td></tr>
 * <tr><td>{@code afterwrite.kafka.*}</td><td>the producer's settings, at least {@code bootstrap.servers}</td></tr>
 * <tr><td>{@code afterwrite.catalog}</td><td>the sidecar's name of the catalog, where it is not the engine's</td></tr>
 * <tr><td>{@code afterwrite.queue-size}</td><td>commits that may wait; more are dropped (1024)</td></tr>
 * <tr><td>{@code afterwrite.timeout-ms}</td><td>of one request (3000)</td></tr>
 * <tr><td>{@code afterwrite.flush-ms}</td><td>the most that closing waits for what is in the queue (2000)</td></tr>
 * </table>
 */
final class Settings implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final String PREFIX = "afterwrite.";
  private static final String KAFKA = "afterwrite.kafka.";
  private static final String TOPIC = "afterwrite.kafka.topic";

  /** Only the hook's own properties: a catalog's others hold credentials. */
  private final TreeMap<String, String> properties = new TreeMap<>();

  private Settings() {}

  /**
   * Reads a catalog's properties.
   *
   * @throws IllegalArgumentException what is wrong with them, and what to write
   */
  static Settings of(Map<String, String> catalog) {
    Settings settings = new Settings();
    catalog.forEach((key, value) -> {
      if (key.startsWith(PREFIX) && value != null) {
        settings.properties.put(key, value.trim());
      }
    });
    String endpoint = settings.properties.get("afterwrite.endpoint");
    if ((endpoint == null) == (settings.topic() == null)) {
      throw new IllegalArgumentException("set one of afterwrite.endpoint and " + TOPIC);
    }
    if (endpoint != null) {
      settings.endpoint();
    } else if (!settings.properties.containsKey(KAFKA + "bootstrap.servers")) {
      throw new IllegalArgumentException("set afterwrite.kafka.bootstrap.servers");
    }
    settings.queueSize();
    settings.timeoutMs();
    settings.flushMs();
    return settings;
  }

  /** Where events are posted to; {@code null} for Kafka. */
  URI endpoint() {
    String text = properties.get("afterwrite.endpoint");
    if (text == null) {
      return null;
    }
    URI uri = URI.create(text);
    boolean isHttp = "http".equalsIgnoreCase(uri.getScheme()) || "https".equalsIgnoreCase(uri.getScheme());
    if (!isHttp || uri.getHost() == null) {
      throw new IllegalArgumentException("afterwrite.endpoint: " + text + " is no http address; write http://host:7412");
    }
    String path = uri.getPath() == null ? "" : uri.getPath();
    return path.isEmpty() || path.equals("/") ? uri.resolve("/v1/commits") : uri;
  }

  /** The bearer token, or {@code null}. */
  String token() {
    String token = properties.getOrDefault("afterwrite.token", System.getenv("AFTERWRITE_TOKEN"));
    return token == null || token.isEmpty() ? null : token;
  }

  /** The topic, or {@code null}. */
  String topic() {
    return properties.get(TOPIC);
  }

  /** What the Kafka producer is configured with. */
  Map<String, Object> producer() {
    Map<String, Object> producer = new TreeMap<>();
    properties.forEach((key, value) -> {
      if (key.startsWith(KAFKA) && !key.equals(TOPIC)) {
        producer.put(key.substring(KAFKA.length()), value);
      }
    });
    return producer;
  }

  /** The sidecar's name of the catalog, or {@code null}. */
  String catalog() {
    return properties.get("afterwrite.catalog");
  }

  int queueSize() {
    return number("afterwrite.queue-size", 1024, 1, 1_000_000);
  }

  int timeoutMs() {
    return number("afterwrite.timeout-ms", 3000, 1, 60_000);
  }

  int flushMs() {
    return number("afterwrite.flush-ms", 2000, 0, 60_000);
  }

  private int number(String key, int otherwise, int least, int most) {
    String text = properties.get(key);
    if (text == null) {
      return otherwise;
    }
    int number = text.matches("[0-9]{1,9}") ? Integer.parseInt(text) : -1;
    if (number < least || number > most) {
      throw new IllegalArgumentException(key + ": " + text + " is not a whole number from " + least + " to " + most);
    }
    return number;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Settings && properties.equals(((Settings) other).properties);
  }

  @Override
  public int hashCode() {
    return Objects.hash(properties);
  }

  /** Where to; without the token. */
  @Override
  public String toString() {
    return topic() == null ? String.valueOf(endpoint()) : "topic " + topic();
  }
}

package afterwrite.hook;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class KafkaSinkTest {
  private static final Map<String, String> PROPERTIES =
      Map.of("afterwrite.kafka.topic", "commits", "afterwrite.kafka.bootstrap.servers", "b:9092", "afterwrite.kafka.compression.type", "gzip");

  private static MockProducer<String, String> producer(boolean answers) {
    return new MockProducer<>(answers, null, new StringSerializer(), new StringSerializer());
  }

  @Test
  void events_are_keyed_by_their_table() throws Exception {
    MockProducer<String, String> producer = producer(true);
    KafkaSink sink = new KafkaSink(Settings.of(PROPERTIES), producer);
    sink.send(List.of(new Sink.Message("lake.db.a", "{1}"), new Sink.Message("lake.db.b", "{2}")));
    assertEquals(List.of("commits lake.db.a {1}", "commits lake.db.b {2}"),
        producer.history().stream().map(r -> r.topic() + " " + r.key() + " " + r.value()).collect(Collectors.toList()));
    sink.close();
    assertTrue(producer.closed());
  }

  @Test
  void a_record_that_the_broker_does_not_take_is_told() {
    MockProducer<String, String> producer = producer(false);
    KafkaSink sink = new KafkaSink(Settings.of(PROPERTIES), producer);
    new Thread(() -> {
      while (!producer.errorNext(new IllegalStateException("no"))) {
        FakeSidecar.pause(5);
      }
    }).start();
    assertThrows(ExecutionException.class, () -> sink.send(List.of(new Sink.Message("a", "b"))));
  }

  @Test
  void the_producers_settings_are_those_behind_the_prefix() {
    assertEquals(Map.of("bootstrap.servers", "b:9092", "compression.type", "gzip"), Settings.of(PROPERTIES).producer());
  }

  /** As on a class path without kafka-clients. */
  private static final class WithoutKafka extends ClassLoader {
    WithoutKafka() {
      super(KafkaSinkTest.class.getClassLoader());
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      if (name.startsWith("org.apache.kafka.")) {
        throw new ClassNotFoundException(name);
      }
      if (!name.startsWith("afterwrite.hook.")) {
        return super.loadClass(name, resolve);
      }
      Class<?> loaded = findLoadedClass(name);
      if (loaded != null) {
        return loaded;
      }
      try (InputStream in = getParent().getResourceAsStream(name.replace('.', '/') + ".class")) {
        byte[] bytes = in.readAllBytes();
        return defineClass(name, bytes, 0, bytes.length);
      } catch (IOException e) {
        throw new ClassNotFoundException(name, e);
      }
    }
  }

  @Test
  void without_kafkas_classes_http_works_and_kafka_drops() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar()) {
      Class<?> type = new WithoutKafka().loadClass("afterwrite.hook.CommitReporter");
      for (Map<String, String> properties : List.of(Map.of("afterwrite.endpoint", sidecar.endpoint()), PROPERTIES)) {
        org.apache.iceberg.metrics.MetricsReporter reporter = (org.apache.iceberg.metrics.MetricsReporter) type.getConstructor().newInstance();
        reporter.initialize(properties);
        reporter.report(CommitReporterTest.report("lake.db.t", 7));
        reporter.close();
      }
      assertEquals(1, sidecar.heard.size());
      assertEquals("spark 4.1 a\"1", sidecar.heard.get(0).get("sender").asText());
    }
  }

  @Test
  void a_broker_that_is_away_drops_within_the_time_out() {
    Map<String, String> away = Map.of("afterwrite.kafka.topic", "t", "afterwrite.kafka.bootstrap.servers", "127.0.0.1:1", "afterwrite.timeout-ms", "100");
    Outbox outbox = new Outbox(Settings.of(away), Sink::open).start();
    outbox.offer(new Commit("lake.db.t", 1, null, ""));
    while (outbox.counts()[2] < 1) {
      FakeSidecar.pause(10);
    }
    outbox.close();
    assertArrayEquals(new long[] {1, 0, 1}, outbox.counts());
  }
}

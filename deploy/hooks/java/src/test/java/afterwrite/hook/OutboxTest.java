package afterwrite.hook;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class OutboxTest {
  private static Settings settings(String... more) {
    Map<String, String> properties = new java.util.HashMap<>(Map.of("afterwrite.endpoint", "http://127.0.0.1:1"));
    for (int i = 0; i < more.length; i += 2) {
      properties.put(more[i], more[i + 1]);
    }
    return Settings.of(properties);
  }

  private static Commit commit(String table, long snapshot) {
    return new Commit(table, snapshot, Map.of(), "");
  }

  /** Fails as often as it is told to. */
  private static final class Flaky implements Sink {
    final List<String> sent = new ArrayList<>();
    final CountDownLatch gate;
    int failures;

    Flaky(int failures, CountDownLatch gate) {
      this.failures = failures;
      this.gate = gate;
    }

    @Override
    public void send(List<Message> messages) throws Exception {
      gate.await();
      if (failures-- > 0) {
        throw new java.io.IOException("away");
      }
      messages.forEach(m -> sent.add(m.json));
    }

    @Override
    public void close() {}
  }

  @Test
  void what_finds_no_room_is_dropped_and_counted_and_offering_never_waits() throws Exception {
    CountDownLatch gate = new CountDownLatch(1);
    Flaky sink = new Flaky(0, gate);
    Outbox outbox = new Outbox(settings("afterwrite.queue-size", "8"), s -> sink).start();
    Thread[] writers = new Thread[8];
    for (int w = 0; w < writers.length; w++) {
      writers[w] = new Thread(() -> {
        for (int i = 0; i < 1000; i++) {
          outbox.offer(commit("lake.db.t", i));
        }
      });
      writers[w].start();
    }
    for (Thread writer : writers) {
      writer.join(5000);
      assertTrue(!writer.isAlive(), "a writer waits for the sidecar");
    }
    gate.countDown();
    outbox.close();
    long[] counts = outbox.counts();
    assertEquals(8000, counts[0]);
    assertEquals(8000, counts[1] + counts[2]);
    assertEquals(sink.sent.size(), counts[1]);
    assertTrue(counts[1] >= 8 && counts[1] <= 8 + 64, "what the queue held, and the batch that was being sent: " + counts[1]);
  }

  @Test
  void a_short_absence_of_the_sidecar_loses_nothing() {
    Flaky sink = new Flaky(2, new CountDownLatch(0));
    Outbox outbox = new Outbox(settings("afterwrite.flush-ms", "10000"), s -> sink).start();
    outbox.offer(commit("lake.db.t", 1));
    while (outbox.counts()[1] + outbox.counts()[2] < 1) {
      FakeSidecar.pause(10);
    }
    outbox.close();
    assertArrayEquals(new long[] {1, 1, 0}, outbox.counts());
  }

  @Test
  void a_long_absence_drops_and_the_next_commit_is_told_again() {
    Flaky sink = new Flaky(3, new CountDownLatch(0));
    Outbox outbox = new Outbox(settings(), s -> sink).start();
    outbox.offer(commit("lake.db.t", 1));
    while (outbox.counts()[2] < 1) {
      FakeSidecar.pause(10);
    }
    outbox.offer(commit("lake.db.t", 2));
    outbox.close();
    assertArrayEquals(new long[] {2, 1, 1}, outbox.counts());
  }

  @Test
  void a_refusal_is_not_repeated() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar()) {
      sidecar.statuses.addAll(List.of(401, 503));
      Outbox outbox = new Outbox(Settings.of(Map.of("afterwrite.endpoint", sidecar.endpoint())), Sink::open).start();
      outbox.offer(commit("lake.db.t", 1));
      while (outbox.counts()[2] < 1) {
        FakeSidecar.pause(10);
      }
      assertEquals(1, sidecar.tokens.size());
      outbox.offer(commit("lake.db.t", 2));
      assertEquals(1, sidecar.await(1).size());
      assertEquals(3, sidecar.tokens.size(), "what may pass is tried again");
      outbox.close();
      assertArrayEquals(new long[] {2, 1, 1}, outbox.counts());
    }
  }

  @Test
  void commits_that_touch_many_partitions_are_told_in_requests_that_the_sidecar_takes() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar()) {
      sidecar.mostBytes = 4 << 20;
      Outbox outbox = new Outbox(Settings.of(Map.of("afterwrite.endpoint", sidecar.endpoint())), Sink::open);
      Map<String, String> summary = new HashMap<>();
      for (int p = 0; p < 1000; p++) {
        summary.put("partitions.day=2026-01-01/region=" + p, "added-data-files=1,added-records=5,added-files-size=500,deleted-data-files=1");
      }
      for (int i = 0; i < 64; i++) {
        outbox.offer(new Commit("lake.db.t", i, summary, ""));
      }
      outbox.start();
      assertEquals(64, sidecar.await(64).size());
      outbox.close();
      assertArrayEquals(new long[] {64, 64, 0}, outbox.counts());
      assertTrue(sidecar.tokens.size() < 16, sidecar.tokens.size() + " requests");
    }
  }

  @Test
  void whatever_a_sink_throws_the_thread_goes_on() {
    AtomicInteger opened = new AtomicInteger();
    Flaky sink = new Flaky(0, new CountDownLatch(0));
    Outbox outbox = new Outbox(settings(), s -> {
      if (opened.incrementAndGet() <= 3) {
        throw new NoClassDefFoundError("org/apache/kafka/clients/producer/KafkaProducer");
      }
      return sink;
    }).start();
    outbox.offer(commit("lake.db.t", 1));
    while (outbox.counts()[2] < 1) {
      FakeSidecar.pause(10);
    }
    outbox.offer(commit("lake.db.t", 2));
    outbox.close();
    assertArrayEquals(new long[] {2, 1, 1}, outbox.counts());
  }

  @Test
  void equal_settings_share_a_thread_until_the_last_reporter_closes() {
    long before = threads();
    Outbox one = Outbox.open(settings("afterwrite.catalog", "shared"));
    Outbox two = Outbox.open(settings("afterwrite.catalog", "shared"));
    Outbox other = Outbox.open(settings("afterwrite.catalog", "shared", "afterwrite.token", "x"));
    assertSame(one, two);
    assertNotSame(one, other);
    assertEquals(before + 2, threads());
    one.release();
    assertEquals(before + 2, threads());
    two.release();
    Outbox again = Outbox.open(settings("afterwrite.catalog", "shared"));
    assertNotSame(one, again);
    again.release();
    other.release();
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
    while (threads() > before && System.nanoTime() < end) {
      FakeSidecar.pause(20);
    }
    assertEquals(before, threads());
  }

  private static long threads() {
    return Thread.getAllStackTraces().keySet().stream().filter(t -> t.getName().equals("afterwrite-hook")).count();
  }
}

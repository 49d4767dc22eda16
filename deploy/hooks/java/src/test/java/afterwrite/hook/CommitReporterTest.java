package afterwrite.hook;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.metrics.CommitMetricsResult;
import org.apache.iceberg.metrics.ImmutableCommitMetricsResult;
import org.apache.iceberg.metrics.ImmutableCommitReport;
import org.apache.iceberg.types.Types;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The reporter in a real catalog of Iceberg's. */
@Timeout(60)
class CommitReporterTest {
  private static final Schema SCHEMA =
      new Schema(Types.NestedField.required(1, "id", Types.LongType.get()), Types.NestedField.required(2, "region", Types.StringType.get()));
  private static final PartitionSpec SPEC = PartitionSpec.builderFor(SCHEMA).identity("region").build();

  private static InMemoryCatalog catalog(String... properties) {
    Map<String, String> all = new HashMap<>(Map.of("metrics-reporter-impl", CommitReporter.class.getName()));
    for (int i = 0; i < properties.length; i += 2) {
      all.put(properties[i], properties[i + 1]);
    }
    InMemoryCatalog catalog = new InMemoryCatalog();
    catalog.initialize("lake", all);
    catalog.createNamespace(Namespace.of("db"));
    return catalog;
  }

  private static Table table(InMemoryCatalog catalog, String name) {
    TableIdentifier id = TableIdentifier.of("db", name);
    return catalog.createTable(id, SCHEMA, SPEC, Map.of("write.summary.partition-limit", "10"));
  }

  private static DataFile file(String region, long rows) {
    return DataFiles.builder(SPEC).withPath("/data/region=" + region + "/" + System.nanoTime() + ".parquet").withFileSizeInBytes(rows * 100)
        .withPartitionPath("region=" + region).withRecordCount(rows).build();
  }

  @Test
  void a_commit_is_told_with_its_snapshot_its_counts_and_its_partitions() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar();
        InMemoryCatalog catalog = catalog("afterwrite.endpoint", sidecar.endpoint(), "afterwrite.token", "s3cret")) {
      Table table = table(catalog, "orders");
      table.newAppend().appendFile(file("eu", 3)).appendFile(file("us", 5)).commit();
      JsonNode event = sidecar.await(1).get(0);
      assertEquals("lake.db.orders", event.get("table").asText());
      assertEquals(1, event.get("snapshots").size());
      JsonNode snapshot = event.get("snapshots").get(0);
      assertEquals(Long.toString(table.currentSnapshot().snapshotId()), snapshot.get("snapshotId").asText());
      assertEquals("{\"dataFiles\":\"2\",\"records\":\"8\",\"bytes\":\"800\"}", snapshot.get("added").toString());
      Map<String, String> partitions = new HashMap<>();
      snapshot.get("partitions").forEach(p -> partitions.put(p.get("path").asText(), p.get("added").toString()));
      assertEquals(Map.of("region=eu", "{\"dataFiles\":\"1\",\"records\":\"3\",\"bytes\":\"300\"}",
          "region=us", "{\"dataFiles\":\"1\",\"records\":\"5\",\"bytes\":\"500\"}"), partitions);
      assertEquals(List.of("Bearer s3cret"), sidecar.tokens);
    }
  }

  @Test
  void every_commit_is_told_under_the_name_that_the_sidecar_has_for_the_catalog() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar();
        InMemoryCatalog catalog = catalog("afterwrite.endpoint", sidecar.endpoint() + "/", "afterwrite.catalog", "prod")) {
      Table table = table(catalog, "t");
      for (int i = 0; i < 100; i++) {
        table.newFastAppend().appendFile(file("r", 1)).commit();
      }
      List<String> told = sidecar.await(100).stream().map(e -> e.get("snapshots").get(0).get("snapshotId").asText()).collect(Collectors.toList());
      List<String> made = new java.util.ArrayList<>();
      table.snapshots().forEach(s -> made.add(Long.toString(s.snapshotId())));
      assertEquals(made, told);
      assertEquals(List.of("prod.db.t"), sidecar.heard.stream().map(e -> e.get("table").asText()).distinct().collect(Collectors.toList()));
    }
  }

  @Test
  void h103_an_abandoned_transaction_is_told_although_it_never_lands() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar(); InMemoryCatalog catalog = catalog("afterwrite.endpoint", sidecar.endpoint())) {
      Table table = table(catalog, "t");
      Transaction transaction = table.newTransaction();
      transaction.newAppend().appendFile(file("r", 1)).commit();
      assertEquals(1, sidecar.await(1).size());
      table.refresh();
      assertEquals(null, table.currentSnapshot(), "the hook cannot know it: the sidecar looks, and looks again");
    }
  }

  private static void make(InMemoryCatalog catalog, String name) {
    Transaction made = catalog.buildTable(TableIdentifier.of("db", name), SCHEMA).withPartitionSpec(SPEC).createTransaction();
    made.newAppend().appendFile(file("eu", 4)).commit();
    made.commitTransaction();
  }

  private static List<String> tables(List<JsonNode> heard) {
    return heard.stream().map(e -> e.get("table").asText()).collect(Collectors.toList());
  }

  @Test
  void a_table_made_from_a_query_is_told_with_its_catalog_which_its_report_lacks() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar(); InMemoryCatalog catalog = catalog("afterwrite.endpoint", sidecar.endpoint())) {
      table(catalog, "t").newAppend().appendFile(file("r", 1)).commit();
      make(catalog, "made");
      assertEquals(List.of("lake.db.t", "lake.db.made"), tables(sidecar.await(2)));
    }
  }

  @Test
  void the_first_commit_of_a_session_may_be_such_a_table_when_the_catalog_is_set() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar();
        InMemoryCatalog catalog = catalog("afterwrite.endpoint", sidecar.endpoint(), "afterwrite.catalog", "prod")) {
      make(catalog, "made");
      assertEquals(List.of("prod.db.made"), tables(sidecar.await(1)));
    }
  }

  @Test
  void a_name_that_may_lack_its_catalog_is_told_both_ways() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar()) {
      CommitReporter reporter = new CommitReporter();
      reporter.initialize(Map.of("afterwrite.endpoint", sidecar.endpoint()));
      reporter.report(report("lake.a.b.t", 1));
      reporter.report(report("a.b.made", 2));
      reporter.close();
      assertEquals(List.of("lake.a.b.t", "a.b.made", "lake.a.b.made"), tables(sidecar.heard));
    }
  }

  @Test
  void a_sidecar_that_is_away_or_never_answers_neither_slows_nor_fails_a_commit() throws Exception {
    try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
      ServerSocket gone = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
      gone.close();
      for (int port : new int[] {silent.getLocalPort(), gone.getLocalPort()}) {
        InMemoryCatalog catalog = catalog("afterwrite.endpoint", "http://127.0.0.1:" + port, "afterwrite.queue-size", "4", "afterwrite.flush-ms", "200");
        Table table = table(catalog, "t");
        long start = System.nanoTime();
        for (int i = 0; i < 50; i++) {
          table.newFastAppend().appendFile(file("r", 1)).commit();
        }
        long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(took < 20_000, "50 commits took " + took + " ms");
        start = System.nanoTime();
        catalog.close();
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(10), "closing waits no longer than it may");
        int snapshots = 0;
        for (Object ignored : table.snapshots()) {
          snapshots++;
        }
        assertEquals(50, snapshots);
      }
    }
  }

  @Test
  void settings_that_are_wrong_leave_the_catalog_as_it_is_without_the_hook() throws Exception {
    String[][] wrong = {
      {}, {"afterwrite.endpoint", "sidecar:7412"}, {"afterwrite.endpoint", "::"}, {"afterwrite.endpoint", "http://h", "afterwrite.kafka.topic", "t"},
      {"afterwrite.kafka.topic", "t"}, {"afterwrite.endpoint", "http://127.0.0.1:1", "afterwrite.queue-size", "many"},
      {"afterwrite.kafka.topic", "t", "afterwrite.kafka.bootstrap.servers", "no broker", "afterwrite.flush-ms", "100"},
    };
    for (String[] properties : wrong) {
      try (InMemoryCatalog catalog = catalog(properties)) {
        Table table = table(catalog, "t");
        table.newAppend().appendFile(file("r", 1)).commit();
        assertNotNull(table.currentSnapshot());
      }
    }
  }

  @Test
  void closing_waits_a_little_for_what_is_in_the_queue() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar()) {
      sidecar.delayMs = 300;
      InMemoryCatalog catalog = catalog("afterwrite.endpoint", sidecar.endpoint());
      table(catalog, "t").newAppend().appendFile(file("r", 1)).commit();
      catalog.close();
      assertEquals(1, sidecar.heard.size());
    }
  }

  /** A program that ends right after its commit, without closing anything. */
  static final class Short {
    public static void main(String[] args) {
      CommitReporter reporter = new CommitReporter();
      reporter.initialize(Map.of("afterwrite.endpoint", args[0]));
      reporter.report(CommitReporterTest.report("lake.db.last", 7));
    }
  }

  @Test
  void a_short_program_tells_its_last_commit() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar()) {
      String java = System.getProperty("java.home") + "/bin/java";
      Process program = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), Short.class.getName(), sidecar.endpoint()).inheritIO().start();
      assertTrue(program.waitFor(30, TimeUnit.SECONDS));
      assertEquals(List.of("lake.db.last"), tables(sidecar.heard));
    }
  }

  @Test
  void a_reporter_that_was_serialized_still_tells_and_takes_no_foreign_secret_along() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar()) {
      CommitReporter reporter = new CommitReporter();
      reporter.initialize(Map.of("afterwrite.endpoint", sidecar.endpoint(), "s3.secret-access-key", "hush"));
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      new ObjectOutputStream(bytes).writeObject(reporter);
      assertTrue(!bytes.toString().contains("hush"));
      reporter.close();
      CommitReporter copy = (CommitReporter) new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject();
      copy.report(report("lake.db.t", 7));
      assertEquals("7", sidecar.await(1).get(0).get("snapshots").get(0).get("snapshotId").asText());
      copy.close();
      copy.report(report("lake.db.t", 8));
      assertEquals(1, sidecar.heard.size());
    }
  }

  @Test
  void reports_before_any_settings_and_of_other_kinds_are_passed_over() {
    CommitReporter reporter = new CommitReporter();
    assertDoesNotThrow(() -> reporter.report(report("lake.db.t", 7)));
    assertDoesNotThrow(() -> reporter.report(null));
    assertDoesNotThrow(() -> reporter.initialize(null));
    assertDoesNotThrow(reporter::close);
    assertDoesNotThrow(reporter::close);
  }

  @Test
  void a_program_without_a_catalog_may_listen_to_all_its_tables() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar(); InMemoryCatalog catalog = new InMemoryCatalog()) {
      SnapshotListener.install(Map.of("afterwrite.endpoint", sidecar.endpoint(), "afterwrite.catalog", "lake"));
      catalog.initialize("theirs", Map.of());
      catalog.createNamespace(Namespace.of("db"));
      table(catalog, "t").newAppend().appendFile(file("eu", 1)).commit();
      JsonNode event = sidecar.await(1).get(0);
      assertEquals("lake.db.t", event.get("table").asText());
      assertEquals("region=eu", event.get("snapshots").get(0).get("partitions").get(0).get("path").asText());
    } finally {
      SnapshotListener.install(Map.of("afterwrite.endpoint", "http://127.0.0.1:1"));
    }
  }

  static ImmutableCommitReport report(String table, long snapshot) {
    CommitMetricsResult metrics = ImmutableCommitMetricsResult.builder().build();
    return ImmutableCommitReport.builder().tableName(table).snapshotId(snapshot).sequenceNumber(1).operation("append").commitMetrics(metrics)
        .metadata(Map.of("engine-name", "spark", "engine-version", "4.1", "app-id", "a\"1")).build();
  }
}

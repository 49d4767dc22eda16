package afterwrite.hook;

import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.metrics.CommitMetricsResult;
import org.apache.iceberg.metrics.CommitReport;
import org.apache.iceberg.metrics.CounterResult;

/** A snapshot that was made, as its maker tells it. */
final class Commit {
  /** As the engine names it: its name of the catalog, namespaces and table with dots between. */
  final String table;

  final long snapshot;
  /** The snapshot's summary, or as much of it as is known. */
  final Map<String, String> summary;
  /** The engine, for people. */
  final String sender;

  Commit(String table, long snapshot, Map<String, String> summary, String sender) {
    this.table = table;
    this.snapshot = snapshot;
    this.summary = summary == null ? Map.of() : summary;
    this.sender = sender;
  }

  static Commit of(CommitReport report, String table, Map<String, String> summary) {
    Map<String, String> known = summary == null ? counts(report.commitMetrics()) : summary;
    return new Commit(table, report.snapshotId(), known, sender(report.metadata()));
  }

  private static String sender(Map<String, String> context) {
    if (context == null || !context.containsKey("engine-name")) {
      return "";
    }
    String app = context.get("app-id");
    return context.get("engine-name") + " " + context.getOrDefault("engine-version", "") + (app == null ? "" : " " + app);
  }

  private static Map<String, String> counts(CommitMetricsResult metrics) {
    Map<String, String> counts = new HashMap<>();
    if (metrics != null) {
      put(counts, "added-data-files", metrics.addedDataFiles());
      put(counts, "added-delete-files", metrics.addedDeleteFiles());
      put(counts, "added-records", metrics.addedRecords());
      put(counts, "added-files-size", metrics.addedFilesSizeInBytes());
      put(counts, "deleted-data-files", metrics.removedDataFiles());
      put(counts, "removed-delete-files", metrics.removedDeleteFiles());
      put(counts, "deleted-records", metrics.removedRecords());
      put(counts, "removed-files-size", metrics.removedFilesSizeInBytes());
    }
    return counts;
  }

  private static void put(Map<String, String> counts, String key, CounterResult counter) {
    if (counter != null) {
      counts.put(key, Long.toString(counter.value()));
    }
  }
}

package afterwrite.hook;

import java.util.HashMap;
import java.util.Map;

/** Afterwrite's own event in JSON: a commit by the sidecar's name of the table. */
final class Event {
  private static final String PARTITION = "partitions.";
  /** A commit that touches more is told without them: the sidecar reads them from the table anyway. */
  private static final int MOST_PARTITIONS = 1000;

  private Event() {}

  /**
   * The sidecar's name of a table.
   *
   * @param table the engine's name; after a catalog that is named by its address comes a slash; the catalog may be missing
   * @param catalog the sidecar's name of the catalog; {@code null} when both call it the same
   * @return {@code null} for what lies in no catalog that is known, such as a table that is named by its folder
   */
  static String name(String table, String catalog) {
    int slash = table.lastIndexOf('/');
    int dot = table.indexOf('.', slash + 1);
    if (dot <= slash + 1 || table.endsWith(".")) {
      return null;
    }
    if (slash >= 0 || table.indexOf('.', dot + 1) < 0) {
      return catalog == null ? null : catalog + "." + table.substring(slash + 1);
    }
    return catalog == null ? table : catalog + table.substring(dot);
  }

  /** The event's text. */
  static String json(Commit commit, String name) {
    StringBuilder json = new StringBuilder(256);
    json.append("{\"table\":");
    text(json, name);
    json.append(",\"snapshots\":[{\"snapshotId\":\"").append(commit.snapshot).append('"');
    counts(json, commit.summary);
    partitions(json, commit.summary);
    json.append("}],\"sender\":");
    text(json, commit.sender.isEmpty() ? "iceberg hook" : commit.sender);
    return json.append('}').toString();
  }

  private static void partitions(StringBuilder json, Map<String, String> summary) {
    long touched = summary.keySet().stream().filter(key -> key.startsWith(PARTITION)).count();
    if (touched == 0 || touched > MOST_PARTITIONS) {
      return;
    }
    json.append(",\"partitions\":[");
    String comma = "";
    for (Map.Entry<String, String> entry : summary.entrySet()) {
      if (entry.getKey().startsWith(PARTITION)) {
        json.append(comma).append("{\"path\":");
        text(json, entry.getKey().substring(PARTITION.length()));
        counts(json, pairs(entry.getValue()));
        json.append('}');
        comma = ",";
      }
    }
    json.append(']');
  }

  /** {@code added-data-files=1,added-records=5} as a map. */
  private static Map<String, String> pairs(String text) {
    Map<String, String> pairs = new HashMap<>();
    for (String pair : text.split(",")) {
      int equals = pair.indexOf('=');
      if (equals > 0) {
        pairs.put(pair.substring(0, equals), pair.substring(equals + 1));
      }
    }
    return pairs;
  }

  private static void counts(StringBuilder json, Map<String, String> summary) {
    count(json, "added", summary, "added-data-files", "added-delete-files", "added-records", "added-files-size");
    count(json, "removed", summary, "deleted-data-files", "removed-delete-files", "deleted-records", "removed-files-size");
  }

  private static void count(StringBuilder json, String name, Map<String, String> summary, String... keys) {
    String[] names = {"dataFiles", "deleteFiles", "records", "bytes"};
    StringBuilder counts = new StringBuilder();
    for (int i = 0; i < names.length; i++) {
      String value = summary.get(keys[i]);
      if (value != null && value.matches("[0-9]{1,18}")) {
        counts.append(counts.length() == 0 ? "" : ",").append('"').append(names[i]).append("\":\"").append(value).append('"');
      }
    }
    if (counts.length() > 0) {
      json.append(",\"").append(name).append("\":{").append(counts).append('}');
    }
  }

  private static void text(StringBuilder json, String text) {
    json.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        json.append('\\').append(c);
      } else if (c < 0x20) {
        json.append(String.format("\\u%04x", (int) c));
      } else {
        json.append(c);
      }
    }
    json.append('"');
  }
}

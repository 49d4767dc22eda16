// Streaming jobs with Iceberg's sink in one process, driven line by line over standard input, one JSON object a line:
//   {"do": "open", "table": "db.t", "keys": ["id"], "sink": "v2", "catalog": {"uri": …}}   a job; with keys it upserts
//   {"do": "write", "table": "db.t", "rows": [["+I", 1, "a"], ["-D", 2, null]]}             one checkpoint, answered once it is committed
//   {"do": "close", "table": "db.t"}                                                         the job ends
//   {"do": "follow", "table": "db.t", "snapshot": "1", "catalog": {"uri": …}}               a job that reads each commit from this one on
//   {"do": "seen", "table": "db.t"}                                                          the first column of all rows it has read
//   {"do": "leave", "table": "db.t"}                                                         the reading job ends
// Every line is answered by one line that starts with "=" and holds JSON.
package afterwrite.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericArrayData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.types.RowKind;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.flink.CatalogLoader;
import org.apache.iceberg.flink.FlinkSchemaUtil;
import org.apache.iceberg.flink.TableLoader;
import org.apache.iceberg.flink.sink.FlinkSink;
import org.apache.iceberg.flink.sink.IcebergSink;
import org.apache.iceberg.flink.source.IcebergSource;
import org.apache.iceberg.flink.source.StreamingStartingStrategy;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

public class FlinkWriter {
  private static final ObjectMapper JSON = new ObjectMapper();
  /** The source runs in this process, so it finds its batches here: no more than one is ever under way. */
  private static final Map<String, BlockingQueue<List<RowData>>> BATCHES = new ConcurrentHashMap<>();
  private static final List<RowData> END = List.of();
  private final Map<String, Job> jobs = new HashMap<>();
  private final Map<String, JobClient> readers = new HashMap<>();
  /** What the reading jobs have read: they run in this process too. */
  private static final Map<String, List<Long>> SEEN = new ConcurrentHashMap<>();

  private record Job(Catalog catalog, TableIdentifier table, List<Types.NestedField> columns, JobClient client) {}

  public static void main(String[] args) throws Exception {
    FlinkWriter writer = new FlinkWriter();
    answer(Map.of("ready", true));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      try {
        answer(writer.carryOut(JSON.readTree(line)));
      } catch (Exception e) {
        e.printStackTrace();
        answer(Map.of("error", String.valueOf(e)));
      }
    }
    System.exit(0);
  }

  private static void answer(Map<String, Object> answer) throws Exception {
    System.out.println("=" + JSON.writeValueAsString(answer));
    System.out.flush();
  }

  private Map<String, Object> carryOut(JsonNode order) throws Exception {
    String name = order.get("table").asText();
    switch (order.get("do").asText()) {
      case "open": jobs.put(name, open(name, order)); return Map.of("open", name);
      case "write": return write(jobs.get(name), name, order.get("rows"));
      case "close": {
        BATCHES.get(name).put(END);
        Job job = jobs.remove(name);
        job.client().getJobExecutionResult().get(60, TimeUnit.SECONDS);
        ((AutoCloseable) job.catalog()).close();
        return Map.of("closed", name);
      }
      case "follow": readers.put(name, follow(name, order)); return Map.of("follow", name);
      case "seen": {
        if (readers.get(name).getJobStatus().get().isTerminalState()) {
          readers.get(name).getJobExecutionResult().get();
        }
        return Map.of("seen", List.copyOf(SEEN.get(name)));
      }
      case "leave": readers.remove(name).cancel().get(60, TimeUnit.SECONDS); return Map.of("left", name);
      default: throw new IllegalArgumentException("unknown order " + order);
    }
  }

  private static CatalogLoader loader(JsonNode order) {
    Map<String, String> properties = new HashMap<>();
    order.get("catalog").fields().forEachRemaining(e -> properties.put(e.getKey(), e.getValue().asText()));
    return CatalogLoader.custom("lake", properties, new org.apache.hadoop.conf.Configuration(), "org.apache.iceberg.jdbc.JdbcCatalog");
  }

  /** A streaming read of what each snapshot added, from the given one on. */
  private static JobClient follow(String name, JsonNode order) throws Exception {
    SEEN.put(name, new CopyOnWriteArrayList<>());
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, memory());
    env.enableCheckpointing(250);
    IcebergSource.forRowData()
        .tableLoader(TableLoader.fromCatalog(loader(order), TableIdentifier.parse(name)))
        .streaming(true)
        .streamingStartingStrategy(StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_ID)
        .startSnapshotId(order.get("snapshot").asLong())
        .monitorInterval(Duration.ofMillis(200))
        .buildStream(env)
        .addSink(new Seen(name));
    return env.executeAsync(name + " read");
  }

  private static Job open(String name, JsonNode order) throws Exception {
    CatalogLoader loader = loader(order);
    Catalog catalog = loader.loadCatalog();
    TableIdentifier id = TableIdentifier.parse(name);
    Table table = catalog.loadTable(id);
    List<String> keys = new ArrayList<>();
    order.get("keys").forEach(k -> keys.add(k.asText()));
    BATCHES.put(name, new LinkedBlockingQueue<>());
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, memory());
    env.enableCheckpointing(250);
    DataStream<RowData> rows = env.addSource(new Batches(name), InternalTypeInfo.of(FlinkSchemaUtil.convert(table.schema())));
    TableLoader target = TableLoader.fromCatalog(loader, id);
    if (order.get("sink").asText().equals("v1")) {
      FlinkSink.Builder sink = FlinkSink.forRowData(rows).tableLoader(target).writeParallelism(1).uidPrefix(name);
      (keys.isEmpty() ? sink : sink.upsert(true).equalityFieldColumns(keys)).append();
    } else {
      IcebergSink.Builder sink = IcebergSink.forRowData(rows).tableLoader(target).writeParallelism(1).uidSuffix(name);
      (keys.isEmpty() ? sink : sink.upsert(true).equalityFieldColumns(keys)).append();
    }
    return new Job(catalog, id, table.schema().columns(), env.executeAsync(name));
  }

  private static Configuration memory() {
    Configuration conf = new Configuration();
    conf.set(TaskManagerOptions.TASK_OFF_HEAP_MEMORY, MemorySize.ofMebiBytes(64));
    conf.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(32));
    conf.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(16));
    conf.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(16));
    conf.set(RestOptions.BIND_ADDRESS, "127.0.0.1");
    conf.set(RestOptions.ADDRESS, "127.0.0.1");
    conf.setString("restart-strategy.type", "none");
    return conf;
  }

  /** Hands one batch to the job and waits for the snapshot that its checkpoint makes. */
  private static Map<String, Object> write(Job job, String name, JsonNode rows) throws Exception {
    Table table = job.catalog().loadTable(job.table());
    Snapshot before = checkpoint(table);
    List<RowData> batch = new ArrayList<>();
    for (JsonNode row : rows) {
      batch.add(row(job.columns(), row));
    }
    BATCHES.get(name).put(batch);
    for (int i = 0; i < 1200; i++) {
      if (job.client().getJobStatus().get().isTerminalState()) {
        job.client().getJobExecutionResult().get();
      }
      table.refresh();
      Snapshot newest = checkpoint(table);
      if (newest != null && (before == null || newest.sequenceNumber() > before.sequenceNumber())) {
        return Map.of("snapshot_id", String.valueOf(newest.snapshotId()), "summary", newest.summary());
      }
      Thread.sleep(50);
    }
    throw new IllegalStateException("no checkpoint was committed within a minute");
  }

  /** The newest checkpoint of any Flink job that brought rows or deletes; a job that idles commits empty ones, too. */
  private static Snapshot checkpoint(Table table) {
    Snapshot newest = null;
    for (Snapshot snapshot : table.snapshots()) {
      Map<String, String> told = snapshot.summary();
      boolean brings = told.containsKey("added-data-files") || told.containsKey("added-delete-files");
      if (brings && told.containsKey("flink.max-committed-checkpoint-id")
          && (newest == null || snapshot.sequenceNumber() > newest.sequenceNumber())) {
        newest = snapshot;
      }
    }
    return newest;
  }

  private static RowData row(List<Types.NestedField> columns, JsonNode from) {
    GenericRowData row = new GenericRowData(columns.size());
    row.setRowKind(from.get(0).asText().equals("-D") ? RowKind.DELETE : RowKind.INSERT);
    for (int i = 0; i < columns.size(); i++) {
      row.setField(i, value(columns.get(i).type(), from.get(i + 1)));
    }
    return row;
  }

  private static Object value(Type type, JsonNode from) {
    if (from.isNull()) {
      return null;
    }
    switch (type.typeId()) {
      case BOOLEAN: return from.asBoolean();
      case INTEGER: return from.intValue();
      case LONG: return from.longValue();
      case FLOAT: return (float) from.asDouble();
      case DOUBLE: return from.asDouble();
      case DATE: return (int) LocalDate.parse(from.asText()).toEpochDay();
      case TIMESTAMP: return TimestampData.fromLocalDateTime(LocalDateTime.parse(from.asText()));
      case DECIMAL: {
        Types.DecimalType decimal = (Types.DecimalType) type;
        return DecimalData.fromBigDecimal(new BigDecimal(from.asText()), decimal.precision(), decimal.scale());
      }
      case BINARY: return Base64.getDecoder().decode(from.asText());
      case LIST: {
        List<Object> values = new ArrayList<>();
        from.forEach(v -> values.add(value(((Types.ListType) type).elementType(), v)));
        return new GenericArrayData(values.toArray());
      }
      default: return StringData.fromString(from.asText());
    }
  }

  /** Keeps the first column of what was read. */
  public static class Seen implements SinkFunction<RowData> {
    private final String name;

    Seen(String name) {
      this.name = name;
    }

    @Override
    public void invoke(RowData row, Context context) {
      SEEN.get(name).add(row.getLong(0));
    }
  }

  /** Emits one batch, then nothing until the checkpoint that holds it is complete: one batch a commit. */
  public static class Batches implements SourceFunction<RowData>, CheckpointListener {
    private final String name;
    private volatile boolean running = true;
    private volatile long completed;

    Batches(String name) {
      this.name = name;
    }

    @Override
    public void run(SourceContext<RowData> context) throws Exception {
      while (running) {
        List<RowData> batch = BATCHES.get(name).poll(100, TimeUnit.MILLISECONDS);
        if (batch == END) {
          return;
        }
        if (batch != null) {
          long seen;
          synchronized (context.getCheckpointLock()) {
            seen = completed;
            batch.forEach(context::collect);
          }
          while (running && completed == seen) {
            Thread.sleep(10);
          }
        }
      }
    }

    @Override
    public void notifyCheckpointComplete(long id) {
      completed = id;
    }

    @Override
    public void cancel() {
      running = false;
    }
  }
}

package afterwrite.hook;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.iceberg.events.CreateSnapshotEvent;
import org.apache.iceberg.events.Listeners;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hears of every snapshot that this JVM makes, with its whole summary, which reports lack: touched partitions are in it when the
 * table has {@code write.summary.partition-limit}.
 *
 * <p>Iceberg calls it in the committing thread, just before the report of the same snapshot. Reporters register it; a program whose
 * tables have no reporter (Hadoop tables without a catalog) may call {@link #install}.
 */
public final class SnapshotListener {
  private static final Logger LOG = LoggerFactory.getLogger(SnapshotListener.class);
  /** Summaries that no report takes (of catalogs without the hook) make room for newer ones. */
  private static final int KEPT = 256;

  private static final AtomicBoolean REGISTERED = new AtomicBoolean();
  private static final Map<Long, Map<String, String>> SUMMARIES = new Latest();
  private static volatile Outbox all;

  private SnapshotListener() {}

  /** Registers itself with Iceberg, once. */
  static void register() {
    if (REGISTERED.compareAndSet(false, true)) {
      Listeners.register(SnapshotListener::heard, CreateSnapshotEvent.class);
    }
  }

  /**
   * Tells of the snapshots of all tables in this JVM, whatever catalog they are in. Never fails.
   *
   * @param properties as a catalog's, see {@link Settings}
   */
  public static synchronized void install(Map<String, String> properties) {
    try {
      register();
      Outbox before = all;
      all = Outbox.open(Settings.of(properties));
      if (before != null) {
        before.release();
      }
    } catch (Throwable e) {
      LOG.warn("afterwrite hears nothing of this program's commits: {}", e.toString());
    }
  }

  private static void heard(CreateSnapshotEvent event) {
    try {
      Map<String, String> summary = event.summary();
      synchronized (SUMMARIES) {
        SUMMARIES.put(event.snapshotId(), summary);
      }
      Outbox to = all;
      if (to != null) {
        to.offer(new Commit(event.tableName(), event.snapshotId(), summary, ""));
      }
    } catch (Throwable e) {
      LOG.debug("a snapshot is not told", e);
    }
  }

  /** The summary of a snapshot just made, once; {@code null} when it was not heard. */
  static Map<String, String> summaryOf(long snapshot) {
    synchronized (SUMMARIES) {
      return SUMMARIES.remove(snapshot);
    }
  }

  private static final class Latest extends LinkedHashMap<Long, Map<String, String>> {
    private static final long serialVersionUID = 1L;

    @Override
    protected boolean removeEldestEntry(Map.Entry<Long, Map<String, String>> eldest) {
      return size() > KEPT;
    }
  }
}

package afterwrite.hook;

import java.io.Serializable;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.metrics.CommitReport;
import org.apache.iceberg.metrics.MetricsReport;
import org.apache.iceberg.metrics.MetricsReporter;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells afterwrite of every commit that goes through a catalog.
 *
 * <p>Configured by catalog properties: {@code metrics-reporter-impl=afterwrite.hook.CommitReporter}, and {@link Settings}. Works
 * with every kind of catalog, and beside a REST catalog's own reporter.
 *
 * <p>Called in the committing thread, so it only puts the commit into a bounded queue. Nothing that goes wrong here reaches the
 * writer: an event is a hint, and a commit that is not told is found by the sidecar's poller. A report of a transaction comes
 * before the transaction's commit, and of one that is abandoned too: the sidecar looks at the table, and again a little later.
 */
public class CommitReporter implements MetricsReporter, Serializable {
  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger(CommitReporter.class);

  private Settings settings;
  private boolean closed;
  private transient Outbox outbox;
  /** The engine's name of the catalog, once a report has told it. */
  private String catalog;

  /** Iceberg makes reporters by this constructor. */
  public CommitReporter() {}

  @Override
  public void initialize(Map<String, String> properties) {
    try {
      SnapshotListener.register();
      synchronized (this) {
        settings = Settings.of(properties);
        outbox();
      }
    } catch (Throwable e) {
      LOG.warn("afterwrite hears nothing of this catalog's commits: {}", e.toString());
    }
  }

  @Override
  public void report(MetricsReport report) {
    try {
      if (report instanceof CommitReport) {
        CommitReport commit = (CommitReport) report;
        Map<String, String> summary = SnapshotListener.summaryOf(commit.snapshotId());
        Outbox to = outbox();
        if (to != null) {
          for (String table : names(commit.tableName())) {
            to.offer(Commit.of(commit, table, summary));
          }
        }
      }
    } catch (Throwable e) {
      LOG.debug("a commit is not told", e);
    }
  }

  /**
   * The table's name with its catalog. The report of a table that is made from a query may lack it; where namespaces have levels
   * that does not show, and both readings are told.
   */
  private synchronized List<String> names(String table) {
    if (table.indexOf('/') >= 0) {
      return List.of(table);
    }
    int dot = table.indexOf('.');
    boolean mayHaveIt = dot >= 0 && table.indexOf('.', dot + 1) >= 0;
    if (mayHaveIt && (catalog == null || catalog.equals(table.substring(0, dot)))) {
      catalog = table.substring(0, dot);
      return List.of(table);
    }
    if (catalog == null) {
      return List.of(table);
    }
    String whole = catalog + "." + table;
    return mayHaveIt ? List.of(table, whole) : List.of(whole);
  }

  /** The queue; {@code null} while nothing is configured. A copy that was serialized finds it again at its first commit. */
  private synchronized Outbox outbox() {
    if (outbox == null && settings != null && !closed) {
      outbox = Outbox.open(settings);
    }
    return outbox;
  }

  @Override
  public void close() {
    try {
      Outbox last;
      synchronized (this) {
        closed = true;
        last = outbox;
        outbox = null;
      }
      if (last != null) {
        last.release();
      }
    } catch (Throwable e) {
      LOG.debug("the queue was not closed", e);
    }
  }
}

package afterwrite.hook;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A bounded queue of commits and the one daemon thread that sends them: whoever commits never waits for it. Reporters with the
 * same settings share one; engines load a catalog many times.
 */
final class Outbox {
  private static final Logger LOG = LoggerFactory.getLogger(Outbox.class);
  private static final Map<Settings, Outbox> OPEN = new HashMap<>();
  private static final int BATCH = 64;
  /** Characters of one request: a quarter of what the sidecar takes in bytes. A larger event goes by itself. */
  private static final int MOST_CHARACTERS = 1 << 20;
  private static final int ATTEMPTS = 3;
  private static final long BACKOFF_MS = 500;
  private static final long WARN_EVERY_NS = TimeUnit.MINUTES.toNanos(1);
  /** Not a commit. */
  private static final Commit END = new Commit("", 0, null, "");

  private final Settings settings;
  private final Function<Settings, Sink> opener;
  private final BlockingQueue<Commit> queue;
  private final Thread sender;
  private final Thread atExit;
  private final CountDownLatch ended = new CountDownLatch(1);
  private final AtomicLong offered = new AtomicLong();
  private final AtomicLong sent = new AtomicLong();
  private final AtomicLong dropped = new AtomicLong();
  /** Guarded by {@link #OPEN}. */
  private int users;

  private volatile boolean closing;
  private long warnedAt = System.nanoTime() - WARN_EVERY_NS;
  private long warnedOf;

  Outbox(Settings settings, Function<Settings, Sink> opener) {
    this.settings = settings;
    this.opener = opener;
    this.queue = new ArrayBlockingQueue<>(settings.queueSize());
    this.sender = new Thread(this::run, "afterwrite-hook");
    sender.setDaemon(true);
    // the committer's own loader may be a job's, and go before this thread does
    sender.setContextClassLoader(Outbox.class.getClassLoader());
    this.atExit = new Thread(this::close, "afterwrite-hook-exit");
  }

  /** The outbox of these settings, to be given back by {@link #release}. */
  static Outbox open(Settings settings) {
    synchronized (OPEN) {
      Outbox outbox = OPEN.computeIfAbsent(settings, s -> new Outbox(s, Sink::open).start());
      outbox.users++;
      return outbox;
    }
  }

  /** Closes it when nobody else uses it. */
  void release() {
    synchronized (OPEN) {
      users--;
      if (users > 0) {
        return;
      }
      OPEN.remove(settings, this);
    }
    close();
    try {
      Runtime.getRuntime().removeShutdownHook(atExit);
    } catch (IllegalStateException exiting) {
      // it runs already
    }
  }

  Outbox start() {
    sender.start();
    try {
      // a short program ends before its last commit is told
      Runtime.getRuntime().addShutdownHook(atExit);
    } catch (IllegalStateException exiting) {
      // then nothing waits for it
    }
    return this;
  }

  /** Takes a commit, unless too many wait. Never blocks. */
  void offer(Commit commit) {
    offered.incrementAndGet();
    if (closing || !queue.offer(commit)) {
      dropped.incrementAndGet();
    }
  }

  /** Commits that were taken in, sent, and dropped. */
  long[] counts() {
    return new long[] {offered.get(), sent.get(), dropped.get()};
  }

  /** Ends the thread, and waits a little for what is in the queue. */
  void close() {
    closing = true;
    try {
      // wakes an idle sender; a queue without room has none
      queue.offer(END);
      if (!ended.await(settings.flushMs(), TimeUnit.MILLISECONDS)) {
        sender.interrupt();
      }
    } catch (InterruptedException e) {
      sender.interrupt();
      Thread.currentThread().interrupt();
    }
  }

  private void run() {
    Sink sink = null;
    try {
      List<Commit> batch = new ArrayList<>();
      while (!closing || !queue.isEmpty()) {
        Commit first = queue.poll(1, TimeUnit.SECONDS);
        if (first != null) {
          batch.add(first);
          queue.drainTo(batch, BATCH - 1);
          batch.removeIf(commit -> commit == END);
          sink = deliver(sink, batch);
          batch.clear();
        }
        warn(null);
      }
    } catch (InterruptedException e) {
      // closed while something was under way
    } catch (Throwable e) {
      closing = true;
      LOG.warn("afterwrite hears no more commits of this process", e);
    } finally {
      queue.removeIf(commit -> commit == END);
      dropped.addAndGet(queue.size());
      ended.countDown();
      close(sink);
    }
  }

  /** Sends a batch, in as few requests as may be. Gives the sink to use next. */
  private Sink deliver(Sink sink, List<Commit> batch) throws InterruptedException {
    List<Sink.Message> messages = messages(batch);
    dropped.addAndGet(batch.size() - messages.size());
    int told = 0;
    try {
      while (told < messages.size()) {
        List<Sink.Message> request = messages.subList(told, end(messages, told));
        told += request.size();
        sink = send(sink, request);
      }
    } finally {
      dropped.addAndGet(messages.size() - told);
    }
    return sink;
  }

  /** Where a request ends that begins with this message. */
  private static int end(List<Sink.Message> messages, int from) {
    int end = from + 1;
    long characters = messages.get(from).json.length();
    while (end < messages.size() && (characters += messages.get(end).json.length()) <= MOST_CHARACTERS) {
      end++;
    }
    return end;
  }

  /** Sends what makes one request, in a few attempts; what does not arrive is dropped. Gives the sink to use next. */
  private Sink send(Sink sink, List<Sink.Message> messages) throws InterruptedException {
    long arrived = 0;
    Throwable problem = null;
    try {
      for (int attempt = 1; attempt <= ATTEMPTS && arrived == 0; attempt++) {
        try {
          sink = sink == null ? opener.apply(settings) : sink;
          sink.send(messages);
          arrived = messages.size();
        } catch (InterruptedException e) {
          throw e;
        } catch (Sink.Refused e) {
          problem = e;
          break;
        } catch (Throwable e) {
          problem = e;
          if (attempt < ATTEMPTS && !closing) {
            Thread.sleep(BACKOFF_MS * attempt);
          }
        }
      }
    } finally {
      sent.addAndGet(arrived);
      dropped.addAndGet(messages.size() - arrived);
    }
    warn(problem);
    return sink;
  }

  private List<Sink.Message> messages(List<Commit> batch) {
    List<Sink.Message> messages = new ArrayList<>(batch.size());
    for (Commit commit : batch) {
      try {
        String name = Event.name(commit.table, settings.catalog());
        if (name != null) {
          messages.add(new Sink.Message(name, Event.json(commit, name)));
        }
      } catch (RuntimeException e) {
        LOG.debug("a commit of {} cannot be told", commit.table, e);
      }
    }
    return messages;
  }

  /** Says once a minute what was lost. */
  private void warn(Throwable problem) {
    long lost = dropped.get();
    if (lost > warnedOf && System.nanoTime() - warnedAt >= WARN_EVERY_NS) {
      String why = problem == null ? "the queue was full, or their tables are in no catalog" : problem.toString();
      LOG.warn("{} commits were not told to afterwrite at {} ({}); its poller will find them", lost - warnedOf, settings, why);
      warnedAt = System.nanoTime();
      warnedOf = lost;
    }
  }

  private static void close(Sink sink) {
    try {
      if (sink != null) {
        sink.close();
      }
    } catch (Throwable e) {
      LOG.debug("not closed", e);
    }
  }
}

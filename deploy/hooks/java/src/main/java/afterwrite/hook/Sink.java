package afterwrite.hook;

import java.util.List;

/** Where events go. Used by one thread. */
interface Sink extends AutoCloseable {
  /**
   * Sends events, and waits until they have arrived.
   *
   * @throws Refused when sending them again would help nothing
   * @throws Exception when it might
   */
  void send(List<Message> messages) throws Exception;

  @Override
  void close();

  /** An event, and the table that orders it. */
  final class Message {
    final String table;
    final String json;

    Message(String table, String json) {
      this.table = table;
      this.json = json;
    }
  }

  /** The other side will not have it. */
  final class Refused extends Exception {
    private static final long serialVersionUID = 1L;

    Refused(String message) {
      super(message);
    }
  }

  /** Opens what the settings name. Kafka's classes are not looked for unless commits go there. */
  static Sink open(Settings settings) {
    return settings.topic() == null ? new HttpSink(settings) : new KafkaSink(settings);
  }
}

package afterwrite.hook;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes events to a topic, keyed by the table: a table's events stay in order. */
final class KafkaSink implements Sink {
  private final Producer<String, String> producer;
  private final String topic;
  private final int timeoutMs;

  KafkaSink(Settings settings) {
    this(settings, new KafkaProducer<>(configuration(settings), new StringSerializer(), new StringSerializer()));
  }

  KafkaSink(Settings settings, Producer<String, String> producer) {
    this.producer = producer;
    this.topic = settings.topic();
    this.timeoutMs = settings.timeoutMs();
  }

  /** Times that end before the hook gives up; all can be set otherwise. */
  private static Map<String, Object> configuration(Settings settings) {
    Map<String, Object> configuration = settings.producer();
    configuration.putIfAbsent("client.id", "afterwrite-hook");
    configuration.putIfAbsent("max.block.ms", settings.timeoutMs());
    configuration.putIfAbsent("request.timeout.ms", settings.timeoutMs());
    configuration.putIfAbsent("linger.ms", 0);
    configuration.putIfAbsent("delivery.timeout.ms", settings.timeoutMs());
    configuration.putIfAbsent("buffer.memory", 4 << 20);
    return configuration;
  }

  @Override
  public void send(List<Message> messages) throws Exception {
    List<Future<?>> sent = new ArrayList<>();
    for (Message message : messages) {
      sent.add(producer.send(new ProducerRecord<>(topic, message.table, message.json)));
    }
    for (Future<?> record : sent) {
      record.get(2L * timeoutMs, TimeUnit.MILLISECONDS);
    }
  }

  @Override
  public void close() {
    producer.close(java.time.Duration.ZERO);
  }
}

package afterwrite.example;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** Runs the statements of a file in a Flink of its own, one after another, each INSERT to its end. */
public final class RunSql {
  private static final Pattern VARIABLE = Pattern.compile("\\$\\{([A-Z_]+)\\}");
  private static final Pattern SETTING = Pattern.compile("SET\\s+'([^']+)'\\s*=\\s*'([^']*)'", Pattern.CASE_INSENSITIVE);

  private RunSql() {}

  public static void main(String[] args) throws Exception {
    TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(small()).build());
    String text = Files.readString(Path.of(args[0])).replaceAll("(?m)^--.*$", "");
    for (String statement : text.split(";\\s*(\\n|$)")) {
      String filled = fill(statement.trim());
      Matcher setting = SETTING.matcher(filled);
      if (setting.matches()) {
        flink.getConfig().set(setting.group(1), setting.group(2));
      } else if (!filled.isEmpty()) {
        TableResult result = flink.executeSql(filled);
        if (filled.toUpperCase().startsWith("INSERT")) {
          result.await();
        }
      }
    }
    System.out.println("done");
  }

  private static String fill(String statement) {
    return VARIABLE.matcher(statement).replaceAll(variable -> {
      String value = System.getenv(variable.group(1));
      if (value == null) {
        throw new IllegalArgumentException("set " + variable.group(1) + " in the environment");
      }
      return Matcher.quoteReplacement(value);
    });
  }

  private static Configuration small() {
    Configuration conf = new Configuration();
    conf.set(TaskManagerOptions.TASK_OFF_HEAP_MEMORY, MemorySize.ofMebiBytes(64));
    conf.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(64));
    conf.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(16));
    conf.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(16));
    conf.set(RestOptions.BIND_ADDRESS, "127.0.0.1");
    conf.set(RestOptions.ADDRESS, "127.0.0.1");
    conf.setString("parallelism.default", "1");
    conf.setString("restart-strategy.type", "none");
    return conf;
  }
}

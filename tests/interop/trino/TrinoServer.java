// Trino in one process on a free loopback port. Each line of standard input, "catalog NAME KEY=VALUE…" with tabs between, adds an
// Iceberg catalog; every answer is a line that starts with "=" and holds JSON.
//
// Trino's classes are for a newer Java than the compiler that builds the tests, so they are only named in text.
package afterwrite.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

public class TrinoServer {
  private final Class<?> type = Class.forName("io.trino.server.testing.TestingTrinoServer");
  private final Object server;

  private TrinoServer() throws Exception {
    Object builder = type.getMethod("builder").invoke(null);
    Map<String, String> properties = Map.of("node-scheduler.include-coordinator", "true", "query.client.timeout", "10m", "node-scheduler.min-candidates", "1");
    builder.getClass().getMethod("setProperties", Map.class).invoke(builder, properties);
    server = builder.getClass().getMethod("build").invoke(builder);
    Object plugin = Class.forName("io.trino.plugin.iceberg.IcebergPlugin").getConstructor().newInstance();
    type.getMethod("installPlugin", Class.forName("io.trino.spi.Plugin")).invoke(server, plugin);
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = System.out; // Trino turns the global one into its log
    TrinoServer trino = new TrinoServer();
    out.println("={\"url\": \"" + trino.type.getMethod("getBaseUrl").invoke(trino.server) + "\"}");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      trino.addCatalog(line.split("\t"));
      out.println("={}");
    }
    System.exit(0);
  }

  private void addCatalog(String[] words) throws Exception {
    Map<String, String> properties = new TreeMap<>();
    for (int i = 2; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    type.getMethod("createCatalog", String.class, String.class, Map.class).invoke(server, words[1], "iceberg", properties);
  }
}

package afterwrite.hook;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

class EventTest {
  @Test
  void a_table_is_named_as_the_sidecar_names_it() {
    assertEquals("lake.db.t", Event.name("lake.db.t", null));
    assertEquals("prod.db.sub.t", Event.name("lake.db.sub.t", "prod"));
    assertEquals("prod.db.t", Event.name("thrift://host:9083/db.t", "prod"));
    assertNull(Event.name("thrift://host:9083/db.t", null), "an address is no name of a catalog");
    assertNull(Event.name("file:/warehouse/db/t", "prod"));
    assertNull(Event.name("t", "prod"));
    assertEquals("prod.db.t", Event.name("db.t", "prod"));
    assertNull(Event.name("db.t", null), "of which catalog");
    assertNull(Event.name("", null));
    assertNull(Event.name(".db.t", null));
    assertNull(Event.name("lake.db.", null));
  }

  @Test
  void texts_of_all_kinds_are_json_afterwards() throws Exception {
    Map<String, String> summary = Map.of("partitions.s=\"\\\u0001\n/ü", "added-data-files=1,x,=,added-records=nan", "added-data-files", "-1", "added-records", "12");
    JsonNode event = new ObjectMapper().readTree(Event.json(new Commit("a.b\"c.d", Long.MIN_VALUE, summary, "spark \"4\""), "a.b\"c.d"));
    assertEquals("a.b\"c.d", event.get("table").asText());
    assertEquals("spark \"4\"", event.get("sender").asText());
    JsonNode snapshot = event.get("snapshots").get(0);
    assertEquals("-9223372036854775808", snapshot.get("snapshotId").asText());
    assertEquals("{\"records\":\"12\"}", snapshot.get("added").toString());
    assertEquals("s=\"\\\u0001\n/ü", snapshot.get("partitions").get(0).get("path").asText());
    assertEquals("{\"dataFiles\":\"1\"}", snapshot.get("partitions").get(0).get("added").toString());
  }

  @Test
  void too_many_partitions_are_left_out() throws Exception {
    Map<String, String> summary = new HashMap<>();
    for (int i = 0; i < 1001; i++) {
      summary.put("partitions.p=" + i, "added-data-files=1");
    }
    assertEquals("{\"table\":\"a.b.c\",\"snapshots\":[{\"snapshotId\":\"1\"}],\"sender\":\"iceberg hook\"}", Event.json(new Commit("a.b.c", 1, summary, ""), "a.b.c"));
    summary.remove("partitions.p=0");
    assertEquals(1000, new ObjectMapper().readTree(Event.json(new Commit("a.b.c", 1, summary, ""), "a.b.c")).get("snapshots").get(0).get("partitions").size());
  }
}

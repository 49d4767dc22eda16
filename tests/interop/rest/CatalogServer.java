// A faithful Iceberg REST catalog for tests: com.sun.net.httpserver in front of the reference CatalogHandlers + RESTSerializers
// over a JdbcCatalog (SQLite). It lives in this package to reach CatalogHandlers.commit / withIdempotency / ETagProvider.
package org.apache.iceberg.rest;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import org.apache.iceberg.*;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.*;
import org.apache.iceberg.io.*;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.requests.*;
import org.apache.iceberg.rest.responses.*;

public class CatalogServer {
  /** Local-disk FileIO without Hadoop: accepts file:/x, file:///x and bare paths. */
  public static class LocalFileIO implements FileIO {
    private static File file(String l) {
      return new File(l.startsWith("file:") ? l.replaceFirst("^file:/*", "/") : l);
    }
    public InputFile newInputFile(String l) { return new Named(l, file(l)); }
    public OutputFile newOutputFile(String l) { return new NamedOut(l, file(l)); }
    public void deleteFile(String l) { if (!file(l).delete()) throw new RuntimeIOException("Failed to delete: %s", l); }
  }

  /** Keep the location as it was given: Files.local* would answer a bare path as metadata-location, which Trino refuses ("No factory for location"). */
  private record Named(String location, File file) implements InputFile {
    public long getLength() { return file.length(); }
    public SeekableInputStream newStream() { return Files.localInput(file).newStream(); }
    public boolean exists() { return file.exists(); }
  }

  private record NamedOut(String location, File file) implements OutputFile {
    public PositionOutputStream create() { return Files.localOutput(file).create(); }
    public PositionOutputStream createOrOverwrite() { return Files.localOutput(file).createOrOverwrite(); }
    public InputFile toInputFile() { return new Named(location, file); }
  }

  private record Answer(int status, Object body, Map<String, String> headers) {
    static Answer ok(Object b) { return new Answer(200, b, Map.of()); }
    static final Answer NO_CONTENT = new Answer(204, null, Map.of());
  }

  private static final ObjectMapper MAPPER = RESTObjectMapper.mapper();
  private static final Map<Class<? extends Exception>, Integer> CODES = new LinkedHashMap<>();
  static {
    for (Class<? extends Exception> c : List.of(NoSuchNamespaceException.class, NoSuchTableException.class, NoSuchViewException.class, NoSuchIcebergTableException.class,
        NoSuchPlanIdException.class, NoSuchPlanTaskException.class, NoSuchWarehouseException.class)) CODES.put(c, 404);
    CODES.put(NotAuthorizedException.class, 401);
    for (Class<? extends Exception> c : List.of(AlreadyExistsException.class, CommitFailedException.class, NamespaceNotEmptyException.class)) CODES.put(c, 409);
    CODES.put(UnprocessableEntityException.class, 422);
    CODES.put(UnsupportedOperationException.class, 406);
    CODES.put(CommitStateUnknownException.class, 500);
    for (Class<? extends Exception> c : List.of(NotFoundException.class /* register of a file that is not there */, ValidationException.class, BadRequestException.class,
        IllegalArgumentException.class, com.fasterxml.jackson.core.JsonProcessingException.class)) CODES.put(c, 400);
  }

  private static JdbcCatalog only;
  private static boolean multi; // --multi=1: the warehouse asked for in /v1/config names a SQLite file, whose encoded path is the prefix from then on
  private static final Map<String, JdbcCatalog> CATALOGS = new ConcurrentHashMap<>();
  private static final ThreadLocal<JdbcCatalog> CURRENT = new ThreadLocal<>();
  private static final Map<String, String> SWITCH = new ConcurrentHashMap<>(); // see admin()
  private static final Map<String, Long> TOKENS = new ConcurrentHashMap<>(); // token -> expiry ms
  private static final Map<String, AtomicLong> STATS = new ConcurrentHashMap<>();

  public static void main(String[] args) throws Exception {
    long t0 = System.currentTimeMillis();
    Map<String, String> opt = new HashMap<>();
    for (String a : args) opt.put(a.split("=", 2)[0].replaceFirst("^--", ""), a.split("=", 2)[1]);
    int port = Integer.parseInt(opt.getOrDefault("port", "0"));
    String warehouse = opt.get("warehouse"); // e.g. file:///tmp/wh or /tmp/wh
    String uri = opt.getOrDefault("jdbc", "jdbc:sqlite:file:memdb?mode=memory&cache=shared");
    System.setProperty("sun.net.httpserver.nodelay", "true"); // else 40 ms per keep-alive request
    opt.forEach((k, v) -> { if (k.startsWith("set.")) SWITCH.put(k.substring(4), v); });
    multi = opt.containsKey("multi");
    if (!multi) only = open(opt, uri, warehouse);
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 256);
    server.setExecutor(Executors.newFixedThreadPool(Integer.parseInt(opt.getOrDefault("threads", "16"))));
    server.createContext("/admin", CatalogServer::admin);
    server.createContext("/", CatalogServer::handle);
    server.start();
    System.out.println("READY port=" + server.getAddress().getPort() + " ms=" + (System.currentTimeMillis() - t0));
  }

  private static JdbcCatalog open(Map<String, String> opt, String uri, String warehouse) {
    JdbcCatalog catalog = new JdbcCatalog(p -> new LocalFileIO(), null, true);
    Map<String, String> props = new HashMap<>(Map.of("uri", uri, "warehouse", warehouse, "jdbc.schema-version", "V1", "jdbc.strict-mode", "true", "clients", "1"));
    opt.forEach((k, v) -> { if (k.startsWith("catalog.")) props.put(k.substring(8), v); });
    catalog.initialize(opt.getOrDefault("name", "lake"), props);
    return catalog;
  }

  private static JdbcCatalog openFile(String database) {
    String uri = "jdbc:sqlite:" + database + "?busy_timeout=30000&journal_mode=WAL&synchronous=NORMAL&transaction_mode=IMMEDIATE";
    return open(Map.of(), uri, "file://" + new File(database).getParent() + "/warehouse");
  }

  /** /admin?k=v…: k=v sets, k= (empty) clears; /admin/reset clears all; answers switches + counters. Keys:
   *  after_status + after_n, drop_n (both AFTER applying), before_status + before_n, conflict_n, throttle_n + retry_after, delay_ms + delay_n or delay_commit_n,
   *  token (static bearer), oauth=1 + oauth_ttl, gzip=1, prefix, config_uri, ns_separator, idempotency (ISO duration), defaults.X / overrides.X,
   *  hide (comma-separated regexes of endpoints not to advertise). */
  private static void admin(HttpExchange x) throws IOException {
    if (x.getRequestURI().getPath().endsWith("/reset")) { SWITCH.clear(); TOKENS.clear(); STATS.clear(); }
    query(x).forEach((k, v) -> { if (v.isEmpty()) SWITCH.remove(k); else SWITCH.put(k, v); });
    if (SWITCH.containsKey("idempotency")) CatalogHandlers.setIdempotencyLifetimeFromIso(SWITCH.get("idempotency"));
    Map<String, Object> out = new TreeMap<>(Map.of("switches", new TreeMap<>(SWITCH), "stats", new TreeMap<>(STATS)));
    byte[] b = new ObjectMapper().writeValueAsBytes(out);
    x.getResponseHeaders().set("Content-Type", "application/json");
    x.sendResponseHeaders(200, b.length);
    x.getResponseBody().write(b); x.close();
  }

  private static boolean take(String key) { // one of the next N?
    boolean[] hit = {false};
    SWITCH.computeIfPresent(key, (k, v) -> { long n = Long.parseLong(v); hit[0] = n > 0; return n > 1 ? Long.toString(n - 1) : null; });
    if (hit[0]) STATS.computeIfAbsent("fault." + key, k -> new AtomicLong()).incrementAndGet();
    return hit[0];
  }

  private static Map<String, String> query(HttpExchange x) {
    String q = x.getRequestURI().getRawQuery();
    return q == null || q.isEmpty() ? new LinkedHashMap<>() : new LinkedHashMap<>(RESTUtil.decodeFormData(q));
  }

  private static void handle(HttpExchange x) throws IOException {
    String method = x.getRequestMethod();
    List<String> seg = new ArrayList<>(Arrays.asList(x.getRequestURI().getRawPath().substring(1).split("/")));
    byte[] raw = x.getRequestBody().readAllBytes();
    Answer a;
    boolean commit = false;
    try {
      if ("gzip".equals(x.getRequestHeaders().getFirst("Content-Encoding"))) raw = new GZIPInputStream(new java.io.ByteArrayInputStream(raw)).readAllBytes();
      if (!seg.remove(0).equals("v1") || seg.isEmpty()) throw new NoSuchWarehouseException("No route for %s", x.getRequestURI().getPath());
      String prefix = SWITCH.get("prefix");
      CURRENT.set(only);
      boolean global = seg.get(0).equals("config") || seg.get(0).equals("oauth");
      if (multi && !global) CURRENT.set(CATALOGS.computeIfAbsent(RESTUtil.decodeString(seg.remove(0)), CatalogServer::openFile));
      if (prefix != null && !global) { // Java clients paste the prefix raw into the URL, PyIceberg as well: advertise it URL-encoded if it needs to be
        String p = seg.remove(0);
        if (!p.equals(prefix) && !RESTUtil.decodeString(p).equals(prefix)) throw new NoSuchWarehouseException("Unknown prefix: %s", p);
      }
      String route = method + " " + seg.get(0) + (seg.size() > 2 ? "/" + seg.get(seg.size() > 4 ? 4 : 2) + "/" + seg.size() : "");
      STATS.computeIfAbsent(route, k -> new AtomicLong()).incrementAndGet();
      commit = method.equals("POST") && (seg.get(0).equals("transactions") || seg.size() == 4 && (seg.get(2).equals("tables") || seg.get(2).equals("views")));
      if (!seg.get(0).equals("oauth")) authorize(x);
      if (SWITCH.containsKey("delay_ms") && (take("delay_n") || commit && take("delay_commit_n"))) Thread.sleep(Long.parseLong(SWITCH.get("delay_ms")));
      if (!global && take("throttle_n")) {
        a = error(429, "TooManyRequestsException", "Slow down");
        a.headers.put("Retry-After", SWITCH.getOrDefault("retry_after", "1"));
      } else if (commit && take("conflict_n")) throw new CommitFailedException("Injected conflict");
      else if (commit && take("before_n")) a = error(Integer.parseInt(SWITCH.getOrDefault("before_status", "503")), "InjectedException", "Injected before applying");
      else a = route(x, method, seg, query(x), new String(raw, StandardCharsets.UTF_8));
      if (commit && a.status < 300 && take("after_n")) a = error(Integer.parseInt(SWITCH.getOrDefault("after_status", "500")), "InjectedException", "Injected after applying");
      if (commit && a.status < 300 && take("drop_n")) { x.close(); return; }
    } catch (Exception e) {
      int code = CODES.entrySet().stream().filter(c -> c.getKey().isInstance(e)).map(Map.Entry::getValue).findFirst().orElse(500);
      if (code == 500) e.printStackTrace();
      a = error(code, e.getClass().getSimpleName(), String.valueOf(e.getMessage()));
      if (code == 401) a.headers.put("WWW-Authenticate", "Bearer");
    }
    a.headers.forEach((k, v) -> x.getResponseHeaders().set(k, v));
    if (a.body == null || method.equals("HEAD")) {
      x.sendResponseHeaders(a.status, -1);
    } else {
      byte[] b = a.body instanceof String ? ((String) a.body).getBytes(StandardCharsets.UTF_8) : MAPPER.writeValueAsBytes(a.body);
      x.getResponseHeaders().set("Content-Type", "application/json");
      if (SWITCH.containsKey("gzip") && String.valueOf(x.getRequestHeaders().getFirst("Accept-Encoding")).contains("gzip")) {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        try (GZIPOutputStream g = new GZIPOutputStream(o)) { g.write(b); }
        b = o.toByteArray();
        x.getResponseHeaders().set("Content-Encoding", "gzip");
      }
      x.sendResponseHeaders(a.status, b.length);
      x.getResponseBody().write(b);
    }
    x.close();
  }

  private static Answer error(int code, String type, String message) {
    return new Answer(code, ErrorResponseParser.toJson(ErrorResponse.builder().responseCode(code).withType(type).withMessage(message).build()), new HashMap<>());
  }

  private static void authorize(HttpExchange x) {
    if (!SWITCH.containsKey("token") && !SWITCH.containsKey("oauth")) return;
    String h = x.getRequestHeaders().getFirst("Authorization");
    String t = h != null && h.startsWith("Bearer ") ? h.substring(7) : "";
    if (t.equals(SWITCH.get("token")) || TOKENS.getOrDefault(t, 0L) > System.currentTimeMillis()) return;
    throw new NotAuthorizedException(TOKENS.containsKey(t) ? "Token expired" : "Not authorized");
  }

  private static Namespace ns(String raw) { return RESTUtil.decodeNamespaceAsPathSegment(raw, SWITCH.getOrDefault("ns_separator", "%1F")); }

  private static <T> T read(String body, Class<T> c) throws IOException { return MAPPER.readValue(body, c); }

  private static final List<Endpoint> ENDPOINTS = Arrays.stream(Endpoint.class.getFields()).filter(f -> f.getType() == Endpoint.class)
      .filter(f -> !f.getName().contains("CREDENTIALS") && !f.getName().contains("REMOTE_SIGN"))
      .map(f -> { try { return (Endpoint) f.get(null); } catch (IllegalAccessException e) { throw new IllegalStateException(e); } }).collect(Collectors.toList());

  private static Answer route(HttpExchange x, String m, List<String> s, Map<String, String> q, String body) throws IOException {
    String route = m + " " + s.get(0) + (s.size() > 2 ? "/" + s.get(2) : "") + (s.size() > 4 ? "/" + s.get(4) : "") + "/" + s.size();
    Namespace ns = s.size() > 1 && s.get(0).equals("namespaces") ? ns(s.get(1)) : null;
    TableIdentifier id = s.size() > 3 && ns != null ? TableIdentifier.of(ns, RESTUtil.decodePathSegment(s.get(3))) : null;
    HTTPRequest req = ImmutableHTTPRequest.builder().baseUri(URI.create("http://127.0.0.1/")).method(HTTPRequest.HTTPMethod.POST).path("v1")
        .headers(HTTPHeaders.of(x.getRequestHeaders().entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, e -> e.getValue().get(0))))).build();
    switch (route) {
      case "GET config/1": return Answer.ok(config(q));
      case "POST oauth/2": return token(RESTUtil.decodeFormData(body));
      case "GET namespaces/1": {
        Namespace parent = q.containsKey("parent") ? RESTUtil.namespaceFromQueryParam(q.get("parent"), RESTUtil.decodeString(SWITCH.getOrDefault("ns_separator", "%1F"))) : Namespace.empty();
        return Answer.ok(q.containsKey("pageSize") ? CatalogHandlers.listNamespaces(CURRENT.get(), parent, q.get("pageToken"), q.get("pageSize")) : CatalogHandlers.listNamespaces(CURRENT.get(), parent));
      }
      case "POST namespaces/1": return once(req, () -> CatalogHandlers.createNamespace(CURRENT.get(), read(body, CreateNamespaceRequest.class)));
      case "GET namespaces/2": return Answer.ok(CatalogHandlers.loadNamespace(CURRENT.get(), ns));
      case "HEAD namespaces/2": CatalogHandlers.namespaceExists(CURRENT.get(), ns); return Answer.NO_CONTENT;
      case "DELETE namespaces/2": return once(req, () -> { CatalogHandlers.dropNamespace(CURRENT.get(), ns); return null; });
      case "POST namespaces/properties/3": return once(req, () -> CatalogHandlers.updateNamespaceProperties(CURRENT.get(), ns, read(body, UpdateNamespacePropertiesRequest.class)));
      case "GET namespaces/tables/3": return Answer.ok(q.containsKey("pageSize") ? CatalogHandlers.listTables(CURRENT.get(), ns, q.get("pageToken"), q.get("pageSize")) : CatalogHandlers.listTables(CURRENT.get(), ns));
      case "POST namespaces/tables/3": {
        CreateTableRequest r = read(body, CreateTableRequest.class);
        Answer a = once(req, () -> r.stageCreate() ? CatalogHandlers.stageTableCreate(CURRENT.get(), ns, r) : CatalogHandlers.createTable(CURRENT.get(), ns, r));
        if (!r.stageCreate()) return tagged(a, q);
        LocalFileIO.file(((LoadTableResponse) a.body).tableMetadata().location() + "/metadata").mkdirs(); // DuckDB's CTAS does not make it on a local disk
        return a;
      }
      case "POST namespaces/register/3": return tagged(once(req, () -> CatalogHandlers.registerTable(CURRENT.get(), ns, read(body, RegisterTableRequest.class))), q);
      case "GET namespaces/tables/4": {
        LoadTableResponse r = CatalogHandlers.loadTable(CURRENT.get(), id, RESTCatalogProperties.SnapshotMode.valueOf(q.getOrDefault("snapshots", "all").toUpperCase(Locale.ROOT)));
        String etag = ETagProvider.of(r.metadataLocation(), q);
        return etag.equals(x.getRequestHeaders().getFirst("If-None-Match")) ? new Answer(304, null, Map.of("ETag", etag)) : new Answer(200, r, Map.of("ETag", etag));
      }
      case "HEAD namespaces/tables/4": CatalogHandlers.tableExists(CURRENT.get(), id); return Answer.NO_CONTENT;
      case "POST namespaces/tables/4": return tagged(once(req, () -> CatalogHandlers.updateTable(CURRENT.get(), id, read(body, UpdateTableRequest.class))), q);
      case "DELETE namespaces/tables/4": return once(req, () -> {
        if (Boolean.parseBoolean(q.get("purgeRequested"))) CatalogHandlers.purgeTable(CURRENT.get(), id); else CatalogHandlers.dropTable(CURRENT.get(), id);
        return null;
      });
      case "POST namespaces/tables/metrics/5": read(body, ReportMetricsRequest.class); return Answer.NO_CONTENT;
      case "POST tables/2": return once(req, () -> { CatalogHandlers.renameTable(CURRENT.get(), read(body, RenameTableRequest.class)); return null; });
      case "POST transactions/2": return once(req, () -> { transaction(read(body, CommitTransactionRequest.class)); return null; });
      case "POST namespaces/tables/plan/5": return Answer.ok(CatalogHandlers.planTableScan(CURRENT.get(), id, read(body, PlanTableScanRequest.class), scan -> false, scan -> 100));
      case "GET namespaces/tables/plan/6": return Answer.ok(CatalogHandlers.fetchPlanningResult(CURRENT.get(), id, RESTUtil.decodePathSegment(s.get(5))));
      case "DELETE namespaces/tables/plan/6": CatalogHandlers.cancelPlanTableScan(RESTUtil.decodePathSegment(s.get(5))); return Answer.NO_CONTENT;
      case "POST namespaces/tables/tasks/5": return Answer.ok(CatalogHandlers.fetchScanTasks(CURRENT.get(), id, read(body, FetchScanTasksRequest.class)));
      case "GET namespaces/views/3": return Answer.ok(CatalogHandlers.listViews(CURRENT.get(), ns));
      case "POST namespaces/views/3": return once(req, () -> CatalogHandlers.createView(CURRENT.get(), ns, read(body, CreateViewRequest.class)));
      case "GET namespaces/views/4": return Answer.ok(CatalogHandlers.loadView(CURRENT.get(), id));
      case "HEAD namespaces/views/4": CatalogHandlers.viewExists(CURRENT.get(), id); return Answer.NO_CONTENT;
      case "POST namespaces/views/4": return once(req, () -> CatalogHandlers.updateView(CURRENT.get(), id, read(body, UpdateTableRequest.class)));
      case "DELETE namespaces/views/4": return once(req, () -> { CatalogHandlers.dropView(CURRENT.get(), id); return null; });
      case "POST views/2": return once(req, () -> { CatalogHandlers.renameView(CURRENT.get(), read(body, RenameTableRequest.class)); return null; });
      case "POST namespaces/register-view/3": return once(req, () -> CatalogHandlers.registerView(CURRENT.get(), ns, read(body, RegisterViewRequest.class)));
      default: throw new NoSuchWarehouseException("No route for %s %s", m, x.getRequestURI().getPath());
    }
  }

  private interface Call { RESTResponse get() throws IOException; }

  /** Writers run one at a time (SQLite has one writer; makes transactions/commit atomic) and honour Idempotency-Key as CatalogHandlers does. */
  private static synchronized Answer once(HTTPRequest req, Call call) {
    RESTResponse r = CatalogHandlers.withIdempotency(req, () -> {
      try { return call.get(); } catch (IOException e) { throw new BadRequestException("Malformed request: %s", e.getMessage()); }
    });
    return r == null ? Answer.NO_CONTENT : Answer.ok(r);
  }

  private static Answer tagged(Answer a, Map<String, String> q) {
    return new Answer(a.status, a.body, Map.of("ETag", ETagProvider.of(((LoadTableResponse) a.body).metadataLocation(), q)));
  }

  /** As RESTCatalogAdapter of the Iceberg tests: validate every table in memory, then commit one by one. */
  private static void transaction(CommitTransactionRequest request) {
    List<Transaction> txs = new ArrayList<>();
    for (UpdateTableRequest change : request.tableChanges()) {
      TableOperations ops = ((BaseTable) CURRENT.get().loadTable(change.identifier())).operations();
      Transaction tx = Transactions.newTransaction(change.identifier().toString(), ops);
      CatalogHandlers.commit(((BaseTransaction.TransactionTable) tx.table()).operations(), change);
      txs.add(tx);
    }
    txs.forEach(Transaction::commitTransaction);
  }

  private static ConfigResponse config(Map<String, String> q) {
    List<Endpoint> eps = ENDPOINTS;
    if (SWITCH.containsKey("hide")) eps = eps.stream().filter(e -> Arrays.stream(SWITCH.get("hide").split(",")).noneMatch(h -> e.toString().matches(".*" + h + ".*"))).collect(Collectors.toList());
    ConfigResponse.Builder b = ConfigResponse.builder().withEndpoints(eps);
    if (multi) b.withOverride("prefix", RESTUtil.encodeString(q.getOrDefault("warehouse", "")));
    if (SWITCH.containsKey("prefix")) b.withOverride("prefix", SWITCH.get("prefix"));
    if (SWITCH.containsKey("config_uri")) b.withOverride("uri", SWITCH.get("config_uri"));
    if (SWITCH.containsKey("ns_separator")) b.withOverride("namespace-separator", SWITCH.get("ns_separator"));
    if (SWITCH.containsKey("idempotency")) b.withIdempotencyKeyLifetime(SWITCH.get("idempotency"));
    SWITCH.forEach((k, v) -> { if (k.startsWith("defaults.")) b.withDefault(k.substring(9), v); if (k.startsWith("overrides.")) b.withOverride(k.substring(10), v); });
    return b.build();
  }

  private static Answer token(Map<String, String> form) {
    if ("wrong".equals(form.get("client_secret"))) return new Answer(401, "{\"error\":\"invalid_client\",\"error_description\":\"bad secret\"}", Map.of());
    int ttl = Integer.parseInt(SWITCH.getOrDefault("oauth_ttl", "3600"));
    String t = "t-" + UUID.randomUUID();
    TOKENS.put(t, System.currentTimeMillis() + ttl * 1000L);
    return Answer.ok(OAuthTokenResponse.builder().withToken(t).withTokenType("bearer").withIssuedTokenType("urn:ietf:params:oauth:token-type:access_token").setExpirationInSeconds(ttl).build());
  }
}

// One column chunk: what is said of its values against its values.
package afterwrite.interop;

import java.io.ByteArrayInputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ColumnReader;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.format.BoundaryOrder;
import org.apache.parquet.format.ColumnChunk;
import org.apache.parquet.format.ColumnIndex;
import org.apache.parquet.format.ColumnMetaData;
import org.apache.parquet.format.Encoding;
import org.apache.parquet.format.OffsetIndex;
import org.apache.parquet.format.PageHeader;
import org.apache.parquet.format.PageLocation;
import org.apache.parquet.format.PageType;
import org.apache.parquet.format.SizeStatistics;
import org.apache.parquet.format.Statistics;
import org.apache.parquet.format.Util;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.ColumnOrder;
import org.apache.parquet.schema.PrimitiveComparator;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;

class ChunkCheck {
  private final byte[] file;
  private final ColumnChunk chunk;
  private final ColumnMetaData meta;
  private final ColumnDescriptor column;
  private final BloomFilter bloom;
  private final CheckFiles.Faults faults;
  private final PrimitiveComparator<Object> order;
  private final boolean ordered;

  @SuppressWarnings("unchecked")
  ChunkCheck(byte[] file, ColumnChunk chunk, ColumnDescriptor column, BloomFilter bloom, CheckFiles.Faults faults) {
    this.file = file;
    this.chunk = chunk;
    this.meta = chunk.getMeta_data();
    this.column = column;
    this.bloom = bloom;
    this.faults = faults;
    this.order = (PrimitiveComparator<Object>) (PrimitiveComparator<?>) column.getPrimitiveType().comparator();
    this.ordered = column.getPrimitiveType().columnOrder().equals(ColumnOrder.typeDefined()) && column.getPrimitiveType().getPrimitiveTypeName() != PrimitiveTypeName.INT96;
  }

  /** What a page, or a chunk, really holds. */
  private static class Held {
    long levels, nulls, rows, firstRow, bytes;
    boolean startsRow;
    Object min, max;
    final long[] repetitions, definitions;

    Held(ColumnDescriptor column) {
      repetitions = new long[column.getMaxRepetitionLevel() + 1];
      definitions = new long[column.getMaxDefinitionLevel() + 1];
    }
  }

  private record Page(PageHeader header, long offset, int size) {
    boolean data() {
      return header.getType() == PageType.DATA_PAGE || header.getType() == PageType.DATA_PAGE_V2;
    }

    int levels() {
      return header.isSetData_page_header() ? header.getData_page_header().getNum_values() : header.getData_page_header_v2().getNum_values();
    }

    Encoding encoding() {
      return header.isSetData_page_header() ? header.getData_page_header().getEncoding() : header.getData_page_header_v2().getEncoding();
    }

    boolean dictionary() {
      return encoding() == Encoding.PLAIN_DICTIONARY || encoding() == Encoding.RLE_DICTIONARY;
    }
  }

  void run(ColumnReader values, long rows) throws Exception {
    List<Page> pages = pages();
    List<Page> data = pages.stream().filter(Page::data).toList();
    Held whole = new Held(column);
    List<Held> held = new ArrayList<>();
    for (Page page : data) {
      held.add(read(values, page.levels(), whole));
    }
    faults.equal("num_values", meta.getNum_values(), whole.levels);
    faults.equal("rows", rows, whole.rows);
    encodings(pages, data);
    statistics(whole);
    sizes("chunk", meta.getSize_statistics(), whole);
    if (chunk.isSetOffset_index_offset()) {
      offsets(data, held);
    }
    if (chunk.isSetColumn_index_offset()) {
      bounds(held);
    }
  }

  /** The pages as their headers follow each other. */
  private List<Page> pages() throws Exception {
    long start = meta.isSetDictionary_page_offset() && meta.getDictionary_page_offset() > 0 ? meta.getDictionary_page_offset() : meta.getData_page_offset();
    long end = start + meta.getTotal_compressed_size();
    List<Page> pages = new ArrayList<>();
    for (long at = start; at < end; ) {
      ByteArrayInputStream stream = new ByteArrayInputStream(file, (int) at, (int) (end - at));
      PageHeader header = Util.readPageHeader(stream);
      int size = (int) (end - at) - stream.available() + header.getCompressed_page_size();
      pages.add(new Page(header, at, size));
      at += size;
    }
    Page last = pages.get(pages.size() - 1);
    faults.equal("total_compressed_size ends", end, last.offset() + last.size());
    return pages;
  }

  private Held read(ColumnReader values, int levels, Held whole) {
    Held page = new Held(column);
    page.firstRow = whole.rows;
    for (int i = 0; i < levels; i++) {
      int repetition = values.getCurrentRepetitionLevel(), definition = values.getCurrentDefinitionLevel();
      page.startsRow |= i == 0 && repetition == 0;
      Object value = definition == column.getMaxDefinitionLevel() ? value(values) : null;
      for (Held held : new Held[] {page, whole}) {
        held.levels++;
        held.rows += repetition == 0 ? 1 : 0;
        held.repetitions[repetition]++;
        held.definitions[definition]++;
        add(held, value);
      }
      if (value != null && bloom != null && !bloom.findHash(hash(value))) {
        faults.add("the bloom filter denies " + value);
      }
      values.consume();
    }
    return page;
  }

  private void add(Held held, Object value) {
    if (value == null) {
      held.nulls++;
      return;
    }
    held.bytes += value instanceof Binary && column.getPrimitiveType().getPrimitiveTypeName() == PrimitiveTypeName.BINARY ? ((Binary) value).length() : 0;
    if (!ordered || value instanceof Float && ((Float) value).isNaN() || value instanceof Double && ((Double) value).isNaN()) {
      return;
    }
    held.min = held.min == null || order.compare(value, held.min) < 0 ? value : held.min;
    held.max = held.max == null || order.compare(value, held.max) > 0 ? value : held.max;
  }

  private Object value(ColumnReader values) {
    switch (column.getPrimitiveType().getPrimitiveTypeName()) {
      case BOOLEAN: return values.getBoolean();
      case INT32: return values.getInteger();
      case INT64: return values.getLong();
      case FLOAT: return values.getFloat();
      case DOUBLE: return values.getDouble();
      default: return Binary.fromConstantByteArray(values.getBinary().getBytes());
    }
  }

  private long hash(Object value) {
    if (value instanceof Integer) return bloom.hash((int) value);
    if (value instanceof Long) return bloom.hash((long) value);
    if (value instanceof Float) return bloom.hash((float) value);
    if (value instanceof Double) return bloom.hash((double) value);
    return bloom.hash((Binary) value);
  }

  /** A bound's bytes as a value. */
  private Object bound(byte[] bytes) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    switch (column.getPrimitiveType().getPrimitiveTypeName()) {
      case BOOLEAN: return buffer.get() != 0;
      case INT32: return buffer.getInt();
      case INT64: return buffer.getLong();
      case FLOAT: return buffer.getFloat();
      case DOUBLE: return buffer.getDouble();
      default: return Binary.fromConstantByteArray(bytes);
    }
  }

  /** Readers take for granted that a chunk falls back from its dictionary once, and skip values by these counts. */
  private void encodings(List<Page> pages, List<Page> data) {
    boolean plain = false;
    for (Page page : data) {
      if (page.dictionary() && plain) {
        faults.add("a dictionary-encoded page follows one that is not");
      }
      plain |= !page.dictionary();
      if (!meta.getEncodings().contains(page.encoding())) {
        faults.add("the encoding " + page.encoding() + " is not among " + meta.getEncodings());
      }
    }
    if (meta.isSetEncoding_stats()) {
      Map<String, Integer> said = new TreeMap<>(), found = new TreeMap<>();
      meta.getEncoding_stats().forEach(s -> said.merge(s.getPage_type() + " " + s.getEncoding(), s.getCount(), Integer::sum));
      pages.forEach(p -> found.merge(p.header().getType() + " " + (p.data() ? p.encoding() : p.header().getDictionary_page_header().getEncoding()), 1, Integer::sum));
      faults.equal("encoding_stats", said, found);
    }
  }

  private void statistics(Held whole) {
    Statistics said = meta.getStatistics();
    if (said == null) {
      return;
    }
    if (said.isSetNull_count()) {
      faults.equal("null_count", said.getNull_count(), whole.nulls);
    }
    if (said.isSetMin_value() && said.isSetMax_value() && whole.min != null) {
      within("chunk", said.getMin_value(), said.getMax_value(), whole);
      exact("min", said.isIs_min_value_exact(), bound(said.getMin_value()), whole.min);
      exact("max", said.isIs_max_value_exact(), bound(said.getMax_value()), whole.max);
    }
  }

  /** A bound of zero has the sign that covers both zeros. */
  private void exact(String which, boolean claimed, Object said, Object found) {
    boolean zeros = found instanceof Number && ((Number) found).doubleValue() == 0 && ((Number) said).doubleValue() == 0;
    if (claimed && !zeros) {
      faults.equal("exact " + which, said, found);
    }
  }

  private void within(String where, byte[] min, byte[] max, Held held) {
    int length = column.getPrimitiveType().getTypeLength();
    if (column.getPrimitiveType().getPrimitiveTypeName() == PrimitiveTypeName.FIXED_LEN_BYTE_ARRAY && (min.length != length || max.length != length)) {
      faults.add(where + " bounds of " + min.length + " and " + max.length + " bytes are no values of " + length);
    }
    if (order.compare(bound(min), held.min) > 0 || order.compare(bound(max), held.max) < 0) {
      faults.add(where + " bounds [" + bound(min) + ", " + bound(max) + "] leave out values of [" + held.min + ", " + held.max + "]");
    }
  }

  private void sizes(String where, SizeStatistics said, Held held) {
    if (said == null) {
      return;
    }
    if (said.isSetUnencoded_byte_array_data_bytes()) {
      faults.equal(where + " unencoded bytes of " + meta.getEncodings(), said.getUnencoded_byte_array_data_bytes(), held.bytes);
    }
    histogram(where + " repetition levels", said.getRepetition_level_histogram(), held.repetitions);
    histogram(where + " definition levels", said.getDefinition_level_histogram(), held.definitions);
  }

  private void histogram(String where, List<Long> said, long[] found) {
    if (said != null && !said.isEmpty()) {
      faults.equal(where, said, Arrays.stream(found).boxed().toList());
    }
  }

  private void offsets(List<Page> data, List<Held> held) throws Exception {
    OffsetIndex index = Util.readOffsetIndex(stream(chunk.getOffset_index_offset(), chunk.getOffset_index_length()));
    faults.equal("pages in the offset index", index.getPage_locations().size(), data.size());
    for (int i = 0; i < data.size(); i++) {
      PageLocation location = index.getPage_locations().get(i);
      faults.equal("page " + i + " offset", location.getOffset(), data.get(i).offset());
      faults.equal("page " + i + " size", location.getCompressed_page_size(), data.get(i).size());
      faults.equal("page " + i + " first row", location.getFirst_row_index(), held.get(i).firstRow);
      if (!held.get(i).startsRow && held.get(i).levels > 0) {
        faults.add("page " + i + " begins inside a row");
      }
      if (index.isSetUnencoded_byte_array_data_bytes()) {
        faults.equal("page " + i + " unencoded bytes of " + data.get(i).encoding(), index.getUnencoded_byte_array_data_bytes().get(i), held.get(i).bytes);
      }
    }
  }

  private void bounds(List<Held> held) throws Exception {
    ColumnIndex index = Util.readColumnIndex(stream(chunk.getColumn_index_offset(), chunk.getColumn_index_length()));
    faults.equal("pages in the column index", index.getNull_pages().size(), held.size());
    Object lastMin = null, lastMax = null;
    for (int i = 0; i < held.size(); i++) {
      Held page = held.get(i);
      faults.equal("page " + i + " null page", index.getNull_pages().get(i), page.nulls == page.levels);
      if (index.isSetNull_counts()) {
        faults.equal("page " + i + " null count", index.getNull_counts().get(i), page.nulls);
      }
      levels("page " + i + " repetition levels", index.getRepetition_level_histograms(), i, page.repetitions);
      levels("page " + i + " definition levels", index.getDefinition_level_histograms(), i, page.definitions);
      if (!index.getNull_pages().get(i)) {
        byte[] min = bytes(index.getMin_values().get(i)), max = bytes(index.getMax_values().get(i));
        if (page.min != null) {
          within("page " + i, min, max, page);
        }
        inOrder(index.getBoundary_order(), lastMin, bound(min));
        inOrder(index.getBoundary_order(), lastMax, bound(max));
        lastMin = bound(min);
        lastMax = bound(max);
      }
    }
  }

  private void inOrder(BoundaryOrder said, Object last, Object next) {
    if (last == null || said == BoundaryOrder.UNORDERED) {
      return;
    }
    int sign = order.compare(last, next);
    if (said == BoundaryOrder.ASCENDING ? sign > 0 : sign < 0) {
      faults.add("the boundary order is not " + said + ": " + last + ", " + next);
    }
  }

  private void levels(String where, List<Long> said, int page, long[] found) {
    if (said != null && !said.isEmpty()) {
      histogram(where, said.subList(page * found.length, (page + 1) * found.length), found);
    }
  }

  private ByteArrayInputStream stream(long offset, int length) {
    return new ByteArrayInputStream(file, (int) offset, length);
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }
}

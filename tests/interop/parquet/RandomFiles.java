// parquet-java as a writer with random options. Each line of standard input is "PATH<tab>SEED<tab>FILE<tab>ROWS<tab>SCHEMA": rows of
// SCHEMA (as parquet-java spells it; the first column counts up from FILE million) whose values and layout follow from SEED and FILE.
// The answer is a line that starts with "=" and tells the options.
package afterwrite.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Random;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ParquetProperties.WriterVersion;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DateLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.MapLogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Type;

public class RandomFiles {
  private static final CompressionCodecName[] CODECS = {
    CompressionCodecName.ZSTD, CompressionCodecName.SNAPPY, CompressionCodecName.GZIP, CompressionCodecName.LZ4_RAW, CompressionCodecName.UNCOMPRESSED
  };
  /** How a table's values vary depends on its seed alone, so that files of one table resemble each other. */
  private final long seed;
  private final Random random;
  private final int file;

  private RandomFiles(long seed, int file) {
    this.seed = seed;
    this.file = file;
    this.random = new Random(seed * 31 + file);
  }

  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("={}");
    for (String line; (line = lines.readLine()) != null; ) {
      String[] words = line.split("\t", 5);
      RandomFiles files = new RandomFiles(Long.parseLong(words[1]), Integer.parseInt(words[2]));
      String told = files.write(Path.of(words[0]), Integer.parseInt(words[3]), MessageTypeParser.parseMessageType(words[4]));
      System.out.println("={\"options\": \"" + told + "\"}");
    }
  }

  private <T> T one(T... from) {
    return from[random.nextInt(from.length)];
  }

  private String write(Path path, int rows, MessageType schema) throws Exception {
    CompressionCodecName codec = one(CODECS);
    WriterVersion version = one(WriterVersion.PARQUET_1_0, WriterVersion.PARQUET_2_0);
    int pageRows = one(20_000, 20_000, 1500, 1100), pageSize = one(1 << 20, 1 << 20, 30_000), dictionary = one(1 << 20, 1 << 20, 3000);
    long groupSize = one(128L << 20, 128L << 20, 60_000L);
    boolean split = random.nextInt(4) == 0, checksums = random.nextBoolean(), blooms = random.nextInt(5) == 0;
    ExampleParquetWriter.Builder builder = ExampleParquetWriter.builder(new LocalOutputFile(path)).withType(schema).withCompressionCodec(codec)
        .withWriterVersion(version).withPageRowCountLimit(pageRows).withPageSize(pageSize).withDictionaryPageSize(dictionary)
        .withRowGroupSize(groupSize).withByteStreamSplitEncoding(split).withPageWriteChecksumEnabled(checksums).withBloomFilterEnabled(blooms);
    StringBuilder plain = new StringBuilder();
    for (ColumnDescriptor column : schema.getColumns()) {
      boolean on = random.nextInt(4) > 0;
      builder = builder.withDictionaryEncoding(String.join(".", column.getPath()), on);
      plain.append(on ? "" : " " + String.join(".", column.getPath()));
    }
    try (ParquetWriter<Group> writer = builder.build()) {
      for (int i = 0; i < rows; i++) {
        Group row = new SimpleGroup(schema);
        row.add(0, file * 1_000_000L + i);
        for (int field = 1; field < schema.getFieldCount(); field++) {
          fill(row, field, field * 1000);
        }
        writer.write(row);
      }
    }
    return String.format("parquet-java %s %s page rows %d bytes %d dictionary %d group %d split %b plain%s", codec, version, pageRows, pageSize, dictionary, groupSize, split, plain);
  }

  /** A field's value, or none where it may be null; `place` tells the fields of the schema apart. */
  private void fill(Group row, int field, int place) {
    Type type = row.getType().getType(field);
    if (type.isRepetition(Type.Repetition.OPTIONAL) && random.nextInt(100) < nulls(place)) {
      return;
    }
    if (type.isPrimitive()) {
      add(row, field, type.asPrimitiveType(), number(place));
      return;
    }
    LogicalTypeAnnotation kind = type.getLogicalTypeAnnotation();
    Group group = row.addGroup(field);
    if (kind == null) {
      for (int i = 0; i < type.asGroupType().getFieldCount(); i++) {
        fill(group, i, place + i + 1);
      }
      return;
    }
    for (int i = random.nextInt(4); i > 0; i--) {
      Group entry = group.addGroup(0);
      GroupType inner = entry.getType();
      if (kind instanceof MapLogicalTypeAnnotation) {
        add(entry, 0, inner.getType(0).asPrimitiveType(), i);
        fill(entry, 1, place + 2);
      } else {
        fill(entry, 0, place + 1);
      }
    }
  }

  private int nulls(int place) {
    return new int[] {0, 0, 10, 90, 100}[new Random(seed + place).nextInt(5)];
  }

  /** Few values that all files share, few that move from file to file, or many. */
  private long number(int place) {
    Random fixed = new Random(seed * 7 + place);
    switch (fixed.nextInt(4)) {
      case 0: return random.nextInt(1 + fixed.nextInt(60));
      case 1: return file * 20L + random.nextInt(50);
      case 2: return random.nextInt(4000);
      default: return random.nextInt();
    }
  }

  private void add(Group group, int field, PrimitiveType type, long number) {
    LogicalTypeAnnotation kind = type.getLogicalTypeAnnotation();
    long limit = limit(kind);
    switch (type.getPrimitiveTypeName()) {
      case BOOLEAN: group.add(field, number % 2 == 0); break;
      case INT32: group.add(field, (int) (number % limit)); break;
      case INT64: group.add(field, number * 1_000_003 % limit); break;
      case FLOAT: group.add(field, number % 11 == 0 ? Float.NaN : number % 7 == 0 ? -0.0f : number / 3f); break;
      case DOUBLE: group.add(field, number % 11 == 0 ? Double.NaN : number % 7 == 0 ? -0.0 : number / 3d); break;
      case FIXED_LEN_BYTE_ARRAY: group.add(field, fixed(number % limit, type.getTypeLength())); break;
      default: group.add(field, Binary.fromString(number % 13 == 0 ? "" : number % 17 == 0 ? "long ".repeat(30) + number : "v" + number));
    }
  }

  /** Below this all values mean something: digits of a decimal, days and moments that Python knows. */
  private static long limit(LogicalTypeAnnotation kind) {
    if (kind instanceof DecimalLogicalTypeAnnotation) {
      return (long) Math.pow(10, Math.min(18, ((DecimalLogicalTypeAnnotation) kind).getPrecision()));
    }
    return kind instanceof DateLogicalTypeAnnotation ? 40_000 : Long.MAX_VALUE;
  }

  /** The number in the low bytes, its sign in the others. */
  private static Binary fixed(long number, int length) {
    byte[] bytes = new byte[length];
    for (int i = 0; i < length; i++) {
      bytes[length - 1 - i] = (byte) (number >> Math.min(63, 8 * i));
    }
    return Binary.fromConstantByteArray(bytes);
  }
}

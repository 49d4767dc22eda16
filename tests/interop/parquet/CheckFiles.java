// Reads every file named on standard input the way parquet-java's users do, checks its pages' checksums and compares all that the
// file says of its values (statistics, page index, size statistics, encoding statistics, bloom filters) with the values.
// A line a fault, "PATH<tab>what is wrong", and at the end how many files, chunks and bloom filters were checked, with tabs between.
package afterwrite.interop;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ColumnReader;
import org.apache.parquet.column.impl.ColumnReadStoreImpl;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.format.Util;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.LocalInputFile;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.io.api.Converter;
import org.apache.parquet.io.api.GroupConverter;
import org.apache.parquet.io.api.PrimitiveConverter;
import org.apache.parquet.schema.MessageType;

public class CheckFiles {
  private static final ParquetReadOptions OPTIONS = ParquetReadOptions.builder().usePageChecksumVerification(true).build();

  private static int chunks, blooms;

  public static void main(String[] args) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    int checked = 0;
    for (String path; (path = lines.readLine()) != null; checked++) {
      Faults faults = new Faults(path);
      try {
        readRows(Path.of(path), faults);
        checkChunks(Path.of(path), faults);
      } catch (Exception | StackOverflowError e) {
        faults.add("refused: " + e + " at " + (e.getStackTrace().length > 0 ? e.getStackTrace()[0] : "?"));
      }
    }
    System.out.println(checked + "\t" + chunks + "\t" + blooms);
  }

  /** Every row as a record, as Avro and example readers do. */
  private static void readRows(Path path, Faults faults) throws Exception {
    try (ParquetFileReader reader = ParquetFileReader.open(new LocalInputFile(path), OPTIONS)) {
      MessageType schema = reader.getFileMetaData().getSchema();
      long rows = 0;
      for (PageReadStore pages; (pages = reader.readNextRowGroup()) != null; ) {
        RecordReader<?> records = new ColumnIOFactory().getColumnIO(schema).getRecordReader(pages, new GroupRecordConverter(schema));
        for (long i = 0; i < pages.getRowCount(); i++, rows++) {
          records.read();
        }
      }
      faults.equal("rows", reader.getRecordCount(), rows);
    }
  }

  private static void checkChunks(Path path, Faults faults) throws Exception {
    byte[] file = Files.readAllBytes(path);
    FileMetaData footer = footer(file);
    try (ParquetFileReader reader = ParquetFileReader.open(new LocalInputFile(path), OPTIONS)) {
      MessageType schema = reader.getFileMetaData().getSchema();
      long rows = 0;
      for (int group = 0; group < reader.getRowGroups().size(); group++) {
        BlockMetaData block = reader.getRowGroups().get(group);
        PageReadStore pages = reader.readNextRowGroup();
        ColumnReadStoreImpl columns = new ColumnReadStoreImpl(pages, new Nothing(schema), schema, reader.getFileMetaData().getCreatedBy());
        List<ColumnDescriptor> descriptors = schema.getColumns();
        for (int place = 0; place < descriptors.size(); place++) {
          ColumnDescriptor column = descriptors.get(place);
          BloomFilter bloom = reader.readBloomFilter(block.getColumns().get(place));
          chunks++;
          blooms += bloom == null ? 0 : 1;
          Faults at = faults.at("row group " + group + " " + String.join(".", column.getPath()));
          ChunkCheck check = new ChunkCheck(file, footer.getRow_groups().get(group).getColumns().get(place), column, bloom, at);
          ColumnReader values = columns.getColumnReader(column);
          check.run(values, block.getRowCount());
          reader.readColumnIndex(block.getColumns().get(place));
          reader.readOffsetIndex(block.getColumns().get(place));
        }
        rows += block.getRowCount();
      }
      faults.equal("num_rows", footer.getNum_rows(), rows);
    }
  }

  private static FileMetaData footer(byte[] file) throws Exception {
    int length = ByteBuffer.wrap(file, file.length - 8, 4).order(ByteOrder.LITTLE_ENDIAN).getInt();
    return Util.readFileMetaData(new ByteArrayInputStream(file, file.length - 8 - length, length));
  }

  /** Faults of one file, with where they are. */
  static class Faults {
    private final String where;

    Faults(String path) {
      where = path + "\t";
    }

    Faults at(String place) {
      return new Faults(where + place + ": ", true);
    }

    private Faults(String where, boolean nested) {
      this.where = where;
    }

    void add(String what) {
      System.out.println(where + what);
    }

    void equal(String what, Object said, Object found) {
      if (!said.equals(found)) {
        add(what + " is " + found + ", the file says " + said);
      }
    }
  }

  /** Takes every value and does nothing: columns are read one by one. */
  private static class Nothing extends GroupConverter {
    private final org.apache.parquet.schema.GroupType type;

    Nothing(org.apache.parquet.schema.GroupType type) {
      this.type = type;
    }

    @Override
    public Converter getConverter(int field) {
      return type.getType(field).isPrimitive() ? new PrimitiveConverter() {} : new Nothing(type.getType(field).asGroupType());
    }

    @Override
    public void start() {}

    @Override
    public void end() {}
  }
}

//! What a table's properties ask of the files that are written into it.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use iceberg::spec::PrimitiveType;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, Type as Physical, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::SchemaDescriptor;

use super::metrics::leaf::Leaf;
use super::metrics::mode::Mode;
use crate::lake::{Error, Result};

/// The name under which our files are signed, in the form that readers parse.
pub const CREATED_BY: &str = concat!("afterwrite version ", env!("CARGO_PKG_VERSION"), " (build release)");

/// The `write.parquet.*` properties of a table, with their defaults. The
/// `row-group-check-*` properties are of no use to us and ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteProperties {
    /// `compression-codec` and `compression-level`.
    pub compression: Compression,
    /// Whether the table itself names its codec.
    pub codec_is_set: bool,
    /// Whether the table itself names its level.
    pub level_is_set: bool,
    /// `row-group-size-bytes`: a row group ends when it is this large.
    pub row_group_bytes: u64,
    /// Whether the table itself names that size.
    pub row_group_is_set: bool,
    /// `page-size-bytes`: a page ends when it is this large.
    pub page_bytes: usize,
    /// `page-row-limit`: a page ends when it has this many rows.
    pub page_rows: usize,
    /// `dict-size-bytes`: a column whose dictionary grows past it is written plain.
    pub dict_bytes: usize,
    /// `bloom-filter-max-bytes`: largest bit set of a bloom filter.
    pub bloom_max_bytes: u64,
    /// `bloom-filter-enabled.column.*` with `bloom-filter-fpp.column.*`: the
    /// columns with a bloom filter and its false-positive probability.
    pub blooms: HashMap<i32, f64>,
    /// `stats-enabled.column.*`: the columns without statistics.
    pub no_statistics: Vec<i32>,
}

impl WriteProperties {
    /// Errs on the first value that does not parse or is out of range, with
    /// its key.
    pub fn parse(properties: &HashMap<String, String>, leaves: &[Leaf]) -> Result<Self> {
        let reader = Reader { properties, deletes: false };
        let mut blooms = HashMap::new();
        let mut no_statistics = Vec::new();
        for leaf in leaves {
            let fpp_key = format!("bloom-filter-fpp.column.{}", leaf.name);
            let fpp = reader.number(&fpp_key, 0.01, |p| *p > 0.0 && *p < 1.0, "a probability above 0 and below 1")?;
            if reader.flag(&format!("bloom-filter-enabled.column.{}", leaf.name), false)? && leaf.kind != PrimitiveType::Boolean {
                blooms.insert(leaf.id, fpp);
            }
            if !reader.flag(&format!("stats-enabled.column.{}", leaf.name), true)? {
                no_statistics.push(leaf.id);
            }
        }
        Ok(Self {
            compression: reader.compression()?,
            codec_is_set: reader.text("compression-codec").is_some(),
            level_is_set: reader.text("compression-level").is_some(),
            row_group_is_set: reader.text("row-group-size-bytes").is_some(),
            row_group_bytes: reader.size("row-group-size-bytes", 128 << 20)?,
            page_bytes: reader.size("page-size-bytes", 1 << 20)?,
            page_rows: reader.size("page-row-limit", 20_000)?,
            dict_bytes: reader.size("dict-size-bytes", 2 << 20)?,
            bloom_max_bytes: reader.size("bloom-filter-max-bytes", 1 << 20)?,
            blooms,
            no_statistics,
        })
    }

    /// Properties for the Parquet encoder. Pages are of version 1 and either
    /// dictionary-encoded or plain: every engine reads those. Statistics are
    /// kept long enough for the metrics modes.
    pub fn writer(&self, columns: &SchemaDescriptor, modes: &HashMap<i32, Mode>, bounds: Bounds, table_schema: &str) -> WriterProperties {
        let plain = columns_without_dictionary(columns, bounds.dictionaries);
        let steps = steps(self.page_bytes as u64, self.page_rows, bounds.row_bytes);
        let mut builder = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_created_by(CREATED_BY.to_owned())
            .set_key_value_metadata(Some(schema_note(table_schema)))
            .set_compression(self.compression)
            .set_max_row_group_row_count(None)
            .set_data_page_size_limit(self.page_bytes)
            .set_data_page_row_count_limit(self.page_rows)
            .set_dictionary_page_size_limit(self.dict_bytes)
            .set_write_batch_size(steps)
            .set_statistics_truncate_length(Some(statistics_length(modes)));
        for (position, column) in columns.columns().iter().enumerate() {
            if plain.contains(&position) {
                builder = builder.set_column_dictionary_enabled(column.path().clone(), false);
            }
            let id = column.self_type().get_basic_info().id();
            if self.no_statistics.contains(&id) {
                builder = builder.set_column_statistics_enabled(column.path().clone(), EnabledStatistics::None);
            }
            if let Some(fpp) = self.blooms.get(&id) {
                let path = column.path().clone();
                builder = builder
                    .set_column_bloom_filter_enabled(path.clone(), true)
                    .set_column_bloom_filter_fpp(path.clone(), *fpp)
                    .set_column_bloom_filter_ndv(path, distinct_values(self.bloom_max_bytes, *fpp));
            }
        }
        builder.build()
    }
}

/// What a table asks of files of position deletes, as properties for the Parquet
/// encoder: each `write.delete.parquet.*` stands before its `write.parquet.*`.
///
/// # Errors
/// As [`WriteProperties::parse`].
pub fn of_position_deletes(properties: &HashMap<String, String>) -> Result<WriterProperties> {
    let reader = Reader { properties, deletes: true };
    Ok(WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(reader.compression()?)
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(Some(reader.size("row-group-size-bytes", 128 << 20)?))
        .set_data_page_size_limit(reader.size("page-size-bytes", 1 << 20)?)
        .set_data_page_row_count_limit(reader.size("page-row-limit", 20_000)?)
        .set_dictionary_page_size_limit(reader.size("dict-size-bytes", 2 << 20)?)
        .build())
}

/// What the rows and the memory at hand ask of the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Expected size of a row in bytes: large ones are encoded in smaller
    /// steps, so that a page ends near its limit.
    pub row_bytes: u64,
    /// How many columns may have a dictionary in memory.
    pub dictionaries: usize,
}

/// The columns that go without a dictionary when only some may have one: byte
/// arrays gain the most from theirs, then the columns in front.
fn columns_without_dictionary(columns: &SchemaDescriptor, dictionaries: usize) -> HashSet<usize> {
    let mut positions: Vec<usize> = (0..columns.num_columns()).collect();
    positions.sort_by_key(|position| columns.column(*position).physical_type() != Physical::BYTE_ARRAY);
    positions.into_iter().skip(dictionaries).collect()
}

/// Rows that the encoder takes between two looks at a page's size: the whole of
/// a page's row limit is a multiple of it, a large row is looked at more often.
fn steps(page_bytes: u64, page_rows: usize, row_bytes: u64) -> usize {
    let most = usize::try_from(page_bytes / row_bytes.max(1)).unwrap_or(1024).clamp(8, 1024);
    page_rows.div_ceil(page_rows.div_ceil(most).max(1)).max(1)
}

/// The footer note by which readers find the schema a file was written with.
pub fn schema_note(table_schema: &str) -> Vec<KeyValue> {
    vec![KeyValue::new("iceberg.schema".to_owned(), table_schema.to_owned())]
}

/// Longest value kept whole in footer statistics: four bytes a code point of
/// the longest bound that a mode asks for, within reason.
fn statistics_length(modes: &HashMap<i32, Mode>) -> usize {
    let wanted = modes.values().map(|mode| match mode {
        Mode::None | Mode::Counts => 0,
        Mode::Truncate(length) => length.saturating_mul(4),
        Mode::Full => usize::MAX,
    });
    wanted.max().unwrap_or(0).clamp(64, 4096)
}

/// How many distinct values a split-block bloom filter of at most `max_bytes`
/// holds at this false-positive probability. Bit sets are powers of two.
fn distinct_values(max_bytes: u64, fpp: f64) -> u64 {
    let bytes = 1u64 << max_bytes.clamp(32, 128 << 20).ilog2();
    let bits = bytes as f64 * 8.0;
    let distinct = -bits / 8.0 * (1.0 - fpp.powf(1.0 / 8.0)).ln();
    (distinct as u64).saturating_sub(1).max(1)
}

struct Reader<'a> {
    properties: &'a HashMap<String, String>,
    /// Whether of files of deletes.
    deletes: bool,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<(String, &str)> {
        let prefixes: &[&str] = if self.deletes { &["write.delete.parquet", "write.parquet"] } else { &["write.parquet"] };
        prefixes.iter().map(|prefix| format!("{prefix}.{name}")).find_map(|key| {
            let value = self.properties.get(&key)?;
            Some((key, value.trim()))
        })
    }

    fn number<T: FromStr>(&self, name: &str, default: T, valid: impl Fn(&T) -> bool, wanted: &str) -> Result<T> {
        let Some((key, value)) = self.text(name) else { return Ok(default) };
        value.parse().ok().filter(valid).ok_or_else(|| bad(&key, value, wanted))
    }

    /// A positive size that fits the format's 32-bit fields.
    fn size<T: FromStr + TryFrom<u32> + Default>(&self, name: &str, default: u32) -> Result<T> {
        let found = self.number(name, default, |n| (1..=i32::MAX as u32).contains(n), "a whole number from 1 to 2147483647")?;
        Ok(T::try_from(found).unwrap_or_default())
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool> {
        let Some((key, value)) = self.text(name) else { return Ok(default) };
        value.to_ascii_lowercase().parse().map_err(|_| bad(&key, value, "true or false"))
    }

    fn compression(&self) -> Result<Compression> {
        let (key, codec) = self.text("compression-codec").unwrap_or_else(|| (String::new(), "zstd"));
        let level = |default: i64, lowest: i64, highest: i64| {
            let wanted = format!("a level of {codec} from {lowest} to {highest}");
            self.number("compression-level", default, |n| (lowest..=highest).contains(n), &wanted)
        };
        let broken = |e: parquet::errors::ParquetError| Error::Setup(format!("compression level of {codec}: {e}"));
        match codec.to_ascii_lowercase().as_str() {
            "uncompressed" => Ok(Compression::UNCOMPRESSED),
            "snappy" => Ok(Compression::SNAPPY),
            "lz4_raw" => Ok(Compression::LZ4_RAW),
            "gzip" => Ok(Compression::GZIP(GzipLevel::try_new(u32::try_from(level(6, 0, 9)?).unwrap_or(6)).map_err(broken)?)),
            "brotli" => Ok(Compression::BROTLI(BrotliLevel::try_new(u32::try_from(level(1, 0, 11)?).unwrap_or(1)).map_err(broken)?)),
            "zstd" => Ok(Compression::ZSTD(ZstdLevel::try_new(i32::try_from(level(3, 1, 22)?).unwrap_or(3)).map_err(broken)?)),
            // The format deprecates the framed LZ4 that engines write under this name, and Trino and Spark's dictionary filter stumble
            // over dictionary pages of raw LZ4: no form of it is read by all who read the table before.
            "lz4" => Ok(Compression::ZSTD(ZstdLevel::default())),
            _ => Err(bad(&key, codec, "one of zstd, gzip, snappy, lz4, brotli, uncompressed")),
        }
    }
}

fn bad(key: &str, value: &str, wanted: &str) -> Error {
    Error::Setup(format!("table property `{key}` is `{value}`: set {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(key: &str, value: &str) -> Result<WriteProperties> {
        let leaf = Leaf { id: 7, name: "s.x".into(), kind: PrimitiveType::String, repeated: false, depth: 1 };
        WriteProperties::parse(&HashMap::from([(key.to_owned(), value.to_owned())]), &[leaf])
    }

    #[test]
    fn a_bad_value_is_refused_with_its_key() {
        let cases = [
            ("write.parquet.compression-codec", "lzo", "one of zstd, gzip, snappy, lz4, brotli, uncompressed"),
            ("write.parquet.compression-level", "23", "a level of zstd from 1 to 22"),
            ("write.parquet.row-group-size-bytes", "128MB", "a whole number from 1 to 2147483647"),
            ("write.parquet.page-size-bytes", "0", "a whole number from 1 to 2147483647"),
            ("write.parquet.page-row-limit", "-1", "a whole number from 1 to 2147483647"),
            ("write.parquet.bloom-filter-fpp.column.s.x", "1", "a probability above 0 and below 1"),
            ("write.parquet.bloom-filter-enabled.column.s.x", "yes", "true or false"),
            ("write.parquet.stats-enabled.column.s.x", "", "true or false"),
        ];
        for (key, value, wanted) in cases {
            assert_eq!(parse(key, value).unwrap_err().to_string(), format!("table property `{key}` is `{value}`: set {wanted}"));
        }
    }

    #[test]
    fn nothing_set_means_the_formats_defaults() {
        let found = parse("comment", "x").unwrap();
        assert_eq!(found.compression, Compression::ZSTD(ZstdLevel::try_new(3).unwrap()));
        assert_eq!((found.row_group_bytes, found.page_bytes, found.page_rows, found.dict_bytes), (128 << 20, 1 << 20, 20_000, 2 << 20));
        assert_eq!((found.blooms.len(), found.no_statistics.len()), (0, 0));
    }

    #[test]
    fn what_is_asked_of_deletes_stands_before_what_is_asked_of_all() {
        let set = |given: &[(&str, &str)]| {
            let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            of_position_deletes(&given)
        };
        let found = |given: &[(&str, &str)]| {
            let found = set(given).unwrap();
            (found.compression(&"pos".into()), found.data_page_row_count_limit(), found.dictionary_page_size_limit())
        };
        let zstd = |level| Compression::ZSTD(ZstdLevel::try_new(level).unwrap());
        assert_eq!(found(&[]), (zstd(3), 20_000, 2 << 20));
        let of_all = [("write.parquet.compression-level", "7"), ("write.parquet.page-row-limit", "10")];
        assert_eq!(found(&of_all), (zstd(7), 10, 2 << 20));
        let both = [
            of_all.as_slice(),
            &[("write.delete.parquet.compression-codec", "snappy"), ("write.delete.parquet.dict-size-bytes", "9")],
            &[("write.delete.parquet.page-row-limit", "20")],
        ];
        assert_eq!(found(&both.concat()), (Compression::SNAPPY, 20, 9));
        let wrong = set(&[("write.delete.parquet.compression-codec", "lzo")]).unwrap_err().to_string();
        assert!(wrong.contains("`write.delete.parquet.compression-codec` is `lzo`"), "{wrong}");
    }

    #[test]
    fn the_encoder_looks_at_a_page_where_it_should_end() {
        assert_eq!(steps(1 << 20, 20_000, 100), 1000);
        assert_eq!(steps(1 << 20, 1000, 100), 1000);
        assert_eq!(steps(1 << 20, 20_000, 1 << 20), 8);
        assert_eq!(steps(1, 1, 0), 1);
    }

    #[test]
    fn byte_arrays_get_the_dictionaries_when_there_are_few() {
        let text = "message m { REQUIRED INT32 a; REQUIRED INT32 b; REQUIRED BYTE_ARRAY c; }";
        let columns = SchemaDescriptor::new(std::sync::Arc::new(parquet::schema::parser::parse_message_type(text).unwrap()));
        let without = |dictionaries| {
            let mut found: Vec<_> = columns_without_dictionary(&columns, dictionaries).into_iter().collect();
            found.sort();
            found
        };
        assert_eq!([0, 1, 2, 3].map(without), [vec![0, 1, 2], vec![0, 1], vec![1], vec![]]);
    }

    #[test]
    fn a_bloom_filter_is_no_larger_than_allowed() {
        for (max, fpp) in [(1 << 20, 0.01), (1_000_000, 0.05), (32, 0.5), (4096, 0.0001)] {
            let filter = parquet::bloom_filter::Sbbf::new_with_ndv_fpp(distinct_values(max, fpp), fpp).unwrap();
            let bytes = filter.num_blocks() as u64 * 32;
            assert_eq!(bytes, 1 << max.ilog2(), "{max} {fpp}");
        }
    }
}

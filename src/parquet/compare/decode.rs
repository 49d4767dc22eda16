//! Values in encodings that the proof does not read itself, decoded by the `parquet`
//! crate: by other code than that which cuts such pages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Encoding, Repetition, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{AsBytes, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96Type};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type as Node};

use super::Trouble;
use super::open::Column;
use crate::parquet::delta;

/// Values decoded at a time.
const BATCH: usize = 1024;

/// The `present` values of a page, in `PLAIN`: `most` bytes at most.
///
/// Errs when there are fewer, or they take more; `Unfit` in an encoding that the
/// column cannot have.
pub fn plain(encoding: Encoding, bytes: &[u8], present: u32, column: &Column, most: usize) -> Result<Vec<u8>, Trouble> {
    if present as usize > most / column.width.unwrap_or(4) {
        return Err(too_large(most));
    }
    if !delta::states(encoding, bytes, present) {
        return Err(Trouble::wrong("the values of a page do not begin as its encoding and levels state"));
    }
    if present == 0 {
        return Ok(Vec::new());
    }
    let values = Values { encoding, bytes, present, column, most };
    // the crate's decoders panic on some damaged pages
    catch_unwind(AssertUnwindSafe(|| values.of_type())).unwrap_or_else(|_| Err(Trouble::wrong("the values of a page cannot be decoded")))
}

struct Values<'a> {
    encoding: Encoding,
    bytes: &'a [u8],
    present: u32,
    column: &'a Column,
    most: usize,
}

impl Values<'_> {
    fn of_type(&self) -> Result<Vec<u8>, Trouble> {
        match self.column.physical {
            Type::INT32 => self.all::<Int32Type>(),
            Type::INT64 => self.all::<Int64Type>(),
            Type::INT96 => self.all::<Int96Type>(),
            Type::FLOAT => self.all::<FloatType>(),
            Type::DOUBLE => self.all::<DoubleType>(),
            Type::BYTE_ARRAY => self.all::<ByteArrayType>(),
            Type::FIXED_LEN_BYTE_ARRAY => self.all::<FixedLenByteArrayType>(),
            Type::BOOLEAN => Err(unfit(self.encoding, "booleans")),
        }
    }

    fn all<T: DataType>(&self) -> Result<Vec<u8>, Trouble> {
        let said = |error: ParquetError| match error {
            ParquetError::NYI(why) => unfit(self.encoding, &why),
            error => Trouble::wrong(error),
        };
        let page = Page::DataPage {
            buf: Bytes::copy_from_slice(self.bytes),
            num_values: self.present,
            encoding: self.encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let mut reader = ColumnReaderImpl::<T>::new(Arc::new(self.descriptor().map_err(said)?), Box::new(Only(Some(page))));
        let (mut out, mut values, mut left) = (Vec::new(), Vec::new(), self.present as usize);
        while left > 0 {
            values.clear();
            let (_, read, _) = reader.read_records(left.min(BATCH), None, None, &mut values).map_err(said)?;
            if read == 0 || read > left {
                return Err(Trouble::wrong("a page holds fewer values than its levels state"));
            }
            left -= read;
            for value in values.iter().map(AsBytes::as_bytes) {
                match self.column.width {
                    Some(width) if width != value.len() => return Err(Trouble::wrong("a value of another width than its column")),
                    Some(_) => {}
                    None => out.extend_from_slice(&u32::try_from(value.len()).map_err(Trouble::wrong)?.to_le_bytes()),
                }
                if out.len().saturating_add(value.len()) > self.most {
                    return Err(too_large(self.most));
                }
                out.extend_from_slice(value);
            }
        }
        Ok(out)
    }

    /// A column of such values without levels.
    fn descriptor(&self) -> Result<ColumnDescriptor, ParquetError> {
        let length = self.column.width.and_then(|width| i32::try_from(width).ok()).unwrap_or(-1);
        let node = Node::primitive_type_builder("value", self.column.physical).with_repetition(Repetition::REQUIRED);
        Ok(ColumnDescriptor::new(Arc::new(node.with_length(length).build()?), 0, 0, ColumnPath::from("value")))
    }
}

fn unfit(encoding: Encoding, why: &str) -> Trouble {
    Trouble::Unfit(format!("values are encoded as {encoding}: {why}"))
}

fn too_large(most: usize) -> Trouble {
    Trouble::TooLarge(format!("the values of a page take more than the {most} bytes that are allowed"))
}

/// A reader of one page.
struct Only(Option<Page>);

impl Iterator for Only {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageReader for Only {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.0.take())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::General("pages are not skipped".into()))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.0 = None;
        Ok(())
    }
}

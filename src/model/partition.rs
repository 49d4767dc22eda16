//! Partition keys: spec and tuple, never the tuple alone.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One partition value, in the physical type that the specification's
/// single-value serialization uses. Floats are kept as bits so that equality
/// and order are total.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// boolean
    Bool(bool),
    /// int, date
    Int(i32),
    /// long, time, timestamps
    Long(i64),
    /// float, as IEEE 754 bits
    Float(u32),
    /// double, as IEEE 754 bits
    Double(u64),
    /// decimal, unscaled
    Decimal(#[serde(with = "i128_text")] i128),
    /// string
    String(Arc<str>),
    /// binary, fixed
    Bytes(Arc<[u8]>),
    /// uuid, as a big-endian number
    Uuid(#[serde(with = "u128_text")] u128),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(v) => v.fmt(f),
            Self::Int(v) => v.fmt(f),
            Self::Long(v) => v.fmt(f),
            Self::Float(v) => f32::from_bits(*v).fmt(f),
            Self::Double(v) => f64::from_bits(*v).fmt(f),
            Self::Decimal(v) => v.fmt(f),
            Self::String(v) => write!(f, "{v:?}"),
            Self::Bytes(v) => v.iter().try_for_each(|b| write!(f, "{b:02x}")),
            Self::Uuid(v) => uuid::Uuid::from_u128(*v).fmt(f),
        }
    }
}

/// The values of a partition, one for each field of its spec; `None` is NULL
/// (and the value of every void field).
pub type Tuple = Arc<[Option<Value>]>;

/// A partition of one spec of a table. Equal tuples under different specs are
/// different partitions, and a rewrite never joins them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionKey {
    /// The partition spec's id in the table's metadata.
    pub spec_id: i32,
    /// The values, in field order.
    pub tuple: Tuple,
}

impl PartitionKey {
    /// The only partition of a spec without fields.
    pub fn unpartitioned(spec_id: i32) -> Self {
        Self { spec_id, tuple: Arc::from([]) }
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spec {}:", self.spec_id)?;
        for (i, value) in self.tuple.iter().enumerate() {
            f.write_str(if i == 0 { " " } else { ", " })?;
            match value {
                Some(v) => v.fmt(f)?,
                None => f.write_str("NULL")?,
            }
        }
        Ok(())
    }
}

macro_rules! text_number {
    ($module:ident, $type:ty) => {
        mod $module {
            use serde::{Deserialize, Deserializer, Serializer, de::Error};
            pub fn serialize<S: Serializer>(v: &$type, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(v)
            }
            pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<$type, D::Error> {
                String::deserialize(d)?.parse().map_err(D::Error::custom)
            }
        }
    };
}
text_number!(i128_text, i128);
text_number!(u128_text, u128);

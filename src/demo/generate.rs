//! TPC-H `orders` and `lineitem`, cut into the commits of a streaming load.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use tpchgen::decimal::TPCHDecimal;
use tpchgen::generators::{LineItem, LineItemGenerator, Order, OrderGenerator};

/// What one commit of the load appends to each table.
pub struct Load {
    /// Rows of `orders`.
    pub orders: RecordBatch,
    /// Rows of `lineitem` that belong to those orders.
    pub lineitem: RecordBatch,
}

/// Cuts TPC-H at `scale` into `commits` loads of equal numbers of orders, in
/// order of their date: what a stream would bring.
pub fn loads(scale: f64, commits: usize) -> Result<Vec<Load>, ArrowError> {
    let order_generator = OrderGenerator::new(scale, 1, 1);
    let line_generator = LineItemGenerator::new(scale, 1, 1);
    let mut orders: Vec<Order<'_>> = order_generator.iter().collect();
    orders.sort_by_key(|o| (o.o_orderdate.to_unix_epoch(), o.o_orderkey));
    let mut lines: BTreeMap<i64, Vec<LineItem<'_>>> = BTreeMap::new();
    for line in line_generator.iter() {
        lines.entry(line.l_orderkey).or_default().push(line);
    }
    let size = orders.len().div_ceil(commits.max(1)).max(1);
    orders
        .chunks(size)
        .map(|chunk| {
            let of_chunk: Vec<&LineItem<'_>> = chunk.iter().filter_map(|o| lines.get(&o.o_orderkey)).flatten().collect();
            Ok(Load { orders: orders_batch(chunk)?, lineitem: lineitem_batch(&of_chunk)? })
        })
        .collect()
}

/// The columns of both tables: a load without rows.
///
/// # Errors
/// Never: the columns are fixed.
pub fn columns() -> Result<Load, ArrowError> {
    Ok(Load { orders: orders_batch(&[])?, lineitem: lineitem_batch(&[])? })
}

fn orders_batch(rows: &[Order<'_>]) -> Result<RecordBatch, ArrowError> {
    batch(vec![
        ("o_orderkey", long(rows.iter().map(|r| r.o_orderkey))),
        ("o_custkey", long(rows.iter().map(|r| r.o_custkey))),
        ("o_orderstatus", string(rows.iter().map(|r| r.o_orderstatus.to_string()))),
        ("o_totalprice", money(rows.iter().map(|r| r.o_totalprice))?),
        ("o_orderdate", date(rows.iter().map(|r| r.o_orderdate.to_unix_epoch()))),
        ("o_orderpriority", string(rows.iter().map(|r| r.o_orderpriority))),
        ("o_clerk", string(rows.iter().map(|r| r.o_clerk.to_string()))),
        ("o_shippriority", Arc::new(Int32Array::from_iter_values(rows.iter().map(|r| r.o_shippriority)))),
        ("o_comment", string(rows.iter().map(|r| r.o_comment))),
    ])
}

fn lineitem_batch(rows: &[&LineItem<'_>]) -> Result<RecordBatch, ArrowError> {
    batch(vec![
        ("l_orderkey", long(rows.iter().map(|r| r.l_orderkey))),
        ("l_partkey", long(rows.iter().map(|r| r.l_partkey))),
        ("l_suppkey", long(rows.iter().map(|r| r.l_suppkey))),
        ("l_linenumber", Arc::new(Int32Array::from_iter_values(rows.iter().map(|r| r.l_linenumber)))),
        ("l_quantity", money(rows.iter().map(|r| TPCHDecimal::new(r.l_quantity * 100)))?),
        ("l_extendedprice", money(rows.iter().map(|r| r.l_extendedprice))?),
        ("l_discount", money(rows.iter().map(|r| r.l_discount))?),
        ("l_tax", money(rows.iter().map(|r| r.l_tax))?),
        ("l_returnflag", string(rows.iter().map(|r| r.l_returnflag))),
        ("l_linestatus", string(rows.iter().map(|r| r.l_linestatus))),
        ("l_shipdate", date(rows.iter().map(|r| r.l_shipdate.to_unix_epoch()))),
        ("l_commitdate", date(rows.iter().map(|r| r.l_commitdate.to_unix_epoch()))),
        ("l_receiptdate", date(rows.iter().map(|r| r.l_receiptdate.to_unix_epoch()))),
        ("l_shipinstruct", string(rows.iter().map(|r| r.l_shipinstruct))),
        ("l_shipmode", string(rows.iter().map(|r| r.l_shipmode))),
        ("l_comment", string(rows.iter().map(|r| r.l_comment))),
    ])
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch, ArrowError> {
    let fields: Vec<Field> = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), false)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, array)| array).collect())
}

fn long(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn date(values: impl Iterator<Item = i32>) -> ArrayRef {
    Arc::new(Date32Array::from_iter_values(values))
}

fn string<S: AsRef<str>>(values: impl Iterator<Item = S>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// `decimal(15, 2)`, TPC-H's money.
fn money(values: impl Iterator<Item = TPCHDecimal>) -> Result<ArrayRef, ArrowError> {
    let array = Decimal128Array::from_iter_values(values.map(|v| i128::from(v.0)));
    Ok(Arc::new(array.with_precision_and_scale(15, 2)?))
}

/// The type of a TPC-H money column.
pub const MONEY: DataType = DataType::Decimal128(15, 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loads_hold_every_row_of_tpch_once() {
        let loads = loads(0.001, 7).unwrap();
        assert_eq!(loads.len(), 7);
        assert_eq!(loads.iter().map(|l| l.orders.num_rows()).sum::<usize>(), 1500);
        assert_eq!(loads.iter().map(|l| l.lineitem.num_rows()).sum::<usize>(), 6005);
    }
}

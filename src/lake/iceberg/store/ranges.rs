//! Ranges of a file, joined for fewer requests. Pure.

use std::ops::Range;

use bytes::Bytes;

/// A gap up to this many bytes is cheaper to read than to skip.
const GAP: u64 = 256 * 1024;
/// Ranges are not joined beyond this many bytes.
const MOST: u64 = 32 << 20;

/// The fetches that cover all ranges, ascending. A range lies in one fetch whole.
pub fn coalesce(wanted: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = wanted.iter().filter(|r| r.start < r.end).cloned().collect();
    sorted.sort_by_key(|r| (r.start, r.end));
    let mut fetches: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match fetches.last_mut() {
            Some(last) if range.end <= last.end => {}
            Some(last) if range.start <= last.end.saturating_add(GAP) && range.end - last.start <= MOST => last.end = range.end,
            _ => fetches.push(range),
        }
    }
    fetches
}

/// A range out of what was fetched; `None` when no fetch covers it.
pub fn cut(fetched: &[(u64, Bytes)], range: &Range<u64>) -> Option<Bytes> {
    if range.start >= range.end {
        return (range.start == range.end).then(Bytes::new);
    }
    let covers = |(start, bytes): &&(u64, Bytes)| *start <= range.start && range.end - start <= bytes.len() as u64;
    let (start, bytes) = fetched.iter().find(covers)?;
    let from = usize::try_from(range.start - start).ok()?;
    let to = usize::try_from(range.end - start).ok()?;
    Some(bytes.slice(from..to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_one_fetch_and_strangers_are_two() {
        let joined = coalesce(&[0..10, 20..30, 10_000_000..10_000_001, 5..7]);
        assert_eq!(joined, [0..30, 10_000_000..10_000_001]);
    }

    proptest! {
        #[test]
        fn every_range_is_cut_from_one_fetch(wanted in prop::collection::vec((0u64..3_000_000, 0u64..2000), 0..40)) {
            let wanted: Vec<_> = wanted.into_iter().map(|(start, len)| start..start + len).collect();
            let file: Vec<u8> = (0..3_002_000u32).map(|i| (i % 251) as u8).collect();
            let fetched: Vec<_> = coalesce(&wanted)
                .into_iter()
                .map(|r| (r.start, Bytes::copy_from_slice(&file[r.start as usize..r.end as usize])))
                .collect();
            for range in &wanted {
                let cut = cut(&fetched, range).unwrap();
                prop_assert_eq!(&cut[..], &file[range.start as usize..range.end as usize]);
            }
        }
    }
}

//! Laws of the contiguous watermark.

use std::collections::BTreeMap;

use afterwrite::observe::kafka::watermark::Watermark;
use proptest::prelude::*;

#[test]
fn nothing_is_told_before_the_first_record_is_absorbed() {
    let mut mark = Watermark::default();
    assert_eq!((mark.next(), mark.tell()), (None, None));
    assert!(mark.taken(7, Some(100), 1));
    assert_eq!((mark.tell(), mark.waiting(), mark.oldest_ms()), (None, 1, Some(100)));
    mark.absorbed(7);
    assert_eq!((mark.tell(), mark.waiting(), mark.oldest_ms()), (Some(8), 0, None));
    assert_eq!(mark.tell(), None, "it is told once");
}

#[test]
fn a_gap_is_never_jumped() {
    let mut mark = Watermark::default();
    for offset in [3, 4, 5] {
        mark.taken(offset, None, 1);
    }
    mark.absorbed(5);
    mark.absorbed(4);
    assert_eq!((mark.tell(), mark.waiting()), (None, 1));
    mark.absorbed(3);
    assert_eq!(mark.tell(), Some(6));
}

#[test]
fn offsets_of_control_records_hold_nothing_up() {
    let mut mark = Watermark::default();
    mark.taken(0, None, 1);
    mark.taken(5, None, 1);
    mark.absorbed(0);
    assert_eq!(mark.tell(), Some(5));
    mark.absorbed(5);
    assert_eq!(mark.tell(), Some(6));
}

#[test]
fn a_record_without_events_waits_for_those_before_it_and_for_nothing_else() {
    let mut mark = Watermark::default();
    mark.taken(0, None, 0);
    assert_eq!(mark.tell(), Some(1));
    mark.taken(1, None, 2);
    mark.taken(2, None, 0);
    mark.absorbed(1);
    assert_eq!((mark.tell(), mark.waiting()), (None, 1));
    mark.absorbed(1);
    assert_eq!((mark.tell(), mark.waiting()), (Some(3), 0));
}

#[test]
fn a_record_that_was_taken_before_is_told_apart() {
    let mut mark = Watermark::default();
    assert!(mark.taken(4, None, 1));
    assert!(!mark.taken(4, None, 1));
    assert!(!mark.taken(1, None, 1));
    assert!(mark.taken(i64::MAX, None, 0));
}

proptest! {
    /// Against the plainest model: a map of what waits.
    #[test]
    fn what_is_told_is_the_first_offset_that_waits_and_never_falls(
        steps in prop::collection::vec((any::<bool>(), 1..4_i64, 0..3_usize, any::<prop::sample::Index>()), 1..200)
    ) {
        let (mut mark, mut waits, mut behind) = (Watermark::default(), BTreeMap::new(), 10_i64);
        let mut told = None;
        for (takes, gap, count, which) in steps {
            if takes {
                let offset = behind + gap - 1;
                behind = offset + 1;
                prop_assert!(mark.taken(offset, Some(offset * 10), count));
                if count > 0 {
                    waits.insert(offset, count);
                }
            } else if !waits.is_empty() {
                let offset = *waits.keys().nth(which.index(waits.len())).unwrap();
                mark.absorbed(offset);
                let left = waits.get_mut(&offset).unwrap();
                *left -= 1;
                if *left == 0 {
                    waits.remove(&offset);
                }
            } else {
                // an answer for a record that does not wait is passed over
                mark.absorbed(behind + 3);
            }
            let first = waits.keys().next().copied();
            prop_assert_eq!(mark.waiting(), waits.len());
            prop_assert_eq!(mark.oldest_ms(), first.map(|offset| offset * 10));
            if let Some(now) = mark.tell() {
                prop_assert!(told.is_none_or(|before| now > before));
                prop_assert!(waits.keys().all(|offset| *offset >= now), "a gap was jumped");
                prop_assert!(now <= behind);
                told = Some(now);
            }
            if let (None, Some(told)) = (first, told) {
                prop_assert_eq!(told, behind, "nothing waits and not all is told");
            }
        }
    }
}

#[test]
fn records_that_wait_for_one_look_take_the_memory_of_one() {
    let mut watermark = Watermark::default();
    for offset in 10..1_000 {
        assert!(watermark.taken(offset, Some(offset), 1));
        assert_eq!(watermark.joins(offset, 10), offset > 10, "{offset}");
    }
    assert_eq!((watermark.waiting(), watermark.kept(), watermark.next(), watermark.oldest_ms()), (990, 1, Some(10), Some(10)));
    // one that waits for another look too waits by itself
    watermark.taken(1_000, None, 2);
    assert!(watermark.joins(1_000, 10));
    assert_eq!((watermark.waiting(), watermark.kept()), (991, 2));
    watermark.absorbed(10);
    assert_eq!((watermark.waiting(), watermark.kept(), watermark.tell()), (1, 1, Some(1_000)));
    watermark.absorbed(1_000);
    assert_eq!((watermark.waiting(), watermark.kept(), watermark.tell()), (0, 0, Some(1_001)));
    // those along with one that joins another go with it
    for offset in 1_001..1_004 {
        watermark.taken(offset, None, 1);
    }
    assert!(watermark.joins(1_003, 1_002) && watermark.joins(1_002, 1_001));
    assert!(!watermark.joins(1_002, 1_001) && !watermark.joins(1_001, 1_001) && !watermark.joins(1_001, 7), "none of them is open");
    assert_eq!((watermark.waiting(), watermark.kept(), watermark.tell()), (3, 1, None));
    watermark.absorbed(1_001);
    assert_eq!((watermark.waiting(), watermark.tell()), (0, Some(1_004)));
}

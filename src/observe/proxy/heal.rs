//! Heals commits whose outcome a client would misread: the decision, without IO.
//!
//! Some clients take an error or a dropped connection after an applied commit for
//! a failure and delete the files that the table now names. So an answer that
//! does not prove the outcome is held back until the tables themselves were asked.
//!
//! *Invariants checked:*
//! * success is told only when every added snapshot of every table is in the
//!   table of the asserted uuid;
//! * absence is proven only when the ref has left the asserted parent along a history
//!   that is known without a gap, or, along such a history, something else that the
//!   commit asserts can hold no more; a missing table, another table under the name
//!   (a copy that lags may still show one that was dropped before), an unreadable
//!   answer, one that is older than what the commit was made for, or a history that
//!   was cut prove nothing;
//! * nothing is ever sent again.
//!
//! A crash of this process while it decides cannot be healed: the client sees a
//! dropped connection, as it would of any proxy.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::commit::{Change, Current};

/// What upstream answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status, with its whole body.
    Status(u16),
    /// Bytes were sent, and no whole answer came back.
    Lost,
}

/// What the answer's body says beyond its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// It speaks of a snapshot that the commit adds.
    pub names_ours: bool,
    /// It is a conflict told by a catalog that would have known a second copy of
    /// the request again, and answered it as the first.
    pub is_final: bool,
}

/// Whether an answer leaves open what became of the commit. 409 does, because
/// something on the way may have sent the request twice, and any other refusal that
/// speaks of a snapshot of the commit, as one does that is there already; 408 and
/// 429, because they may come from something on the way.
pub fn leaves_open(answer: Answer, words: Words) -> bool {
    match answer {
        Answer::Lost => true,
        Answer::Status(400..=499) if words.names_ours => true,
        Answer::Status(409) => !words.is_final,
        Answer::Status(status) => matches!(status, 408 | 429 | 500..=599),
    }
}

/// A table as a load showed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its uuid.
    pub uuid: Option<Uuid>,
    /// Where its refs stand.
    pub refs: BTreeMap<String, i64>,
    /// Its snapshots and their parents.
    pub parents: BTreeMap<i64, Option<i64>>,
    /// The sequence number given last; 0 in format 1.
    pub last_sequence: i64,
    /// The highest field id given.
    pub last_field: Option<i64>,
    /// The highest partition field id given.
    pub last_partition_field: Option<i64>,
    /// Its schemas.
    pub schema: OneOf,
    /// Its partition specs.
    pub spec: OneOf,
    /// Its sort orders.
    pub sort_order: OneOf,
}

/// Things of which one is current.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OneOf {
    /// The id of the current one.
    pub current: Option<i64>,
    /// The ids of all.
    pub all: BTreeSet<i64>,
}

impl OneOf {
    /// Whether the table has had `id` and another one is current now.
    fn has_left(&self, id: i64) -> bool {
        self.current.is_some_and(|current| current != id) && self.all.contains(&id)
    }
}

/// What a look at one table showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The table.
    Table(Box<Table>),
    /// No table has the name, or it could not be asked.
    Nothing,
}

/// Where one table's change stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Every added snapshot is there.
    Present,
    /// They are not, and can come no more.
    Absent,
    /// They are not, or it cannot be told; it may change.
    Open,
}

/// What to do about a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It landed: tell so.
    Landed,
    /// Proven not to have landed: tell upstream's answer.
    NotLanded,
    /// Proven to have landed in a part of its tables, which an atomic catalog
    /// does not do: neither success nor refusal would be true.
    Torn,
    /// Look again.
    Again,
}

/// Where a change stands in a table, given what upstream answered.
pub fn stand(change: &Change, answer: Answer, look: &Look) -> Stand {
    let Look::Table(table) = look else { return Stand::Open };
    if change.uuid.is_some() && table.uuid.is_some() && change.uuid != table.uuid {
        return Stand::Open;
    }
    let there = change.adds.iter().filter(|a| table.parents.contains_key(&a.id)).count();
    if there == change.adds.len() {
        return Stand::Present;
    }
    // a part of one table's snapshots is no state that a catalog makes
    if there > 0 {
        return Stand::Open;
    }
    // what exists without them can be created no more; but it may be what was there before,
    // or ours, whose snapshots have expired
    if change.creates {
        return Stand::Open;
    }
    let left = || is_spent(change, table) && change.asserted.iter().any(|(reference, parent)| has_left(change, table, reference, *parent));
    let refused = || change.current.iter().any(|asserted| is_over(table, *asserted, answer)) && was_never_there(change, table);
    if !is_behind(change, table) && (left() || refused()) { Stand::Absent } else { Stand::Open }
}

/// Whether the table is older than the one that the change was made for: a catalog
/// may answer a load from a copy that lags.
fn is_behind(change: &Change, table: &Table) -> bool {
    first_sequence(change).is_some_and(|first| table.last_sequence < first.saturating_sub(1))
}

/// Whether the change's first sequence number was given to another. Until then a ref
/// that has left its parent may come back to it, as a rollback does, or may have left
/// it in a copy that lags: neither moves the numbers. Format 1 has none.
fn is_spent(change: &Change, table: &Table) -> bool {
    first_sequence(change).is_none_or(|first| table.last_sequence >= first)
}

/// The first sequence number that the change gives; `None` in format 1.
fn first_sequence(change: &Change) -> Option<i64> {
    change.adds.iter().map(|a| a.sequence).filter(|sequence| *sequence > 0).min()
}

/// Whether what is asserted can hold no more. Ids are given upwards only. What can
/// be made current again counts as left for a commit that the catalog itself has
/// refused, as a ref does, and as open where it said less.
fn is_over(table: &Table, asserted: Current, answer: Answer) -> bool {
    let is_refused = answer == Answer::Status(409);
    match asserted {
        Current::LastField(id) => table.last_field.is_some_and(|last| last > id),
        Current::LastPartitionField(id) => table.last_partition_field.is_some_and(|last| last > id),
        Current::Schema(id) => is_refused && table.schema.has_left(id),
        Current::Spec(id) => is_refused && table.spec.has_left(id),
        Current::SortOrder(id) => is_refused && table.sort_order.has_left(id),
    }
}

/// Whether the added snapshots, which the table does not have, cannot have been
/// there and be expired: the change moves refs, and the history of each is known
/// down to where it stood. A staged snapshot leaves no trace.
fn was_never_there(change: &Change, table: &Table) -> bool {
    let is_known = |(reference, _): &(String, Option<i64>)| is_known(table, reference, change.asserted_of(reference));
    !change.moves.is_empty() && change.moves.iter().all(is_known)
}

/// Whether a ref has moved away from `parent`, with a history known down to it or
/// to the first snapshot.
fn has_left(change: &Change, table: &Table, reference: &str, parent: Option<i64>) -> bool {
    let head = table.refs.get(reference).copied();
    // a parent that the table does not know may be one that a lagging copy does not know yet
    let is_past = first_sequence(change).is_some() || parent.is_none_or(|parent| table.parents.contains_key(&parent));
    head.is_some() && head != parent && is_past && is_known(table, reference, parent)
}

/// Whether the history of a ref is known down to `parent` or to the first snapshot.
fn is_known(table: &Table, reference: &str, parent: Option<i64>) -> bool {
    let head = table.refs.get(reference).copied();
    if head == parent {
        return true;
    }
    let mut seen = BTreeSet::new();
    let Some(mut at) = head else { return false };
    loop {
        if Some(at) == parent {
            return true;
        }
        match table.parents.get(&at) {
            None => return false,
            Some(None) => return true,
            Some(Some(_)) if !seen.insert(at) => return false,
            Some(Some(next)) => at = *next,
        }
    }
}

/// What to do, given where every table that gets a snapshot stands.
pub fn decide(stands: &[Stand]) -> Verdict {
    let (present, absent) = (stands.contains(&Stand::Present), stands.contains(&Stand::Absent));
    let open = stands.contains(&Stand::Open);
    match (present, absent, open) {
        (_, false, true) | (false, false, false) => Verdict::Again,
        (true, false, false) => Verdict::Landed,
        (false, true, _) => Verdict::NotLanded,
        (true, true, _) => Verdict::Torn,
    }
}

#[cfg(test)]
mod tests {
    use super::super::commit::Added;
    use super::*;

    const UUID: Uuid = Uuid::from_u128(7);

    fn change(asserted: &[(&str, Option<i64>)], adds: &[i64]) -> Change {
        let added = |id: &i64| Added { id: *id, parent: None, sequence: 0, files: 0, touched: vec![], own: false, appends: false };
        Change {
            uuid: Some(UUID),
            asserted: asserted.iter().map(|(r, p)| ((*r).to_owned(), *p)).collect(),
            moves: asserted.iter().map(|(r, _)| ((*r).to_owned(), adds.last().copied())).collect(),
            adds: adds.iter().map(added).collect(),
            ..Change::default()
        }
    }

    /// A table whose `main` is at the last of a chain of snapshots; `root` is the
    /// first one's parent.
    fn table(root: Option<i64>, chain: &[i64]) -> Table {
        let mut parents = BTreeMap::new();
        let mut parent = root;
        for id in chain {
            parents.insert(*id, parent);
            parent = Some(*id);
        }
        let refs = chain.last().map(|head| ("main".to_owned(), *head)).into_iter().collect();
        Table { uuid: Some(UUID), refs, parents, ..Table::default() }
    }

    const LOST: Answer = Answer::Lost;
    const REFUSED: Answer = Answer::Status(409);

    fn stands(change: &Change, table: Table) -> Stand {
        let found = stand(change, LOST, &Look::Table(Box::new(table.clone())));
        assert_eq!(stand(change, REFUSED, &Look::Table(Box::new(table))), found, "the answer says nothing of refs and uuids");
        found
    }

    #[test]
    fn only_answers_that_leave_it_open_are_held_back() {
        let open = [408, 409, 429, 500, 501, 502, 503, 504, 507, 599];
        let told = [100, 200, 201, 204, 301, 304, 400, 401, 403, 404, 406, 412, 419, 422, 600];
        assert_eq!(open.map(|s| leaves_open(Answer::Status(s), Words::default())), [true; 10]);
        assert_eq!(told.map(|s| leaves_open(Answer::Status(s), Words::default())), [false; 15]);
        assert!(leaves_open(Answer::Lost, Words::default()));
    }

    #[test]
    fn words_hold_a_refusal_back_that_speaks_of_ours_and_free_a_conflict_that_is_no_echo() {
        let held = |status, names_ours, is_final| leaves_open(Answer::Status(status), Words { names_ours, is_final });
        assert_eq!([400, 409, 412, 422].map(|s| held(s, true, false)), [true; 4]);
        assert_eq!([200, 204, 301].map(|s| held(s, true, false)), [false; 3]);
        assert!(!held(409, false, true));
        assert!(held(409, true, true), "whatever else is promised");
        assert_eq!([408, 429, 500, 504].map(|s| held(s, false, true)), [true; 4], "of these a key promises nothing");
    }

    #[test]
    fn a_commit_has_landed_when_all_its_snapshots_are_there_wherever_the_ref_went() {
        let both = change(&[("main", Some(1))], &[2, 3]);
        assert_eq!(stands(&both, table(None, &[1, 2, 3])), Stand::Present);
        assert_eq!(stands(&both, table(None, &[1, 2, 3, 9])), Stand::Present);
        assert_eq!(stands(&both, table(None, &[1, 2])), Stand::Open);
        let staged = change(&[], &[5]);
        let mut beside = table(None, &[1]);
        beside.parents.insert(5, Some(1));
        assert_eq!(stands(&staged, beside), Stand::Present);
        assert_eq!(stands(&staged, table(None, &[1, 2])), Stand::Open);
    }

    #[test]
    fn absent_is_not_failed_while_the_ref_stands_at_the_asserted_parent() {
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), table(None, &[1])), Stand::Open);
        assert_eq!(stands(&change(&[("main", None)], &[2]), table(None, &[])), Stand::Open);
        assert_eq!(stand(&change(&[("main", Some(1))], &[2]), REFUSED, &Look::Nothing), Stand::Open);
    }

    #[test]
    fn failure_is_proven_when_the_ref_left_the_parent_without_it() {
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), table(None, &[1, 8, 9])), Stand::Absent);
        assert_eq!(stands(&change(&[("main", None)], &[2]), table(None, &[8])), Stand::Absent);
        // rolled back to before the parent, which was expired
        assert_eq!(
            stands(&numbered(change(&[("main", Some(1))], &[2]), 4), Table { last_sequence: 4, ..table(None, &[8]) }),
            Stand::Absent
        );
        // the history below the parent was expired
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), table(Some(0), &[1, 8])), Stand::Absent);
    }

    /// The same change with sequence numbers from `first` on.
    fn numbered(mut change: Change, first: i64) -> Change {
        (first..).zip(&mut change.adds).for_each(|(sequence, added)| added.sequence = sequence);
        change
    }

    #[test]
    fn a_table_older_than_the_commits_base_proves_nothing() {
        // made for a table whose last number was 5; a lagging copy has not seen snapshot 1 yet
        let late = numbered(change(&[("main", Some(1))], &[2]), 6);
        let at = |last_sequence, chain: &[i64]| stands(&late, Table { last_sequence, ..table(None, chain) });
        assert_eq!([at(4, &[7, 8]), at(5, &[7, 8]), at(6, &[7, 8])], [Stand::Open, Stand::Open, Stand::Absent]);
        assert_eq!([at(4, &[1, 8]), at(5, &[1, 8])], [Stand::Open, Stand::Open]);
        // format 1 numbers nothing: only a parent that is known was there before
        let unnumbered = change(&[("main", Some(1))], &[2]);
        assert_eq!(stands(&unnumbered, table(None, &[7, 8])), Stand::Open);
        assert_eq!(stands(&unnumbered, table(None, &[1, 8])), Stand::Absent);
    }

    #[test]
    fn a_ref_that_was_rolled_back_may_come_forward_again_and_proves_nothing() {
        // made for snapshot 1, whose number was 5; main stands at its parent 0 now, and no number was given since
        let queued = numbered(change(&[("main", Some(1))], &[2]), 6);
        let rolled_back = |last_sequence| Table { last_sequence, ..table(None, &[0]) };
        assert_eq!([5, 6].map(|last| stands(&queued, rolled_back(last))), [Stand::Open, Stand::Absent]);
    }

    fn asserting(current: Current) -> Change {
        Change { current: vec![current], ..change(&[("main", Some(1))], &[2]) }
    }

    fn with(ids: (i64, i64)) -> Table {
        let one = |current| OneOf { current: Some(current), all: BTreeSet::from([0, 1]) };
        Table {
            last_field: Some(ids.0),
            last_partition_field: Some(ids.0),
            schema: one(ids.1),
            spec: one(ids.1),
            sort_order: one(ids.1),
            ..table(None, &[1])
        }
    }

    const OPEN: [Stand; 2] = [Stand::Open, Stand::Open];

    fn both(change: &Change, table: &Table) -> [Stand; 2] {
        [REFUSED, LOST].map(|answer| stand(change, answer, &Look::Table(Box::new(table.clone()))))
    }

    #[test]
    fn an_id_that_was_given_since_refuses_the_commit_for_ever() {
        for (asserted, ahead) in
            [(Current::LastField(7), Current::LastField(9)), (Current::LastPartitionField(7), Current::LastPartitionField(9))]
        {
            assert_eq!(both(&asserting(asserted), &with((8, 0))), [Stand::Absent, Stand::Absent], "{asserted:?}");
            // it holds, and it may come to hold
            assert_eq!(both(&asserting(Current::LastField(8)), &with((8, 0))), OPEN);
            assert_eq!(both(&asserting(ahead), &with((8, 0))), OPEN, "{ahead:?}");
            assert_eq!(both(&asserting(asserted), &table(None, &[1])), OPEN, "the table does not say");
        }
    }

    #[test]
    fn what_can_be_current_again_refuses_only_what_the_catalog_refused() {
        for asserted in [Current::Schema, Current::Spec, Current::SortOrder] {
            assert_eq!(both(&asserting(asserted(0)), &with((8, 1))), [Stand::Absent, Stand::Open]);
            assert_eq!(both(&asserting(asserted(1)), &with((8, 1))), OPEN, "it holds");
            assert_eq!(both(&asserting(asserted(2)), &with((8, 1))), OPEN, "the table has never had it: it may be an older copy");
        }
    }

    #[test]
    fn a_requirement_that_failed_proves_nothing_of_what_may_have_landed_before() {
        let asserted = Current::LastField(7);
        let known = with((8, 0));
        // ours may have been below 8, and be expired
        assert_eq!(
            both(&asserting(asserted), &Table { refs: [("main".to_owned(), 8)].into(), parents: [(8, Some(2))].into(), ..known.clone() }),
            OPEN
        );
        // the branch is gone, and a staged snapshot was never on one
        assert_eq!(both(&asserting(asserted), &Table { refs: BTreeMap::new(), ..known.clone() }), OPEN);
        assert_eq!(both(&Change { moves: vec![], ..asserting(asserted) }, &known), OPEN);
        // it is there
        let mut there = known.clone();
        there.parents.insert(2, Some(1));
        assert_eq!(both(&asserting(asserted), &there), [Stand::Present, Stand::Present]);
        // the load is older than the commit's base
        let late = numbered(asserting(asserted), 6);
        assert_eq!(both(&late, &Table { last_sequence: 4, ..known.clone() }), OPEN);
        assert_eq!(both(&late, &Table { last_sequence: 5, ..known }), [Stand::Absent, Stand::Absent]);
    }

    #[test]
    fn a_history_that_was_cut_proves_nothing() {
        // our snapshot may have been between 1 and 8, and expired since
        let ours = numbered(change(&[("main", Some(1))], &[2]), 1);
        assert_eq!(stands(&ours, table(Some(2), &[8, 9])), Stand::Open);
        assert_eq!(stands(&change(&[("main", None)], &[2]), table(Some(2), &[8])), Stand::Open);
        // a ref that is gone
        assert_eq!(stands(&change(&[("audit", Some(1))], &[2]), table(None, &[1])), Stand::Open);
        // a history that runs in a circle is no history
        let mut circle = table(None, &[8, 9]);
        circle.parents.insert(8, Some(9));
        assert_eq!(stands(&ours, circle), Stand::Open);
    }

    #[test]
    fn the_snapshot_under_another_uuid_is_another_snapshot() {
        let other = Table { uuid: Some(Uuid::from_u128(8)), ..table(None, &[1, 2]) };
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), other.clone()), Stand::Open);
        // even where the table under it has moved on: it may be one that was dropped
        assert_eq!(stands(&change(&[("main", Some(1))], &[3]), Table { last_sequence: 9, ..other.clone() }), Stand::Open);
        let created = Change { creates: true, ..change(&[], &[2]) };
        assert_eq!(stands(&created, other), Stand::Open);
        assert_eq!(stands(&created, table(None, &[2])), Stand::Present);
        assert_eq!(stands(&created, table(None, &[1])), Stand::Open);
        assert_eq!(stand(&created, REFUSED, &Look::Nothing), Stand::Open);
    }

    #[test]
    fn every_table_of_a_transaction_must_be_told() {
        use Stand::{Absent, Open, Present};
        assert_eq!(decide(&[Present, Present]), Verdict::Landed);
        assert_eq!(decide(&[Present, Open]), Verdict::Again);
        assert_eq!(decide(&[Open]), Verdict::Again);
        assert_eq!(decide(&[Absent, Open]), Verdict::NotLanded);
        assert_eq!(decide(&[Absent, Absent]), Verdict::NotLanded);
        assert_eq!(decide(&[Present, Absent]), Verdict::Torn);
        assert_eq!(decide(&[]), Verdict::Again);
    }
}

//! Heals commits whose outcome a client would misread: the decision, without IO.
//!
//! Some clients take an error or a dropped connection after an applied commit for
//! a failure and delete the files that the table now names. So an answer that
//! does not prove the outcome is held back until the tables themselves were asked.
//!
//! *Invariants checked:*
//! * success is told only when every added snapshot of every table is in the
//!   table of the asserted uuid;
//! * absence is proven only when another table stands under the name, or the ref
//!   has left the asserted parent along a history that is known without a gap; a
//!   missing table, an unreadable answer or a history that was cut prove nothing;
//! * nothing is ever sent again.
//!
//! A crash of this process while it decides cannot be healed: the client sees a
//! dropped connection, as it would of any proxy.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::commit::Change;

/// What upstream answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status, with its whole body.
    Status(u16),
    /// Bytes were sent, and no whole answer came back.
    Lost,
}

/// Whether an answer leaves open what became of the commit. 409 does, because
/// something on the way may have sent the request twice; 408 and 429, because
/// they may come from something on the way.
pub fn leaves_open(answer: Answer) -> bool {
    match answer {
        Answer::Lost => true,
        Answer::Status(status) => matches!(status, 408 | 409 | 429 | 500..=599),
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
}

/// What a look at one table showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The table.
    Table(Table),
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

/// Where a change stands in a table.
pub fn stand(change: &Change, look: &Look) -> Stand {
    let Look::Table(table) = look else { return Stand::Open };
    if change.uuid.is_some() && table.uuid.is_some() && change.uuid != table.uuid {
        return Stand::Absent;
    }
    let there = change.adds.iter().filter(|a| table.parents.contains_key(&a.id)).count();
    if there == change.adds.len() {
        return Stand::Present;
    }
    // a table that exists can be created no more; a part of one table's snapshots is no state that a catalog makes
    if change.creates && there == 0 {
        return Stand::Absent;
    }
    let left = there == 0 && change.asserted.iter().any(|(reference, parent)| has_left(table, reference, *parent));
    if left { Stand::Absent } else { Stand::Open }
}

/// Whether a ref stands elsewhere than at `parent`, with a history known down to
/// `parent` or to the first snapshot.
fn has_left(table: &Table, reference: &str, parent: Option<i64>) -> bool {
    let head = table.refs.get(reference).copied();
    if head == parent {
        return false;
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
        let added = |id: &i64| Added { id: *id, parent: None, files: 0, touched: vec![], own: false };
        Change {
            uuid: Some(UUID),
            asserted: asserted.iter().map(|(r, p)| ((*r).to_owned(), *p)).collect(),
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
        Table { uuid: Some(UUID), refs, parents }
    }

    fn stands(change: &Change, table: Table) -> Stand {
        stand(change, &Look::Table(table))
    }

    #[test]
    fn only_answers_that_leave_it_open_are_held_back() {
        let open = [408, 409, 429, 500, 501, 502, 503, 504, 507, 599];
        let told = [100, 200, 201, 204, 301, 304, 400, 401, 403, 404, 406, 412, 419, 422, 600];
        assert_eq!(open.map(|s| leaves_open(Answer::Status(s))), [true; 10]);
        assert_eq!(told.map(|s| leaves_open(Answer::Status(s))), [false; 15]);
        assert!(leaves_open(Answer::Lost));
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
        assert_eq!(stand(&change(&[("main", Some(1))], &[2]), &Look::Nothing), Stand::Open);
    }

    #[test]
    fn failure_is_proven_when_the_ref_left_the_parent_without_it() {
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), table(None, &[1, 8, 9])), Stand::Absent);
        assert_eq!(stands(&change(&[("main", None)], &[2]), table(None, &[8])), Stand::Absent);
        // rolled back to before the parent, and replaced by a table without history
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), table(None, &[8])), Stand::Absent);
        // the history below the parent was expired
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), table(Some(0), &[1, 8])), Stand::Absent);
    }

    #[test]
    fn a_history_that_was_cut_proves_nothing() {
        // our snapshot may have been between 1 and 8, and expired since
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), table(Some(2), &[8, 9])), Stand::Open);
        assert_eq!(stands(&change(&[("main", None)], &[2]), table(Some(2), &[8])), Stand::Open);
        // a ref that is gone
        assert_eq!(stands(&change(&[("audit", Some(1))], &[2]), table(None, &[1])), Stand::Open);
        // a history that runs in a circle is no history
        let mut circle = table(None, &[8, 9]);
        circle.parents.insert(8, Some(9));
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), circle), Stand::Open);
    }

    #[test]
    fn the_snapshot_under_another_uuid_is_another_snapshot() {
        let other = Table { uuid: Some(Uuid::from_u128(8)), ..table(None, &[1, 2]) };
        assert_eq!(stands(&change(&[("main", Some(1))], &[2]), other.clone()), Stand::Absent);
        let created = Change { creates: true, ..change(&[], &[2]) };
        assert_eq!(stands(&created, other), Stand::Absent);
        assert_eq!(stands(&created, table(None, &[2])), Stand::Present);
        assert_eq!(stands(&created, table(None, &[1])), Stand::Absent);
        assert_eq!(stand(&created, &Look::Nothing), Stand::Open);
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

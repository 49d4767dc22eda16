//! Takes what other systems tell of tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::ident::{MAIN, TableName};
use crate::model::partition::PartitionKey;
use crate::serve::backend::{Error, Taken, Tells, names_of};

use super::Loop;
use super::book::Telling;

impl Loop {
    /// See [`crate::serve::Backend::tell`].
    pub(super) async fn take_told(&self, name: &TableName, told: &[Tells], until_ms: i64) -> Result<Taken, Error> {
        let asked: BTreeSet<&str> = told.iter().map(|tells| tells.partition.as_str()).filter(|label| !label.is_empty()).collect();
        let keys = self.keys_of(name, &asked).await?;
        let (mut tellings, mut unknown) = (Vec::with_capacity(told.len()), Vec::new());
        for tells in told {
            let partition = keys.get(tells.partition.as_str()).cloned();
            if partition.is_none() && !tells.partition.is_empty() {
                unknown.push(tells.partition.clone());
                continue;
            }
            tellings.push(Telling { partition, stats: tells.stats.clone(), until_ms });
        }
        let taken = self.book().tell(name, &tellings, self.now());
        self.changed.notify_one();
        if taken < tellings.len() {
            let why = format!("numbers of no more scopes are kept: of {} only the first {taken} were taken", tellings.len());
            return Err(Error::Unavailable(why));
        }
        Ok(Taken { taken: taken as u64, unknown })
    }

    /// The partitions of a table, on any of its branches, that these name.
    async fn keys_of(&self, name: &TableName, asked: &BTreeSet<&str>) -> Result<BTreeMap<String, PartitionKey>, Error> {
        let branches: Vec<Arc<str>> = self.book().pages(name).map(|page| Arc::clone(&page.reference)).collect();
        let mut keys = BTreeMap::new();
        for branch in &branches {
            keys.extend(self.keys_on(name, branch, asked).await?);
        }
        match branches.is_empty() {
            // says why none is known
            true => self.with_known(name, MAIN, |_, _| keys),
            false => Ok(keys),
        }
    }

    async fn keys_on(&self, name: &TableName, branch: &str, asked: &BTreeSet<&str>) -> Result<BTreeMap<String, PartitionKey>, Error> {
        if asked.is_empty() {
            return self.with_known(name, branch, |_, _| BTreeMap::new());
        }
        let state = self.state_for(name, branch).await?;
        self.with_known(name, branch, |page, _| {
            let mut keys = BTreeMap::new();
            for key in state.layout.partitions().keys() {
                let names = names_of(&key, page.spec(&key)).into_iter().filter(|name| asked.contains(name.as_str()));
                keys.extend(names.map(|name| (name, key.clone())));
            }
            keys
        })
    }
}

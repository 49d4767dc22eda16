//! Which branches of which tables are looked after, as far as the doors must know: events
//! about others mark nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::model::ident::{MAIN, TableName};
use crate::model::policy::named;

/// The branches of a table that was not looked at yet.
pub type BySettings = dyn Fn(&TableName) -> Vec<String> + Send + Sync;

/// The branches that are looked after: those of the settings, and of tables that were looked
/// at what their properties make of them. Until settings are given, only `main`.
#[derive(Default)]
pub struct Branches {
    by_settings: OnceLock<Box<BySettings>>,
    /// Of tables whose properties say otherwise.
    otherwise: Mutex<HashMap<TableName, Vec<String>>>,
}

impl Branches {
    /// Sets what the settings say of tables; once.
    pub fn set(&self, by_settings: Box<BySettings>) {
        let _ = self.by_settings.set(by_settings);
    }

    /// A look has shown which branches of a table are looked after.
    pub fn found(&self, table: &TableName, branches: &[String]) {
        match self.of_settings(table) == branches {
            true => self.forget(table),
            false => drop(self.lock().insert(table.clone(), branches.to_vec())),
        }
    }

    /// A table is gone.
    pub fn forget(&self, table: &TableName) {
        self.lock().remove(table);
    }

    /// Whether events about a branch are heard; without one, about the table: always.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn check(&self, table: &TableName, branch: Option<&str>) -> Result<(), String> {
        let Some(branch) = branch else { return Ok(()) };
        let known = self.lock().get(table).cloned().unwrap_or_else(|| self.of_settings(table));
        match known.iter().any(|known| known == branch) {
            true => Ok(()),
            false => Err(why_not(branch, &known)),
        }
    }

    fn of_settings(&self, table: &TableName) -> Vec<String> {
        self.by_settings.get().map_or_else(|| vec![MAIN.to_owned()], |of| of(table))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TableName, Vec<String>>> {
        self.otherwise.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That a branch is not looked after, and which are.
pub fn why_not(branch: &str, known: &[String]) -> String {
    let are = if known.len() == 1 { "is" } else { "are" };
    // what a sender wrote may be long
    let branch: String = branch.chars().take(128).collect();
    format!("branch `{branch}` is not looked after: only {} {are}", named(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_heard_of_when_the_settings_or_the_tables_properties_name_it() {
        let [t, u] = ["t", "u"].map(|name| TableName::new("lake", "db", name));
        let branches = Branches::default();
        let told = |table, branch: &str| branches.check(table, Some(branch));
        assert_eq!((branches.check(&t, None), told(&t, "main")), (Ok(()), Ok(())));
        assert_eq!(told(&t, "audit"), Err("branch `audit` is not looked after: only `main` is".into()));
        let of = t.clone();
        branches.set(Box::new(move |name| if *name == of { vec!["main".into(), "audit".into()] } else { vec!["main".into()] }));
        assert_eq!((told(&t, "audit"), told(&u, "audit").is_err()), (Ok(()), true));
        // properties win over settings, and are forgotten with the table
        branches.found(&t, &["dev".into(), "main".into(), "audit 2".into()]);
        branches.found(&u, &["main".into()]);
        assert_eq!(told(&t, "audit"), Err("branch `audit` is not looked after: only `dev`, `main` and `audit 2` are".into()));
        assert_eq!((told(&t, "dev"), branches.lock().len()), (Ok(()), 1));
        branches.found(&t, &["audit".into()]);
        assert!(told(&t, "main").is_err());
        branches.forget(&t);
        assert_eq!((told(&t, "main"), told(&t, "audit"), branches.lock().len()), (Ok(()), Ok(()), 0));
    }
}

//! What was spent outside: jobs of other processes, which nobody reserved.

use super::{Amounts, Budget, Spending};

impl Budget {
    /// Books what a job used that held no reservation here. What the budgets do not hold
    /// of it is a debt, paid before the next job.
    pub fn book(&mut self, spending: &Spending, now_ms: i64) {
        let table = spending.table.filter(|_| !self.budgets.per_table.is_none());
        let used = Amounts::from(&spending.used);
        for (_, purse) in self.open(table, spending.tenant.as_ref(), now_ms).into_iter().flatten() {
            // it takes no place among the jobs that run here
            purse.running = purse.running.saturating_add(1);
            purse.settle(&Amounts::default(), &used, now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::Used;
    use super::*;
    use crate::model::economy::{Budgets, Limits};
    use crate::model::ident::TableIdent;
    use crate::model::plan::Bound;
    use crate::model::policy::BudgetLimits;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn what_nobody_reserved_is_a_debt_and_takes_no_place() {
        let limits = BudgetLimits { gb_hours_per_hour: 2.0, carry_over_hours: 1.0, concurrent_jobs: 1 };
        let table = TableIdent::iceberg(Uuid::from_u128(1));
        let per_table = Limits { commits_per_hour: Some(1), ..Limits::default() };
        let mut budget = Budget::new(&Budgets { per_table, ..Budgets::of(&limits) }, 0);
        let spending = |gb_hours| Spending { at_ms: 0, table: Some(table), tenant: None, used: Used { gb_hours, bytes: 1, commits: 1 } };
        budget.book(&spending(1.5), 0);
        assert_eq!((budget.available(), budget.running()), (0.5, 0));
        // beside a job that runs and keeps its place
        let held = budget.reserve(&Bound { gb_hours: 0.5, millis: 0, memory: 0 }, 0).unwrap();
        budget.book(&spending(1.0), 0);
        assert_eq!((budget.available(), budget.reserved(), budget.running()), (0.0, 0.5, 1));
        budget.settle(held, 0.5, HOUR / 2);
        // half an hour's 1.0 pays the debt of 1.0
        assert_eq!((budget.available(), budget.running()), (0.0, 0));
        budget.book(&spending(0.0), HOUR);
        assert_eq!(budget.available(), 1.0);
        // three commits of one table: two hours are owed
        let purse = |budget: &mut Budget, now_ms| {
            let bound = Bound { gb_hours: 0.1, millis: 0, memory: 0 };
            let ask = super::super::Ask { bound: &bound, bytes: 0, table: Some(table), tenant: None };
            budget.reserve_for(&ask, now_ms).map(|held| budget.settle(held, 0.0, now_ms)).is_ok()
        };
        assert!(!purse(&mut budget, 2 * HOUR) && purse(&mut budget, 4 * HOUR));
    }
}

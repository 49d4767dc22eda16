//! The outputs of a job belong to all of its tries: they stay while any try of it
//! is in the table, whatever is believed of another.

use afterwrite::lake::NotLanded;
use afterwrite::lake::iceberg::commit::remove_outputs;
use afterwrite::model::outcome::Outcome;
use afterwrite::model::plan::AttemptId;

use crate::fixture::{Table, row};

#[tokio::test]
async fn h03_outputs_stay_while_any_try_of_their_job_is_in_the_table() {
    let t = Table::plain().create().await;
    let f1 = t.append([row(1, "a", 0)]).await;
    let plan = t.plan_all(&f1).await;
    let written = t.naive_rewrite(&plan).await;
    let outputs: Vec<String> = written.outputs.iter().map(|o| o.path.clone()).collect();
    // given outputs of `job-1.0` that its second try entered
    assert!(matches!(t.commit(&plan, &written, "job-1.2").await, Outcome::Landed { .. }));
    // when they are to be removed as those of a lost attempt
    for attempt in ["job-1.0", "job-1.2"] {
        let proof = NotLanded::never_asked(&AttemptId(attempt.into()));
        let error = remove_outputs(&t.load().await, &proof, &outputs).await.unwrap_err();
        assert!(error.to_string().contains("is its own"), "{error}");
    }
    assert_eq!(t.rows().await, ["1|a"]);
    // then those of another try, and of a job whose name begins alike, may go
    for attempt in ["job-1.1", "job-1.3", "job-.0", "job-1.2.0", "job-12.0", "job.0"] {
        let path = format!("{}/data/{attempt}.parquet", t.load().await.loaded.metadata.location());
        t.catalog.io().new_output(&path).unwrap().write("x".into()).await.unwrap();
        let proof = NotLanded::never_asked(&AttemptId(attempt.into()));
        remove_outputs(&t.load().await, &proof, std::slice::from_ref(&path)).await.unwrap();
        assert!(!t.catalog.io().exists(&path).await.unwrap(), "{attempt}");
    }
}

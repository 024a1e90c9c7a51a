//! The page of errors: the codes of REST with the options of a client, and the corresponding codes of SQS.

use super::{cell, head, row, table};
use crate::api::error_table;

const INTRODUCTION: &str = "\
An error of REST has Zaqar's `title` and `description`, and what a program needs to go on:

```json
{\"title\": \"Unable to delete\", \"description\": \"message … is claimed and cannot be deleted without a valid claim ID\",
 \"code\": \"claimed\", \"may_retry\": false, \"nothing_written\": true, \"request_id\": \"req-…\"}
```

* `code` never changes its meaning. Decide by it, not by the text.
* `may_retry` is true when the same request may succeed later. Answers 429 and 503 have `Retry-After`.
* `nothing_written` is false only for `unknown_outcome`: the request may have been carried out.
* `request_id` is also in the header `X-OpenStack-Request-Id` and in the log.

An error of SQS has the code, status and form of AWS. The last column has the SQS code of the same situation.

";

pub(super) fn page() -> String {
    let mut page = head("Errors", "errors") + INTRODUCTION;
    page += &table(&["code", "status", "may retry", "nothing written", "meaning", "SQS"]);
    for error in error_table::rows() {
        let statuses: Vec<String> = error.statuses.iter().map(ToString::to_string).collect();
        let sqs: Vec<String> = error.sqs_codes.iter().map(|code| format!("`{code}`")).collect();
        page += &row(&[
            format!("`{}`", error.code),
            statuses.join(", "),
            error.may_retry.to_owned(),
            (if error.nothing_written { "yes" } else { "unknown" }).to_owned(),
            cell(error.meaning),
            sqs.join(", "),
        ]);
    }
    page
}

//! `angarium rotate-receipts`: replace the key of SQS receipts.

use clap::Args;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::caller::CallerArgs;
use super::failure::Failure;
use super::remote::ApiRequest;

/// Replace the key of SQS receipts while the service runs (administrators)
#[derive(Args, Clone, Debug)]
pub struct RotateReceiptsArgs {
    #[command(flatten)]
    caller: CallerArgs,
}

#[derive(Debug, Deserialize)]
struct Rotation {
    since: String,
    earlier_expire: String,
}

pub(super) fn rotate(args: &RotateReceiptsArgs) -> Result<(), Failure> {
    let reply =
        args.caller.remote()?.call(ApiRequest::new(Method::POST, "/v2/receipts/rotate".to_owned()))?;
    let Rotation { since, earlier_expire } = reply.parse()?;
    let sentence = format!(
        "receipts have the new key from {since} on; earlier receipts are valid until {earlier_expire}"
    );
    args.caller.printer().done(&sentence, &json!({"since": since, "earlier_expire": earlier_expire}))
}

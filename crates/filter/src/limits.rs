//! Bounds of policies and of what they read.

/// Max bytes of the JSON text of a policy (SNS: 256 KB).
pub const POLICY_BYTES: usize = 262_144;
/// Max different keys in a policy, those of the objects of `$or` included (SNS: five). Of nested keys only the outermost
/// one counts, as at SNS.
pub const POLICY_KEYS: usize = 5;
/// Max combinations of a policy (SNS: 150). It bounds the cost of an evaluation as well.
pub const POLICY_COMBINATIONS: u64 = 150;
/// Max size of a number of `numeric`, below and above zero (SNS: a billion).
pub const NUMERIC_SIZE: &str = "1000000000";
/// Max digits after the point of a number of `numeric` (SNS: five).
pub const NUMERIC_FRACTION_DIGITS: u64 = 5;
/// Max levels of JSON in a policy or a body. The JSON reader of the API has the same bound. It bounds the stack.
pub const JSON_LEVELS: usize = 128;
/// Max parts of a key with dots that counts as a path. A key with more parts is taken literally. It bounds the cost of
/// a body with keys of dots only.
pub const DOTTED_PARTS: usize = 16;

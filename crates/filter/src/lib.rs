//! Filter policies: which messages a subscription accepts. The language is that of SNS subscription filter policies. The
//! crate is pure: it is given a policy and a message, and answers. It knows no subscription.
//!
//! ```text
//! {
//!   "state": ["new", "paid"],
//!   "price": [{"numeric": [">=", 10, "<", 100]}],
//!   "$or": [{"country": ["DE"]}, {"customer": [{"prefix": "vip-"}]}]
//! }
//! ```
//!
//! A message is accepted when each key of the policy has a value that one element of the key's array accepts; `$or`
//! needs one of its objects.
//!
//! # Elements of an array
//!
//! | element | accepts |
//! |---|---|
//! | `"a"`, `5`, `true`, `null` | the same value of the same type; `300`, `300.0` and `3e2` are the same number |
//! | `{"prefix": "a"}`, `{"suffix": "a"}` | a string that begins or ends with it |
//! | `{"equals-ignore-case": "a"}` | the same string in upper or lower case |
//! | `{"numeric": [">", 0, "<=", 5]}` | a number in the range; also `=`, `<`, `<=`, `>`, `>=` alone |
//! | `{"cidr": "10.0.0.0/8"}` | a string with an IPv4 or IPv6 address in the network |
//! | `{"exists": true}` | any value but `null` and `""` |
//! | `{"exists": false}` | a key without a value: it is absent, an object, or an empty array |
//! | `{"anything-but": "a"}`, `5` or an array of one type | any other value |
//! | `{"anything-but": {"prefix": "a"}}` | any other value; also `suffix`, `equals-ignore-case`; an array of strings |
//!
//! `anything-but` needs a value: an absent key is not accepted. It accepts an array with one other value.
//!
//! # Keys
//!
//! * **Scope `Attributes`.** A key is the name of an attribute. A `String` is a string, a `Number` a number; of a
//!   `String.Array` and `Number.Array` each element of the JSON array counts. A `Binary` does not count. A message
//!   without attributes is not accepted.
//! * **Scope `Body`.** The body is a JSON object, or else not accepted. The value of a key in the policy may be an object
//!   with keys of its own. An array counts as its elements; below an array of objects, one element must have all keys.
//!   A dot in a key is a level, in the policy and in the body: `"a.b"` is `b` below `a`. Of a repeated key in the body
//!   the last value counts.
//! * **`$or`** is a plain key unless its value is an array of two or more objects, none of which has a key named like an
//!   operator.
//! * The empty policy `{}` accepts every message.
//!
//! # Bounds
//!
//! [`limits`] has them. The combinations are the product, over the keys, of the number of elements and the level of the
//! key (1 for a key of the policy itself); the objects of `$or` add up. So `$or` cannot make a policy explode. A value of
//! a message meets each rule of its key at most once. Reading and evaluation use a bounded stack whatever the input.
//!
//! # Parts
//!
//! `json` and `object` read JSON, with exact numbers (`decimal`). `compile` multiplies `$or` out and makes a `pattern`,
//! which has the `rule_set` of each key with the alternatives that need it (`mask`). A `rule` has an operator, of which
//! `numeric` and `anything_but` have their own files, and `sets` find strings. `message` views a message, and `elements`
//! names its values. `location` names the wrong part of a policy.

mod anything_but;
mod compile;
mod decimal;
mod elements;
mod json;
pub mod limits;
mod location;
mod mask;
mod message;
mod numeric;
mod object;
mod pattern;
mod policy;
mod rule;
mod rule_set;
mod sets;

pub use message::MessageView;
pub use policy::{FilterPolicy, FilterScope};

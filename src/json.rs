//! JSON objects.

use serde_json::{Map, Value};

/// `object! { "a": 1, "b": list }`: as `serde_json::json!` with braces, with values that are expressions. It is not recursive per
/// token, so it stays within the crate's recursion limit, and all uses share one function.
macro_rules! object {
    ($($key:literal: $value:expr),* $(,)?) => {
        $crate::json::object_of([$(($key, ::serde_json::json!($value))),*])
    };
}
pub(crate) use object;

/// The object that has these fields.
pub(crate) fn object_of<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut object = Map::new();
    for (key, value) in fields {
        object.insert(key.to_string(), value);
    }
    Value::Object(object)
}

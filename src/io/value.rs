//! Plain values in the metadata of files: the types of JSON.
#![forbid(unsafe_code)]

use crate::order::map_of;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt;

/// A plain value that is saved with tensors: a setting, a counter, a name, or lists and maps of those.
///
/// ```
/// use cotangent::io::Value;
/// let value = Value::from_iter([("epoch", Value::from(3)), ("rate", Value::from(0.1))]);
/// assert_eq!(value.get("epoch").and_then(Value::as_u64), Some(3));
/// assert_eq!(value.to_string(), r#"{"epoch":3,"rate":0.1}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// An integer: every `i64` and every `u64` fits.
    Int(i128),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Value>),
    /// Values under names.
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// The bool, if it is one.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// assert_eq!((Value::from(true).as_bool(), Value::from(1).as_bool()), (Some(true), None));
    /// ```
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer, if it is one and fits.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// assert_eq!((Value::from(-1).as_i64(), Value::from(u64::MAX).as_i64()), (Some(-1), None));
    /// ```
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(value) => (*value).try_into().ok(),
            _ => None,
        }
    }

    /// The integer, if it is one and fits.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// assert_eq!((Value::from(u64::MAX).as_u64(), Value::from(-1).as_u64()), (Some(u64::MAX), None));
    /// ```
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Int(value) => (*value).try_into().ok(),
            _ => None,
        }
    }

    /// The integer, if it is one and fits.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// assert_eq!(Value::from(3).as_usize(), Some(3));
    /// ```
    pub fn as_usize(&self) -> Option<usize> {
        self.as_u64().and_then(|value| value.try_into().ok())
    }

    /// The number, if it is one. An integer is rounded to the nearest `f64`.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// assert_eq!((Value::from(0.5).as_f64(), Value::from(3).as_f64()), (Some(0.5), Some(3.0)));
    /// ```
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            Value::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// The text, if it is one.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// assert_eq!(Value::from("adam").as_str(), Some("adam"));
    /// ```
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(value) => Some(value),
            _ => None,
        }
    }

    /// The values of a list, if it is one.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// assert_eq!(Value::from(vec![1, 2]).as_list().map(|list| list.len()), Some(2));
    /// ```
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(values) => Some(values),
            _ => None,
        }
    }

    /// The values of a map, if it is one.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// let value = Value::from_iter([("epoch", 3)]);
    /// assert_eq!(value.as_map().map(|map| map.len()), Some(1));
    /// ```
    pub fn as_map(&self) -> Option<&BTreeMap<String, Value>> {
        match self {
            Value::Map(values) => Some(values),
            _ => None,
        }
    }

    /// The value under a name, if this is a map that has it.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// let value = Value::from_iter([("epoch", 3)]);
    /// assert!(value.get("epoch").is_some() && value.get("step").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_map()?.get(name)
    }

    /// Sets a value under a name. A value that is not a map becomes one.
    ///
    /// ```
    /// use cotangent::io::Value;
    /// let mut value = Value::Null;
    /// value.set("epoch", 3);
    /// assert_eq!(value, Value::from_iter([("epoch", 3)]));
    /// ```
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        if !matches!(self, Value::Map(_)) {
            *self = Value::Map(BTreeMap::new());
        }
        if let Value::Map(values) = self {
            values.insert(name.into(), value.into());
        }
    }

    /// The value as JSON. Numbers that JSON lacks (NaN, infinities, large integers) are objects with a reserved name.
    pub(super) fn to_json(&self) -> Json {
        match self {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => value.into(),
                (_, Ok(value)) => value.into(),
                _ => object([(INT.to_string(), value.to_string().into())]),
            },
            Value::Float(value) if value.is_finite() => (*value).into(),
            Value::Float(value) => {
                // All bits, as there are many NaNs.
                let bits = format!("{:016x}", value.to_bits());
                object([(FLOAT.to_string(), bits.into())])
            }
            Value::Text(value) => Json::String(value.clone()),
            Value::List(values) => values.iter().map(Value::to_json).collect(),
            Value::Map(values) => object(values.iter().map(|(name, value)| (name.clone(), value.to_json()))),
        }
    }

    /// Reads the output of [`to_json`](Self::to_json), or any other JSON.
    pub(super) fn from_json(json: &Json) -> Value {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => value.into(),
                (_, Some(value), _) => value.into(),
                (.., value) => value.unwrap_or(f64::NAN).into(),
            },
            Json::String(value) => Value::Text(value.clone()),
            Json::Array(values) => Value::List(values.iter().map(Value::from_json).collect()),
            Json::Object(values) => {
                let text = |name| if values.len() == 1 { values.get(name).and_then(Json::as_str) } else { None };
                let float = text(FLOAT).and_then(|bits| u64::from_str_radix(bits, 16).ok());
                let int = text(INT).and_then(|digits| digits.parse().ok());
                match (float, int) {
                    (Some(bits), _) => Value::Float(f64::from_bits(bits)),
                    (_, Some(int)) => Value::Int(int),
                    _ => Value::Map(map_of(values.iter().map(|(name, value)| (name.clone(), Value::from_json(value))))),
                }
            }
        }
    }
}

const FLOAT: &str = "$float";
const INT: &str = "$int";

/// A JSON object of entries.
fn object(entries: impl IntoIterator<Item = (String, Json)>) -> Json {
    let mut object = serde_json::Map::new();
    object.extend(entries);
    Json::Object(object)
}

/// As JSON, not shortened.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_json(), f)
    }
}

macro_rules! from_numbers {
    ($($from:ty => $kind:ident($to:ty),)+) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value::$kind(value as $to)
            }
        }
    )+};
}

from_numbers! {
    bool => Bool(bool),
    i8 => Int(i128), i16 => Int(i128), i32 => Int(i128), i64 => Int(i128), isize => Int(i128),
    u8 => Int(i128), u16 => Int(i128), u32 => Int(i128), u64 => Int(i128), usize => Int(i128),
    f32 => Float(f64), f64 => Float(f64),
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_string())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Value {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

/// A map. Of several values under one name the last is kept.
impl<N: Into<String>, T: Into<Value>> FromIterator<(N, T)> for Value {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(entries: I) -> Value {
        Value::Map(map_of(entries.into_iter().map(|(name, value)| (name.into(), value.into()))))
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_from_json() {
        let floats =
            [0.1, -0.0, f64::MIN_POSITIVE / 3.0, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300 / 7.0];
        for float in floats {
            let json = Value::Float(float).to_json().to_string();
            let back = serde_json::from_str(&json).map(|json| Value::from_json(&json));
            assert!(
                matches!(back, Ok(Value::Float(back)) if back.to_bits() == float.to_bits()),
                "{float} became {back:?} by {json}"
            );
        }
        for int in [0, -1, i128::from(i64::MIN), i128::from(u64::MAX), i128::MIN] {
            let json = Value::Int(int).to_json().to_string();
            let back = serde_json::from_str(&json).map(|json| Value::from_json(&json));
            assert!(matches!(back, Ok(Value::Int(back)) if back == int), "{int} became {back:?} by {json}");
        }
    }
}

//! Metadata values: the thirteen value types of GGUF, arrays stored compactly.

use std::fmt;

use serde::{Serialize, Serializer};

use super::cursor::Cursor;
use super::error::{Fault, GgufError};

/// Arrays may hold arrays; deeper nesting than this is refused (no real file nests at all).
const MAX_ARRAY_DEPTH: usize = 8;

/// Defines [`Value`] and [`Array`] from one table of scalar types: variant, Rust type, file id, name.
macro_rules! value_types {
    ($($variant:ident($ty:ty) = $id:literal $name:literal,)*) => {
        /// A metadata value.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant holds the type it is named after")]
        pub enum Value {
            $($variant($ty),)*
            Array(Array),
        }

        /// A metadata array; the elements have one type, and lie together.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant holds the type it is named after")]
        pub enum Array {
            $($variant(Vec<$ty>),)*
            Array(Vec<Array>),
        }

        impl Value {
            /// The type's number in files.
            pub(super) fn type_id(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $id,)*
                    Self::Array(_) => ARRAY_ID,
                }
            }

            /// The type's name: `u32`, `string`, `array of i32`.
            pub fn type_name(&self) -> String {
                match self {
                    $(Self::$variant(_) => $name.to_owned(),)*
                    Self::Array(array) => format!("array of {}", array.element_name()),
                }
            }
        }

        impl Array {
            /// The element type's number in files.
            pub(super) fn element_id(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $id,)*
                    Self::Array(_) => ARRAY_ID,
                }
            }

            /// The element type's name: `u32`, `string`, `array`.
            pub fn element_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Array(_) => "array",
                }
            }

            /// The number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$variant(elements) => elements.len(),)*
                    Self::Array(elements) => elements.len(),
                }
            }

            /// The first elements, at most `n`.
            pub fn first(&self, n: usize) -> Self {
                match self {
                    $(Self::$variant(elements) => Self::$variant(elements[..n.min(elements.len())].to_vec()),)*
                    Self::Array(elements) => Self::Array(elements[..n.min(elements.len())].to_vec()),
                }
            }

            /// True if there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        $(
            impl From<$ty> for Value {
                fn from(value: $ty) -> Self {
                    Self::$variant(value)
                }
            }

            impl From<Vec<$ty>> for Value {
                fn from(elements: Vec<$ty>) -> Self {
                    Self::Array(Array::$variant(elements))
                }
            }
        )*

        impl Serialize for Value {
            /// As a plain JSON-like value, without the type.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(value) => value.serialize(serializer),)*
                    Self::Array(array) => array.serialize(serializer),
                }
            }
        }

        impl Serialize for Array {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(elements) => elements.serialize(serializer),)*
                    Self::Array(elements) => elements.serialize(serializer),
                }
            }
        }
    };
}

const BOOL_ID: u32 = 7;
const STRING_ID: u32 = 8;
const ARRAY_ID: u32 = 9;

value_types! {
    U8(u8) = 0 "u8",
    I8(i8) = 1 "i8",
    U16(u16) = 2 "u16",
    I16(i16) = 3 "i16",
    U32(u32) = 4 "u32",
    I32(i32) = 5 "i32",
    F32(f32) = 6 "f32",
    Bool(bool) = 7 "bool",
    String(String) = 8 "string",
    U64(u64) = 10 "u64",
    I64(i64) = 11 "i64",
    F64(f64) = 12 "f64",
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl Value {
    /// The value of any of the integer types.
    pub(super) fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }
}

impl Array {
    /// The elements of any of the integer types; those of u64 that exceed i64 make it `None`.
    pub(super) fn to_integers(&self) -> Option<Vec<i64>> {
        Some(match self {
            Self::U8(elements) => elements.iter().map(|&x| x.into()).collect(),
            Self::I8(elements) => elements.iter().map(|&x| x.into()).collect(),
            Self::U16(elements) => elements.iter().map(|&x| x.into()).collect(),
            Self::I16(elements) => elements.iter().map(|&x| x.into()).collect(),
            Self::U32(elements) => elements.iter().map(|&x| x.into()).collect(),
            Self::I32(elements) => elements.iter().map(|&x| x.into()).collect(),
            Self::U64(elements) => elements.iter().map(|&x| i64::try_from(x).ok()).collect::<Option<_>>()?,
            Self::I64(elements) => elements.clone(),
            _ => return None,
        })
    }
}

impl fmt::Display for Value {
    /// The whole value: a string as it is, an array in brackets with its strings quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(value) => write!(f, "{value}"),
            Self::I8(value) => write!(f, "{value}"),
            Self::U16(value) => write!(f, "{value}"),
            Self::I16(value) => write!(f, "{value}"),
            Self::U32(value) => write!(f, "{value}"),
            Self::I32(value) => write!(f, "{value}"),
            Self::F32(value) => write!(f, "{value:?}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::String(value) => f.write_str(value),
            Self::U64(value) => write!(f, "{value}"),
            Self::I64(value) => write!(f, "{value}"),
            Self::F64(value) => write!(f, "{value:?}"),
            Self::Array(array) => array.fmt(f),
        }
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(elements) => write!(f, "{elements:?}"),
            Self::I8(elements) => write!(f, "{elements:?}"),
            Self::U16(elements) => write!(f, "{elements:?}"),
            Self::I16(elements) => write!(f, "{elements:?}"),
            Self::U32(elements) => write!(f, "{elements:?}"),
            Self::I32(elements) => write!(f, "{elements:?}"),
            Self::F32(elements) => write!(f, "{elements:?}"),
            Self::Bool(elements) => write!(f, "{elements:?}"),
            Self::String(elements) => write!(f, "{elements:?}"),
            Self::U64(elements) => write!(f, "{elements:?}"),
            Self::I64(elements) => write!(f, "{elements:?}"),
            Self::F64(elements) => write!(f, "{elements:?}"),
            Self::Array(elements) => {
                f.write_str("[")?;
                for (i, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Reads a value and the type number before it.
pub(super) fn read_value(cursor: &mut Cursor) -> Result<Value, GgufError> {
    let at = cursor.offset();
    Ok(match cursor.u32()? {
        0 => Value::U8(cursor.array().map(u8::from_le_bytes)?),
        1 => Value::I8(cursor.array().map(i8::from_le_bytes)?),
        2 => Value::U16(cursor.array().map(u16::from_le_bytes)?),
        3 => Value::I16(cursor.array().map(i16::from_le_bytes)?),
        4 => Value::U32(cursor.array().map(u32::from_le_bytes)?),
        5 => Value::I32(cursor.array().map(i32::from_le_bytes)?),
        6 => Value::F32(cursor.array().map(f32::from_le_bytes)?),
        BOOL_ID => {
            let at = cursor.offset();
            let [byte] = cursor.array()?;
            Value::Bool(to_bool(cursor, at, byte)?)
        }
        STRING_ID => Value::String(cursor.string()?.to_owned()),
        ARRAY_ID => Value::Array(read_array(cursor, 1)?),
        10 => Value::U64(cursor.array().map(u64::from_le_bytes)?),
        11 => Value::I64(cursor.array().map(i64::from_le_bytes)?),
        12 => Value::F64(cursor.array().map(f64::from_le_bytes)?),
        id => return Err(cursor.fault_at(at, Fault::UnknownValueType { what: cursor.what(), id })),
    })
}

fn read_array(cursor: &mut Cursor, depth: usize) -> Result<Array, GgufError> {
    let at = cursor.offset();
    if depth > MAX_ARRAY_DEPTH {
        let fault = Fault::NestedTooDeep { what: cursor.what(), limit: MAX_ARRAY_DEPTH };
        return Err(cursor.fault_at(at, fault));
    }
    Ok(match cursor.u32()? {
        0 => Array::U8(read_numbers(cursor, u8::from_le_bytes)?),
        1 => Array::I8(read_numbers(cursor, i8::from_le_bytes)?),
        2 => Array::U16(read_numbers(cursor, u16::from_le_bytes)?),
        3 => Array::I16(read_numbers(cursor, i16::from_le_bytes)?),
        4 => Array::U32(read_numbers(cursor, u32::from_le_bytes)?),
        5 => Array::I32(read_numbers(cursor, i32::from_le_bytes)?),
        6 => Array::F32(read_numbers(cursor, f32::from_le_bytes)?),
        BOOL_ID => Array::Bool(read_bools(cursor)?),
        STRING_ID => {
            let count = cursor.count(size_of::<u64>())?;
            // Grown, not reserved: a `String` is larger than the 8 bytes that an entry takes in the file.
            let mut elements = Vec::new();
            for _ in 0..count {
                elements.push(cursor.string()?.to_owned());
            }
            Array::String(elements)
        }
        ARRAY_ID => {
            let count = cursor.count(size_of::<u32>() + size_of::<u64>())?;
            let mut elements = Vec::new();
            for _ in 0..count {
                elements.push(read_array(cursor, depth + 1)?);
            }
            Array::Array(elements)
        }
        10 => Array::U64(read_numbers(cursor, u64::from_le_bytes)?),
        11 => Array::I64(read_numbers(cursor, i64::from_le_bytes)?),
        12 => Array::F64(read_numbers(cursor, f64::from_le_bytes)?),
        id => return Err(cursor.fault_at(at, Fault::UnknownValueType { what: cursor.what(), id })),
    })
}

fn read_numbers<T, const N: usize>(
    cursor: &mut Cursor,
    from_le_bytes: fn([u8; N]) -> T,
) -> Result<Vec<T>, GgufError> {
    let count = cursor.count(N)?;
    let bytes = cursor.take((count * N) as u64)?;
    Ok(bytes.as_chunks().0.iter().map(|&element| from_le_bytes(element)).collect())
}

fn read_bools(cursor: &mut Cursor) -> Result<Vec<bool>, GgufError> {
    let count = cursor.count(1)?;
    let start = cursor.offset();
    let bytes = cursor.take(count as u64)?;
    bytes.iter().enumerate().map(|(i, &byte)| to_bool(cursor, start + i, byte)).collect()
}

fn to_bool(cursor: &Cursor, at: usize, value: u8) -> Result<bool, GgufError> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(cursor.fault_at(at, Fault::BadBool { what: cursor.what(), value })),
    }
}

/// Appends the value's type number and content as they stand in a file.
pub(super) fn write_value(value: &Value, out: &mut Vec<u8>) {
    out.extend(value.type_id().to_le_bytes());
    match value {
        Value::U8(value) => out.extend(value.to_le_bytes()),
        Value::I8(value) => out.extend(value.to_le_bytes()),
        Value::U16(value) => out.extend(value.to_le_bytes()),
        Value::I16(value) => out.extend(value.to_le_bytes()),
        Value::U32(value) => out.extend(value.to_le_bytes()),
        Value::I32(value) => out.extend(value.to_le_bytes()),
        Value::F32(value) => out.extend(value.to_le_bytes()),
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::String(text) => write_string(text, out),
        Value::U64(value) => out.extend(value.to_le_bytes()),
        Value::I64(value) => out.extend(value.to_le_bytes()),
        Value::F64(value) => out.extend(value.to_le_bytes()),
        Value::Array(array) => write_array(array, out),
    }
}

fn write_array(array: &Array, out: &mut Vec<u8>) {
    out.extend(array.element_id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(elements) => out.extend_from_slice(elements),
        Array::I8(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(elements) => out.extend(elements.iter().map(|&x| u8::from(x))),
        Array::String(elements) => elements.iter().for_each(|text| write_string(text, out)),
        Array::U64(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(elements) => out.extend(elements.iter().flat_map(|x| x.to_le_bytes())),
        Array::Array(elements) => elements.iter().for_each(|element| write_array(element, out)),
    }
}

/// Appends a length-prefixed string.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

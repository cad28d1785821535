//! Chosen members of JSON objects, one object a line.

use serde_json::Value;

/// A member of an object: its name, or a JSON pointer (RFC 6901) from `/` on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member(String);

impl Member {
    /// Reads `name` or `/path/to/member`.
    pub(crate) fn of(name: &str) -> Member {
        Member(name.to_owned())
    }

    /// The member's content in `object` as bytes: a string without its quotes,
    /// anything else as compact JSON.
    pub(crate) fn bytes(&self, object: &Value) -> Result<Vec<u8>, String> {
        match self.find(object) {
            None => Err(format!("no member {:?}", self.0)),
            Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
            Some(other) => Ok(other.to_string().into_bytes()),
        }
    }

    /// Like [`Member::bytes`], but refuses what makes no sensible key.
    pub(crate) fn key(&self, object: &Value) -> Result<Vec<u8>, String> {
        match self.find(object) {
            Some(Value::Null | Value::Array(_) | Value::Object(_)) => {
                Err(format!("member {:?} is no string or number", self.0))
            }
            _ => self.bytes(object),
        }
    }

    fn find<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        if self.0.starts_with('/') {
            object.pointer(&self.0)
        } else {
            object.get(&self.0)
        }
    }
}

/// Reads one line.
pub(crate) fn parse(line: &[u8]) -> Result<Value, String> {
    let value: Value = serde_json::from_slice(line).map_err(|e| format!("not JSON: {e}"))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err("not a JSON object".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_name_and_by_pointer() {
        let object = parse(br#"{"id":7,"a":{"b":"x"},"n":null}"#).unwrap();
        assert_eq!(Member::of("id").key(&object).unwrap(), b"7");
        assert_eq!(Member::of("/a/b").key(&object).unwrap(), b"x");
        assert_eq!(Member::of("a").bytes(&object).unwrap(), br#"{"b":"x"}"#);
        for absent in ["n", "a", "zz", "/a/c"] {
            assert!(Member::of(absent).key(&object).is_err(), "{absent}");
        }
    }

    #[test]
    fn depth_and_other_types_are_refused() {
        assert!(parse(b"[1]").is_err());
        assert!(parse(b"").is_err());
        assert!(parse(&[b'['; 100_000]).is_err());
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
    }
}

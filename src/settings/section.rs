//! Reading one table of settings, noting every mistake with its key's path.

use figment::value::{Dict, Value};

use super::Mistake;

/// A table of settings whose keys are taken one by one; what nobody took is a
/// mistake.
pub struct Section<'m> {
    path: String,
    values: Dict,
    known: Vec<&'static str>,
    mistakes: &'m mut Vec<Mistake>,
}

impl<'m> Section<'m> {
    /// Notes a mistake, and is empty, when the value is no table.
    pub fn new(path: &str, value: Value, mistakes: &'m mut Vec<Mistake>) -> Self {
        let values = match value {
            Value::Dict(_, values) => values,
            _ => {
                mistakes.push(Mistake { key: path.into(), message: "expected a table".into() });
                Dict::new()
            }
        };
        Self { path: path.into(), values, known: Vec::new(), mistakes }
    }

    /// Takes a key, written with `_` or `-`.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        let written = self.values.keys().find(|k| k.replace('-', "_") == key)?.clone();
        self.values.remove(&written)
    }

    /// Takes and reads a key; notes a mistake and is `None` when it cannot be read.
    pub fn read<T>(&mut self, key: &'static str, how: impl FnOnce(&Value) -> Result<T, String>) -> Option<T> {
        let value = self.take(key)?;
        match how(&value) {
            Ok(read) => Some(read),
            Err(message) => {
                self.mistake(key, message);
                None
            }
        }
    }

    /// A table below this one; empty when it is not there.
    pub fn section(&mut self, key: &'static str) -> Section<'_> {
        let value = self.take(key).unwrap_or_else(|| Value::from(Dict::new()));
        let path = self.path_of(key);
        Section::new(&path, value, self.mistakes)
    }

    /// Everything that nobody took, each with a section's path for it.
    pub fn rest(&mut self) -> Dict {
        std::mem::take(&mut self.values)
    }

    /// A section of a value that was taken from this one.
    pub fn nested(&mut self, key: &str, value: Value) -> Section<'_> {
        let path = self.path_of(key);
        Section::new(&path, value, self.mistakes)
    }

    /// Notes a mistake of a key.
    pub fn mistake(&mut self, key: &str, message: impl Into<String>) {
        let key = self.path_of(key);
        self.mistakes.push(Mistake { key, message: message.into() });
    }

    /// Notes every key that nobody took.
    pub fn finish(mut self) {
        let known = self.known.join(", ");
        for key in self.rest().keys() {
            self.mistake(key, format!("unknown key; known here: {known}"));
        }
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.into(),
            path => format!("{path}.{key}"),
        }
    }
}

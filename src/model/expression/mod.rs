//! Users' own traits, filters and triggers: expressions over traits, in the Common
//! Expression Language, as far as it speaks of numbers, truth and texts.
//!
//! All numbers are doubles, and a whole number is read as one. There are `+ - * /`,
//! comparisons, `&& || !`, `c ? a : b`, `startsWith`, `endsWith` and `contains` of
//! texts, and two functions of a name: `known(NAME)`, and `default(NAME, value)` for
//! what is not known. There are no lists, maps or macros, so that an evaluation takes
//! no more steps than the expression has parts.

mod build;
mod facts;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use cel::{Context, Env, ExecutionError, IdedExpr, Value};
use serde::{Deserialize, Serialize};

pub use facts::{Facts, names};

/// The longest expression, in bytes.
pub const LONGEST: usize = 1000;
/// Parts of an expression at most, those of the traits that it names included.
pub const MOST_PARTS: usize = 500;
/// Brackets within brackets, or conditions within conditions.
const DEEPEST: usize = 20;
/// Signs of operators at most: each may lie within the one before.
const MOST_OPERATORS: usize = 60;
/// Parts within parts, those of own traits included: what is evaluated goes as deep.
const DEEPEST_TREE: usize = 64;

/// What an expression gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// True or false.
    Truth,
    /// A double.
    Number,
    /// A text.
    Text,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truth => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
        })
    }
}

/// A user's own trait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// Its name.
    pub name: Arc<str>,
    /// What it is: a number.
    pub is: Expression,
    /// Its meaning, in words; may be empty.
    pub meaning: String,
    /// What it weighs in the ranking, normalized as gains are: above 0 where more of it
    /// speaks for a candidate, below where it speaks against one.
    #[serde(default)]
    pub weight: f64,
}

/// An expression that was checked; evaluating it never panics.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Expression {
    text: Arc<str>,
    /// The own traits that it may name.
    own: Arc<[Own]>,
    gives: Type,
    /// Everything that it names, own traits resolved.
    names: BTreeSet<String>,
    tree: Arc<IdedExpr>,
}

/// An expression as it is written down.
#[derive(Clone, Serialize, Deserialize)]
struct Written {
    text: String,
    own: Vec<Own>,
}

impl TryFrom<Written> for Expression {
    type Error = Mistake;

    fn try_from(written: Written) -> Result<Self, Mistake> {
        Self::compile(&written.text, &written.own)
    }
}

impl From<Expression> for Written {
    fn from(expression: Expression) -> Self {
        Self { text: expression.text.to_string(), own: expression.own.to_vec() }
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.tree == other.tree
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct Mistake {
    /// Counted from 1, in characters.
    pub column: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// Why an expression gives nothing for a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A trait that it needs is not known of the scope.
    #[error("`{0}` is not known here")]
    Unknown(String),
    /// It divides by zero, or compares with what is no number.
    #[error("it comes to no number")]
    NoNumber,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Expression {
    /// Reads and checks an expression that may name these own traits.
    ///
    /// # Errors
    /// Where it cannot be read, names what is not there, or joins what does not go
    /// together.
    pub fn compile(text: &str, own: &[Own]) -> Result<Self, Mistake> {
        // one line, so that a column tells the place
        let text = &text.replace(['\n', '\r', '\t'], " ");
        limits(text)?;
        let program = parse(text)?;
        let (tree, gives, names) = build::build(text, &program, own)?;
        let used: Vec<Own> = own.iter().filter(|own| program.references().has_variable(&*own.name)).cloned().collect();
        Ok(Self { text: text.as_str().into(), own: used.into(), gives, names, tree: Arc::new(tree) })
    }

    /// The same, of one that must give a number, or truth.
    ///
    /// # Errors
    /// Also when it gives anything else.
    pub fn of_type(text: &str, own: &[Own], wanted: Type) -> Result<Self, Mistake> {
        let expression = Self::compile(text, own)?;
        match expression.gives == wanted {
            true => Ok(expression),
            false => Err(Mistake { column: 1, message: format!("it gives {}, and {wanted} is needed", expression.gives) }),
        }
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// When something that it needs is not known, or it comes to no answer.
    pub fn holds(&self, facts: &Facts<'_>) -> Result<bool, Failure> {
        match self.evaluate(facts)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(Failure::Other(format!("it gives {other:?}"))),
        }
    }

    /// The number that it gives.
    ///
    /// # Errors
    /// As [`Expression::holds`]; also when it is infinite.
    pub fn number(&self, facts: &Facts<'_>) -> Result<f64, Failure> {
        match self.evaluate(facts)? {
            Value::Float(number) if number.is_finite() => Ok(number),
            Value::Float(_) => Err(Failure::NoNumber),
            other => Err(Failure::Other(format!("it gives {other:?}"))),
        }
    }

    /// Whether what it names changes by the passing of time alone.
    pub fn changes_with_time(&self) -> bool {
        self.names.iter().any(|name| facts::changes_with_time(name))
    }

    fn evaluate(&self, facts: &Facts<'_>) -> Result<Value, Failure> {
        let mut context = Context::with_env(Arc::clone(environment()));
        for name in &self.names {
            if let Some(value) = facts.value(name) {
                context.add_variable_from_value(name.as_str(), value);
            }
        }
        Value::resolve(&self.tree, &context).map_err(|error| match error {
            ExecutionError::UndeclaredReference(name) => Failure::Unknown(name.to_string()),
            // types were checked: only what is no number is not compared
            ExecutionError::ValuesNotComparable(..) | ExecutionError::NoSuchOverload(_) => Failure::NoNumber,
            other => Failure::Other(other.to_string()),
        })
    }
}

/// The language without macros.
fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| Arc::new(Env::default().with_stdlib()))
}

/// What is too long or too deep is not parsed.
fn limits(text: &str) -> Result<(), Mistake> {
    if text.len() > LONGEST {
        return Err(Mistake { column: 1, message: format!("it has {} bytes, and at most {LONGEST} are read", text.len()) });
    }
    let (mut depth, mut conditions, mut operators) = (0usize, 0usize, 0usize);
    for (column, c) in text.chars().enumerate() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '?' => conditions += 1,
            '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '.' => operators += 1,
            _ => {}
        }
        if depth.max(conditions) > DEEPEST {
            return Err(Mistake { column: column + 1, message: format!("more than {DEEPEST} brackets or conditions within each other") });
        }
        if operators > MOST_OPERATORS {
            return Err(Mistake { column: column + 1, message: format!("more than {MOST_OPERATORS} signs of operators") });
        }
    }
    Ok(())
}

fn parse(text: &str) -> Result<cel::Program, Mistake> {
    let parsed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| environment().compile(text)));
    let errors = match parsed {
        Ok(Ok(program)) => return Ok(program),
        Ok(Err(errors)) => errors,
        Err(_) => return Err(Mistake { column: 1, message: "it cannot be read".to_owned() }),
    };
    let first = errors.errors.into_iter().min_by_key(|e| e.pos);
    let (column, message) = first.map_or((1, "it cannot be read".to_owned()), |e| (usize::try_from(e.pos.1).unwrap_or(1).max(1), e.msg));
    Err(Mistake { column, message })
}

#[cfg(test)]
mod tests;

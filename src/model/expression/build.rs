//! Checks a parsed expression part by part, and builds the one that is evaluated: whole
//! numbers become doubles, own traits what they stand for, and `known` and `default`
//! questions about names.

use std::collections::BTreeSet;

use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, Expr, LiteralValue};
use cel::{IdedExpr, Program};

use super::{DEEPEST_TREE, MOST_PARTS, Mistake, Own, Type, facts};

/// The tree, what it gives, and the names in it.
pub(super) type Built = (IdedExpr, Type, BTreeSet<String>);

pub(super) fn build(text: &str, program: &Program, own: &[Own]) -> Result<Built, Mistake> {
    let mut builder = Builder { text, program, own, names: BTreeSet::new(), parts: 0 };
    let (tree, gives) = builder.part(program.expression())?;
    if depth_of(&tree) > DEEPEST_TREE {
        let why = format!("its parts lie more than {DEEPEST_TREE} deep, those of the traits that it names included");
        return Err(builder.wrong(program.expression(), why));
    }
    Ok((tree, gives, builder.names))
}

struct Builder<'a> {
    text: &'a str,
    program: &'a Program,
    own: &'a [Own],
    names: BTreeSet<String>,
    parts: usize,
}

type Part = (IdedExpr, Type);

impl Builder<'_> {
    fn part(&mut self, given: &IdedExpr) -> Result<Part, Mistake> {
        self.count(given, 1)?;
        match &given.expr {
            Expr::Literal(value) => self.literal(given, value),
            Expr::Ident(name) => self.name(given, name),
            Expr::Call(call) => self.call(given, call),
            Expr::Select(select) => Err(self.wrong(given, format!("names have no parts: `.{}` is not there", select.field))),
            _ => Err(self.wrong(given, "there are no lists, maps or macros".to_owned())),
        }
    }

    fn count(&mut self, given: &IdedExpr, parts: usize) -> Result<(), Mistake> {
        self.parts = self.parts.saturating_add(parts);
        if self.parts > MOST_PARTS {
            return Err(self.wrong(given, format!("it has more than {MOST_PARTS} parts, those of the traits that it names included")));
        }
        Ok(())
    }

    fn literal(&self, given: &IdedExpr, value: &LiteralValue) -> Result<Part, Mistake> {
        let number = |value: f64| (literal(given.id, LiteralValue::Double(value.into())), Type::Number);
        match value {
            LiteralValue::Boolean(_) => Ok((given.clone(), Type::Truth)),
            LiteralValue::Double(_) => Ok((given.clone(), Type::Number)),
            LiteralValue::String(_) => Ok((given.clone(), Type::Text)),
            LiteralValue::Int(value) => Ok(number(*value.inner() as f64)),
            LiteralValue::UInt(value) => Ok(number(*value.inner() as f64)),
            LiteralValue::Bytes(_) | LiteralValue::Null => {
                Err(self.wrong(given, "neither a number, nor true or false, nor a text".to_owned()))
            }
        }
    }

    fn name(&mut self, given: &IdedExpr, name: &str) -> Result<Part, Mistake> {
        if let Some(own) = self.own.iter().find(|own| *own.name == *name) {
            self.count(given, parts_of(&own.is.tree))?;
            self.names.extend(own.is.names.iter().cloned());
            return Ok(((*own.is.tree).clone(), own.is.gives));
        }
        let gives = facts::type_of(name).ok_or_else(|| self.unknown(given, name))?;
        self.names.insert(name.to_owned());
        Ok((given.clone(), gives))
    }

    fn call(&mut self, given: &IdedExpr, call: &CallExpr) -> Result<Part, Mistake> {
        if let Some(target) = &call.target {
            return self.of_text(given, call, target);
        }
        let shown = shown(&call.func_name);
        match (call.func_name.as_str(), call.args.as_slice()) {
            (op::LOGICAL_AND | op::LOGICAL_OR | op::LOGICAL_NOT, args) => self.all(given, call, args, Type::Truth, Type::Truth),
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::NEGATE, args) => {
                self.all(given, call, args, Type::Number, Type::Number)
            }
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, args) => self.all(given, call, args, Type::Number, Type::Truth),
            (op::EQUALS | op::NOT_EQUALS, [left, right]) => {
                let (left, right) = (self.part(left)?, self.part(right)?);
                self.alike(given, &shown, left.1, right.1)?;
                Ok((again(given, call, vec![left.0, right.0]), Type::Truth))
            }
            (op::CONDITIONAL, [condition, yes, no]) => {
                let asked = self.wanted(condition, Type::Truth, "the condition before `?`")?;
                let (yes, no) = (self.part(yes)?, self.part(no)?);
                self.alike(given, "both sides of `:`", yes.1, no.1)?;
                Ok((again(given, call, vec![asked, yes.0, no.0]), yes.1))
            }
            ("known", [IdedExpr { expr: Expr::Ident(name), id }]) => Ok((self.known(given, *id, name)?, Type::Truth)),
            ("default", [IdedExpr { expr: Expr::Ident(name), id }, other]) => {
                let asked = self.known(given, *id, name)?;
                let named = self.name(&IdedExpr { id: *id, expr: Expr::Ident(name.clone()) }, name)?;
                let other = self.part(other)?;
                self.alike(given, "both arguments of `default`", named.1, other.1)?;
                let call = CallExpr { func_name: op::CONDITIONAL.to_owned(), target: None, args: Vec::new() };
                Ok((again(given, &call, vec![asked, named.0, other.0]), named.1))
            }
            ("known" | "default", _) => {
                Err(self.wrong(given, "write known(NAME), or default(NAME, value), with the name of a trait".to_owned()))
            }
            (op::MODULO, _) => Err(self.wrong(given, "there is no `%`: all numbers are doubles".to_owned())),
            _ => Err(self.wrong(given, format!("there is no {shown}; there are + - * / < <= > >= == != && || ! ?: known() default()"))),
        }
    }

    /// A call whose arguments are all of one type.
    fn all(&mut self, given: &IdedExpr, call: &CallExpr, args: &[IdedExpr], of: Type, gives: Type) -> Result<Part, Mistake> {
        let mut built = Vec::with_capacity(args.len());
        for arg in args {
            built.push(self.wanted(arg, of, &shown(&call.func_name))?);
        }
        Ok((again(given, call, built), gives))
    }

    fn wanted(&mut self, arg: &IdedExpr, of: Type, what: &str) -> Result<IdedExpr, Mistake> {
        let (built, is) = self.part(arg)?;
        if is == of { Ok(built) } else { Err(self.wrong(arg, format!("{what} takes {of}, and this is {is}"))) }
    }

    fn alike(&self, given: &IdedExpr, what: &str, one: Type, other: Type) -> Result<(), Mistake> {
        if one == other { Ok(()) } else { Err(self.wrong(given, format!("{what} must be of one type: here are {one} and {other}"))) }
    }

    /// Whether a trait is known; an own one, whether all that it needs is.
    fn known(&mut self, given: &IdedExpr, id: u64, name: &str) -> Result<IdedExpr, Mistake> {
        let own = self.own.iter().find(|own| *own.name == *name);
        let needed: Vec<String> = match own {
            Some(own) => own.is.names.iter().filter(|n| facts::type_of(n).is_some()).cloned().collect(),
            None if facts::type_of(name).is_some() => vec![name.to_owned()],
            None => return Err(self.unknown(&IdedExpr { id, expr: Expr::Ident(name.to_owned()) }, name)),
        };
        self.count(given, needed.len().saturating_mul(2))?;
        let mut all = literal(given.id, LiteralValue::Boolean(true.into()));
        for name in needed {
            let name = facts::known(&name);
            let asked = IdedExpr { id: given.id, expr: Expr::Ident(name.clone()) };
            self.names.insert(name);
            let call = CallExpr { func_name: op::LOGICAL_AND.to_owned(), target: None, args: Vec::new() };
            all = again(given, &call, vec![all, asked]);
        }
        Ok(all)
    }

    fn of_text(&mut self, given: &IdedExpr, call: &CallExpr, target: &IdedExpr) -> Result<Part, Mistake> {
        let [arg] = call.args.as_slice() else {
            return Err(self.wrong(given, format!("there is no `.{}(…)` of so many arguments", call.func_name)));
        };
        if !["startsWith", "endsWith", "contains"].contains(&call.func_name.as_str()) {
            return Err(self.wrong(given, format!("there is no `.{}`; texts have startsWith, endsWith and contains", call.func_name)));
        }
        let what = format!("`.{}`", call.func_name);
        let target = Some(Box::new(self.wanted(target, Type::Text, &what)?));
        let args = vec![self.wanted(arg, Type::Text, &what)?];
        Ok((IdedExpr { id: given.id, expr: Expr::Call(CallExpr { func_name: call.func_name.clone(), target, args }) }, Type::Truth))
    }

    fn unknown(&self, given: &IdedExpr, name: &str) -> Mistake {
        let known: Vec<String> = self.own.iter().map(|o| o.name.to_string()).chain(facts::names().into_iter().map(str::to_owned)).collect();
        let near = known.iter().map(|k| (distance(k, name), k)).min().filter(|(d, _)| *d <= 2).map(|(_, k)| k);
        let hint = near.map_or_else(|| format!("there are {}", known.join(", ")), |k| format!("did you mean `{k}`?"));
        self.wrong(given, format!("unknown trait `{name}`; {hint}"))
    }

    fn wrong(&self, given: &IdedExpr, message: String) -> Mistake {
        let at = self.program.source_info().offset_for(given.id).map_or(0, |(start, _)| start as usize);
        // the parser counts characters
        let column = at.min(self.text.chars().count()).saturating_add(1);
        Mistake { column, message }
    }
}

fn literal(id: u64, value: LiteralValue) -> IdedExpr {
    IdedExpr { id, expr: Expr::Literal(value) }
}

fn again(given: &IdedExpr, call: &CallExpr, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id: given.id, expr: Expr::Call(CallExpr { func_name: call.func_name.clone(), target: None, args }) }
}

/// An operator as it is written: `_&&_` is `&&`.
fn shown(function: &str) -> String {
    format!("`{}`", function.replace(['_', '@'], ""))
}

fn parts_of(tree: &IdedExpr) -> usize {
    match &tree.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref().map_or(0, parts_of);
            call.args.iter().map(parts_of).fold(target.saturating_add(1), usize::saturating_add)
        }
        _ => 1,
    }
}

fn depth_of(tree: &IdedExpr) -> usize {
    match &tree.expr {
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).map(depth_of).max().unwrap_or(0).saturating_add(1),
        _ => 1,
    }
}

/// Letters to change, add or leave out between two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (b, pair) in other.iter().zip(row.windows(2)) {
            let (diagonal, above) = (pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0));
            let left = next.last().copied().unwrap_or(0);
            next.push((diagonal + usize::from(a != *b)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

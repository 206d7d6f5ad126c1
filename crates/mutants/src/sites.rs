//! The places at which a source file can be changed, and the file with all changes in it, each
//! inactive until its number is chosen.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use proc_macro2::{LineColumn, Span};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

/// One small change of the code.
#[derive(Clone, Debug)]
pub struct Site {
    pub number: u32,
    pub file: String,
    pub line: usize,
    pub function: String,
    pub change: Change,
    /// The changed code, on one line.
    pub text: String,
    /// Names the mutant from one hunt to the next, as long as the code of its function stays the
    /// same.
    pub key: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A statement is omitted.
    LeftOut,
    /// A condition is negated.
    TurnedRound,
}

impl Change {
    pub fn word(self) -> &'static str {
        match self {
            Change::LeftOut => "left out",
            Change::TurnedRound => "turned round",
        }
    }
}

/// The sites of a file, numbered from `first` on, and its text with all of them in it.
pub fn woven(file: &str, text: &str, first: u32) -> Result<(Vec<Site>, String), String> {
    let tree = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
    let mut finder = Finder::new(file, text, first);
    finder.visit_file(&tree);
    let Finder { sites, mut before, mut after, .. } = finder;
    // Of changes that begin at the same place, the outer comes first; of those that end at the same
    // place, the inner.
    before.sort_by_key(|(at, _)| *at);
    after.reverse();
    after.sort_by_key(|(at, _)| *at);
    let mut woven = String::with_capacity(text.len() * 2);
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    for (at, letter) in text.char_indices() {
        while let Some((_, piece)) = after.next_if(|(place, _)| *place == at) {
            woven += &piece;
        }
        while let Some((_, piece)) = before.next_if(|(place, _)| *place == at) {
            woven += &piece;
        }
        woven.push(letter);
    }
    after.for_each(|(_, piece)| woven += &piece);
    Ok((sites, woven))
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    /// The start of each line.
    lines: Vec<usize>,
    next: u32,
    /// The functions around the place at hand, each with the hash of its code.
    functions: Vec<(String, u64)>,
    /// Sites found so far in each of them.
    counts: HashMap<(String, u64), usize>,
    sites: Vec<Site>,
    before: Vec<(usize, String)>,
    after: Vec<(usize, String)>,
}

impl<'a> Finder<'a> {
    fn new(file: &'a str, text: &'a str, first: u32) -> Finder<'a> {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Finder {
            file,
            text,
            lines,
            next: first,
            functions: Vec::new(),
            counts: HashMap::new(),
            sites: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    fn offset(&self, place: LineColumn) -> usize {
        let begin = self.lines.get(place.line - 1).copied().unwrap_or(0);
        let line = self.text.get(begin..).unwrap_or_default();
        begin + line.char_indices().nth(place.column).map_or(line.len(), |(at, _)| at)
    }

    fn add(&mut self, span: Span, change: Change) {
        let (from, to) = (self.offset(span.start()), self.offset(span.end()));
        let text = code(self.text.get(from..to).unwrap_or_default());
        let number = self.next;
        self.next += 1;
        let (function, fingerprint) = self.functions.last().cloned().unwrap_or_default();
        let count = self.counts.entry((function.clone(), fingerprint)).or_default();
        let key = format!("{} {function} {fingerprint:016x} {count}", self.file);
        *count += 1;
        self.sites.push(Site { number, file: self.file.into(), line: span.start().line, function, change, text, key });
        let (before, after) = match change {
            Change::LeftOut => (format!("if !crate::mutant::on({number}) {{ "), " }".into()),
            Change::TurnedRound => ("((".into(), format!(") != crate::mutant::on({number}))")),
        };
        self.before.push((from, before));
        self.after.push((to, after));
    }

    /// A condition, or the parts of one.
    fn condition(&mut self, expression: &Expr) {
        match expression {
            Expr::Binary(both) if matches!(both.op, BinOp::And(_) | BinOp::Or(_)) => {
                self.condition(&both.left);
                self.condition(&both.right);
            }
            // Comparisons are found separately, wherever they are.
            Expr::Binary(_) | Expr::Let(_) | Expr::Macro(_) | Expr::Lit(_) => {}
            Expr::Paren(inner) => self.condition(&inner.expr),
            other => self.add(other.span(), Change::TurnedRound),
        }
    }

    fn within(&mut self, name: String, block: &syn::Block) {
        let (from, to) = (self.offset(block.span().start()), self.offset(block.span().end()));
        let mut hasher = DefaultHasher::new();
        hasher.write(code(self.text.get(from..to).unwrap_or_default()).as_bytes());
        self.functions.push((name, hasher.finish()));
        visit::visit_block(self, block);
        self.functions.pop();
    }
}

/// The text on one line, without the comments that have lines for themselves.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

fn is_deed(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Binary(both) => matches!(
            both.op,
            BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::BitOrAssign(_) | BinOp::BitAndAssign(_)
        ),
        Expr::Await(inner) => is_deed(&inner.base),
        Expr::Try(inner) => is_deed(&inner.expr),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Const(_) | syn::Item::Static(_) | syn::Item::Macro(_) => {}
            syn::Item::Mod(module) if is_test(&module.attrs) => {}
            other => visit::visit_item(self, other),
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() && !is_test(&function.attrs) {
            self.within(function.sig.ident.to_string(), &function.block);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            syn::ImplItem::Fn(function) if function.sig.constness.is_none() && !is_test(&function.attrs) => {
                self.within(function.sig.ident.to_string(), &function.block);
            }
            _ => {}
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && is_deed(expression)
        {
            self.add(statement.span(), Change::LeftOut);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_binary(&mut self, both: &'ast syn::ExprBinary) {
        let compares =
            matches!(both.op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_));
        if compares {
            self.add(both.span(), Change::TurnedRound);
        }
        visit::visit_expr_binary(self, both);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        self.condition(&branch.cond);
        visit::visit_expr_if(self, branch);
    }

    fn visit_expr_while(&mut self, repeated: &'ast syn::ExprWhile) {
        self.condition(&repeated.cond);
        visit::visit_expr_while(self, repeated);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
        }
        visit::visit_arm(self, arm);
    }
}

#[cfg(test)]
mod tests;

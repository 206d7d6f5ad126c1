//! Patterns with `*`, `?` and policy variables.

use super::RequestFacts;

/// Variables that a pattern may hold. `${*}`, `${?}` and `${$}` are the characters themselves.
const VARIABLES: [&str; 4] = ["aws:username", "aws:userid", "aws:sourceip", "s3:prefix"];

/// A pattern: `*` stands for any characters, `?` for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    pieces: Vec<Piece>,
    ignore_case: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Char(char),
    Any,
    One,
    Variable(&'static str),
}

impl Pattern {
    /// A pattern with wildcards and variables.
    pub fn parse(text: &str, ignore_case: bool) -> Result<Pattern, String> {
        Pattern::read(text, ignore_case, true)
    }

    /// A text with variables, in which `*` and `?` stand for themselves.
    pub fn literal(text: &str, ignore_case: bool) -> Result<Pattern, String> {
        Pattern::read(text, ignore_case, false)
    }

    fn read(text: &str, ignore_case: bool, wild: bool) -> Result<Pattern, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(inside) = rest.strip_prefix("${") {
                let Some((name, behind)) = inside.split_once('}') else {
                    return Err(format!("`{text}` has a variable without its end"));
                };
                pieces.push(variable(name)?);
                rest = behind;
                continue;
            }
            pieces.push(match first {
                '*' if wild => Piece::Any,
                '?' if wild => Piece::One,
                other => Piece::Char(other),
            });
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
        Ok(Pattern { pieces, ignore_case })
    }

    /// Whether it has neither wildcards nor variables: it matches one text.
    pub fn is_plain(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Char(_)))
    }

    /// Whether the pattern matches the whole text. A variable that the request does not have
    /// matches nothing.
    pub fn matches(&self, text: &str, facts: &RequestFacts) -> bool {
        let mut tokens = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            match piece {
                Piece::Char(one) => tokens.push(Token::Char(*one)),
                Piece::Any => tokens.push(Token::Any),
                Piece::One => tokens.push(Token::One),
                Piece::Variable(name) => match facts.first(name) {
                    Some(value) => tokens.extend(value.chars().map(Token::Char)),
                    None => return false,
                },
            }
        }
        let text: Vec<char> = text.chars().collect();
        is_match(&tokens, &text, self.ignore_case)
    }
}

fn variable(name: &str) -> Result<Piece, String> {
    match name {
        "*" => return Ok(Piece::Char('*')),
        "?" => return Ok(Piece::Char('?')),
        "$" => return Ok(Piece::Char('$')),
        _ => {}
    }
    VARIABLES
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(name))
        .map(Piece::Variable)
        .ok_or_else(|| format!("the variable `${{{name}}}` is not supported; those are {}", VARIABLES.join(", ")))
}

enum Token {
    Char(char),
    Any,
    One,
}

/// Takes time in proportion to the product of both lengths, whatever the pattern: it only ever goes
/// back to the last `*`.
fn is_match(tokens: &[Token], text: &[char], ignore_case: bool) -> bool {
    let (mut at, mut next) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let fits = match (tokens.get(next), text.get(at)) {
            (Some(Token::Any), _) => {
                star = Some((next, at));
                next += 1;
                continue;
            }
            (None, None) => return true,
            (Some(Token::One), Some(_)) => true,
            (Some(Token::Char(a)), Some(b)) => a == b || (ignore_case && a.to_lowercase().eq(b.to_lowercase())),
            _ => false,
        };
        if fits {
            (at, next) = (at + 1, next + 1);
            continue;
        }
        let Some((token, from)) = star.filter(|(_, from)| *from < text.len()) else { return false };
        star = Some((token, from + 1));
        (at, next) = (from + 1, token + 1);
    }
}

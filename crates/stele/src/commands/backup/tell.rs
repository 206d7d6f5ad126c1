//! Words on standard error. `eprintln!` panics where they cannot be written, which would end a
//! backup whose terminal or pipe has gone. These words are lost then, and the work goes on.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a line.
pub fn tell(line: Arguments<'_>) {
    draw(format_args!("{line}\n"));
}

/// Draws a line of a terminal over the one before. A line that the terminal would wrap is cut: its
/// beginning could not be drawn over.
pub fn redraw(line: &str) {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
    draw(format_args!("\r\x1b[K{}", cut(line, columns.into())));
}

/// The last column stays free, since some terminals wrap behind it. Zero columns are unknown ones.
fn cut(line: &str, columns: usize) -> &str {
    let end = columns.checked_sub(1).and_then(|last| line.char_indices().nth(last));
    end.and_then(|(end, _)| line.get(..end)).unwrap_or(line)
}

fn draw(text: Arguments<'_>) {
    // In one piece, so that lines of several threads do not mix.
    let (text, mut out) = (text.to_string(), std::io::stderr().lock());
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_would_wrap_is_cut() {
        for (columns, shown) in
            [(0, "\u{fc}ber 9"), (1, ""), (4, "\u{fc}be"), (6, "\u{fc}ber "), (7, "\u{fc}ber 9"), (80, "\u{fc}ber 9")]
        {
            assert_eq!(cut("\u{fc}ber 9", columns), shown, "{columns}");
        }
    }
}

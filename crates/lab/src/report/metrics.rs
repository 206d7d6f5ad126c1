//! How wide text is in the fonts of a PDF: Arimo, its bold cut, and Cousine, which are as wide as
//! Helvetica and Courier. The widths are in thousandths of the size. The drawings of charts use
//! them too, so that a name is cut where it would run into the next one, whatever font a browser
//! has.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    Plain,
    Bold,
    Code,
}

/// From the blank to the tilde.
const PLAIN: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556,
    556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334,
    260, 334, 584,
];
const BOLD: [u16; 95] = [
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584, 556, 333, 556, 611, 556, 611,
    556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389,
    280, 389, 584,
];
/// From the hard blank to the last letter of Latin-1.
const PLAIN_LATIN: [u16; 96] = [
    278, 333, 556, 556, 556, 556, 260, 556, 333, 737, 370, 556, 584, 333, 737, 552, 400, 549, 333, 333, 333, 576, 537,
    333, 333, 333, 365, 556, 834, 834, 834, 611, 667, 667, 667, 667, 667, 667, 1000, 722, 667, 667, 667, 667, 278, 278,
    278, 278, 722, 722, 778, 778, 778, 778, 778, 584, 778, 722, 722, 722, 722, 667, 667, 611, 556, 556, 556, 556, 556,
    556, 889, 500, 556, 556, 556, 556, 278, 278, 278, 278, 556, 556, 556, 556, 556, 556, 556, 549, 611, 556, 556, 556,
    556, 500, 556, 500,
];
const BOLD_LATIN: [u16; 96] = [
    278, 333, 556, 556, 556, 556, 280, 556, 333, 737, 370, 556, 584, 333, 737, 552, 400, 549, 333, 333, 333, 576, 556,
    333, 333, 333, 365, 556, 834, 834, 834, 611, 722, 722, 722, 722, 722, 722, 1000, 722, 667, 667, 667, 667, 278, 278,
    278, 278, 722, 722, 778, 778, 778, 778, 778, 584, 778, 722, 722, 722, 722, 667, 667, 611, 556, 556, 556, 556, 556,
    556, 889, 556, 556, 556, 556, 556, 278, 278, 278, 278, 611, 611, 611, 611, 611, 611, 611, 549, 611, 611, 611, 611,
    611, 556, 611, 556,
];
/// Of Cousine's letters all.
const CODE: u16 = 600;

/// Bytes of Windows' Latin code page outside ASCII and Latin-1 that are used, with their letters
/// and their widths plain and bold.
const BEYOND: [(char, u8, u16, u16); 10] = [
    ('…', 0x85, 1000, 1000),
    ('‘', 0x91, 222, 278),
    ('’', 0x92, 222, 278),
    ('“', 0x93, 333, 500),
    ('”', 0x94, 333, 500),
    ('•', 0x95, 350, 350),
    ('–', 0x96, 556, 556),
    ('—', 0x97, 1000, 1000),
    ('™', 0x99, 1000, 1000),
    ('€', 0x80, 556, 556),
];

/// The bytes by which a PDF shows a text, in Windows' Latin code page. What it lacks is written in
/// ASCII, or as a question mark.
pub fn encoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            ' '..='~' => bytes.push(letter as u8),
            '\u{a0}'..='\u{ff}' => bytes.push(letter as u32 as u8),
            '\t' => bytes.extend(b"    "),
            '≤' => bytes.extend(b"<="),
            '≥' => bytes.extend(b">="),
            '→' => bytes.extend(b"->"),
            '−' => bytes.push(b'-'),
            'μ' => bytes.push(0xb5),
            _ => bytes.push(BEYOND.iter().find(|known| known.0 == letter).map_or(b'?', |known| known.1)),
        }
    }
    bytes
}

/// Width of a letter of Windows' Latin code page, in thousandths of the size.
pub fn width_of(face: Face, byte: u8) -> u16 {
    let (ascii, latin, is_bold) = match face {
        Face::Code => return CODE,
        Face::Plain => (&PLAIN, &PLAIN_LATIN, false),
        Face::Bold => (&BOLD, &BOLD_LATIN, true),
    };
    if let Some(known) = BEYOND.iter().find(|known| known.1 == byte) {
        return if is_bold { known.3 } else { known.2 };
    }
    let of_ascii = byte.checked_sub(b' ').and_then(|at| ascii.get(usize::from(at)));
    let of_latin = || byte.checked_sub(0xa0).and_then(|at| latin.get(usize::from(at)));
    of_ascii.or_else(of_latin).copied().unwrap_or(0)
}

/// Width of a text in the units of its size.
pub fn width(face: Face, size: f64, text: &str) -> f64 {
    encoded(text).iter().map(|byte| f64::from(width_of(face, *byte))).sum::<f64>() * size / 1000.0
}

/// As much of a text as fits, with dots where something is missing.
pub fn cut(face: Face, size: f64, text: &str, wide: f64) -> String {
    if width(face, size, text) <= wide {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while kept.pop().is_some() {
        let shown = format!("{}…", kept.trim_end());
        if width(face, size, &shown) <= wide {
            return shown;
        }
    }
    String::new()
}

/// Lines no wider than that, broken between words, and within a word where it alone is wider.
pub fn wrapped(face: Face, size: f64, text: &str, wide: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        for piece in pieces(face, size, word, wide) {
            let Some(line) = lines.last_mut() else { break };
            let glued = if line.is_empty() { piece.clone() } else { format!("{line} {piece}") };
            match line.is_empty() || width(face, size, &glued) <= wide {
                true => *line = glued,
                false => lines.push(piece),
            }
        }
    }
    lines
}

/// A word, or where it is wider than a line its parts.
pub fn pieces(face: Face, size: f64, word: &str, wide: f64) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for letter in word.chars() {
        let Some(piece) = pieces.last_mut() else { break };
        piece.push(letter);
        if width(face, size, piece) > wide && piece.chars().count() > 1 {
            piece.pop();
            pieces.push(letter.to_string());
        }
    }
    pieces
}

#[cfg(test)]
mod tests;

//! The fonts of a PDF, embedded in it: Arimo, its bold cut, and Cousine, reduced to the letters of
//! the Windows Latin code page (data/fonts). A file so looks the same everywhere, and archives of
//! documents accept it.

use super::file::File;
use stele_lab::report::metrics::{Face, width_of};

/// One font, with what a reader wants to know of it, in thousandths of its size.
pub struct Font {
    pub face: Face,
    name: &'static str,
    pub data: &'static [u8],
    /// All letters lie within: left, bottom, right, top.
    bounds: [i32; 4],
    ascent: i32,
    descent: i32,
    capitals: i32,
    /// Thickness of upright stems.
    stem: i32,
    is_fixed: bool,
}

/// In the order of their names in a page's content: F1, F2, F3. The capitals before the plus sign
/// mark a reduced font.
pub const FONTS: [Font; 3] = [
    Font {
        face: Face::Plain,
        name: "STELEA+Arimo",
        data: include_bytes!("../../data/fonts/plain.ttf"),
        bounds: [-204, -212, 1000, 877],
        ascent: 905,
        descent: -212,
        capitals: 687,
        stem: 84,
        is_fixed: false,
    },
    Font {
        face: Face::Bold,
        name: "STELEB+Arimo-Bold",
        data: include_bytes!("../../data/fonts/bold.ttf"),
        bounds: [-185, -223, 1000, 895],
        ascent: 905,
        descent: -212,
        capitals: 687,
        stem: 138,
        is_fixed: false,
    },
    Font {
        face: Face::Code,
        name: "STELEC+Cousine",
        data: include_bytes!("../../data/fonts/code.ttf"),
        bounds: [-5, -223, 604, 832],
        ascent: 832,
        descent: -301,
        capitals: 660,
        stem: 80,
        is_fixed: true,
    },
];

/// Bits of a descriptor: letters of the standard sets, and all of one width.
const STANDARD: u32 = 1 << 5;
const FIXED: u32 = 1;
/// Letters from the blank on have widths.
const FIRST: u8 = 32;

impl Font {
    /// Writes the font with its data; returns its number.
    fn add(&self, file: &mut File) -> usize {
        let data = file.add_data(self.data);
        let [left, bottom, right, top] = self.bounds;
        let flags = STANDARD | if self.is_fixed { FIXED } else { 0 };
        let descriptor = file.add(format!(
            "<< /Type /FontDescriptor /FontName /{} /Flags {flags} /FontBBox [{left} {bottom} {right} {top}] /ItalicAngle 0 \
             /Ascent {} /Descent {} /CapHeight {} /StemV {} /FontFile2 {data} 0 R >>",
            self.name, self.ascent, self.descent, self.capitals, self.stem
        ));
        let widths: Vec<String> = (FIRST..=u8::MAX).map(|byte| width_of(self.face, byte).to_string()).collect();
        file.add(format!(
            "<< /Type /Font /Subtype /TrueType /BaseFont /{} /Encoding /WinAnsiEncoding /FirstChar {FIRST} /LastChar 255 \
             /Widths [{}] /FontDescriptor {descriptor} 0 R >>",
            self.name,
            widths.join(" ")
        ))
    }
}

/// Writes all fonts; returns their entries in a page's resources.
pub fn add_all(file: &mut File) -> String {
    let entry = |(number, font): (usize, &Font)| format!("/F{} {} 0 R", number + 1, font.add(file));
    FONTS.iter().enumerate().map(entry).collect::<Vec<String>>().join(" ")
}

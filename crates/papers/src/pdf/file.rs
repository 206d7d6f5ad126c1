//! A PDF file from its objects: numbered bodies, and the table of their offsets. The subset that a
//! report needs (pages, embedded fonts, lines, links, an outline) is written here: a PDF library
//! would be larger than this code.

/// Objects are numbered from 1 in the order in which they were reserved.
#[derive(Default)]
pub struct File {
    objects: Vec<Vec<u8>>,
}

impl File {
    pub fn reserve(&mut self) -> usize {
        self.objects.push(Vec::new());
        self.objects.len()
    }

    pub fn set(&mut self, number: usize, body: impl Into<Vec<u8>>) {
        if let Some(place) = number.checked_sub(1).and_then(|at| self.objects.get_mut(at)) {
            *place = body.into();
        }
    }

    pub fn add(&mut self, body: impl Into<Vec<u8>>) -> usize {
        let number = self.reserve();
        self.set(number, body);
        number
    }

    /// A font's file; its length is stated twice, since it is not compressed.
    pub fn add_data(&mut self, data: &[u8]) -> usize {
        self.add_with(data, &format!(" /Length1 {}", data.len()))
    }

    pub fn add_stream(&mut self, data: &[u8]) -> usize {
        self.add_with(data, "")
    }

    fn add_with(&mut self, data: &[u8], entries: &str) -> usize {
        let mut body = format!("<< /Length {}{entries} >>\nstream\n", data.len()).into_bytes();
        body.extend_from_slice(data);
        body.extend_from_slice(b"\nendstream");
        self.add(body)
    }

    pub fn finish(self, catalogue: usize, about: usize) -> Vec<u8> {
        // The second line marks the file as binary for programs that transfer it.
        let mut out = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n".to_vec();
        let mut places = Vec::with_capacity(self.objects.len());
        for (number, body) in self.objects.iter().enumerate() {
            places.push(out.len());
            out.extend_from_slice(format!("{} 0 obj\n", number + 1).as_bytes());
            out.extend_from_slice(body);
            out.extend_from_slice(b"\nendobj\n");
        }
        let (begin, count) = (out.len(), self.objects.len() + 1);
        out.extend_from_slice(format!("xref\n0 {count}\n0000000000 65535 f \n").as_bytes());
        for place in places {
            out.extend_from_slice(format!("{place:010} 00000 n \n").as_bytes());
        }
        let trailer = format!(
            "trailer\n<< /Size {count} /Root {catalogue} 0 R /Info {about} 0 R >>\nstartxref\n{begin}\n%%EOF\n"
        );
        out.extend_from_slice(trailer.as_bytes());
        out
    }
}

/// Bytes as a string of a PDF.
pub fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'('];
    for byte in bytes {
        if matches!(byte, b'(' | b')' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b')');
    out
}

/// A text outside pages, such as a title: UTF-16 with its mark, in hexadecimal.
pub fn title(text: &str) -> String {
    let units: String = text.encode_utf16().map(|unit| format!("{unit:04X}")).collect();
    format!("<FEFF{units}>")
}

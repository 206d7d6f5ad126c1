use super::*;

#[test]
fn names_and_stored_parts_round_trip() {
    let codes: Vec<Code> = (0..=255).flat_map(|k| (0..=255).filter_map(move |m| Code::from_parts(k, m))).collect();
    assert_eq!(codes.len(), 4 + 15 * 3);
    for code in codes {
        assert_eq!(code.to_string().parse(), Ok(code));
        assert_eq!(Code::from_parts(code.data() as u8, code.tolerates() as u8), Some(code));
        assert_eq!(code.width(), code.data() + code.tolerates());
    }
}

#[test]
fn what_names_no_code_is_said() {
    for text in ["", "8", "8+", "+2", "8+0", "8+4", "1+1", "17+2", "mirror-1", "mirror-6", "mirror", "8+2 ", "256+2"] {
        let said = text.parse::<Code>().unwrap_err().to_string();
        assert!(said.starts_with(&format!("'{text}' is not a code; use mirror-2")), "{said}");
    }
}

/// docs/runbooks/sizing.md: losses, overhead, fewest drives, and enclosures to survive one of them.
#[test]
fn the_table_for_sizing_agrees_with_the_codes() {
    let page = include_str!("../../../../docs/runbooks/sizing.md");
    let mut rows = 0;
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let code: Code = cells[1].trim_matches('`').parse().unwrap();
        let number = |cell: &str| cell.split(' ').next().unwrap().parse::<usize>().unwrap();
        let overhead = (100 * code.tolerates() + code.data() / 2) / code.data();
        let wanted = [code.tolerates(), overhead, code.width() + 1, code.width().div_ceil(code.tolerates())];
        assert_eq!([cells[2], cells[3], cells[4], cells[5]].map(number), wanted, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 6);
}

use super::*;

fn changed(text: &str) -> (Vec<Site>, String) {
    woven("x.rs", text, 7).expect("it is Rust")
}

#[test]
fn statements_are_left_out_and_conditions_turned_round() {
    let (sites, text) = changed("fn f(a: u32) {\n    if a < 3 && g(a) {\n        h(a);\n    }\n}\n");
    let told: Vec<_> = sites.iter().map(|site| (site.number, site.line, site.change, site.text.as_str())).collect();
    assert_eq!(
        told,
        [(7, 2, Change::TurnedRound, "g(a)"), (8, 2, Change::TurnedRound, "a < 3"), (9, 3, Change::LeftOut, "h(a);"),]
    );
    assert!(sites.iter().all(|site| site.function == "f"));
    assert!(text.contains("if ((a < 3) != crate::mutant::on(8)) && ((g(a)) != crate::mutant::on(7)) {"), "{text}");
    assert!(text.contains("if !crate::mutant::on(9) { h(a); }"), "{text}");
}

#[test]
fn what_is_woven_in_is_rust_wherever_it_nests() {
    let text = "impl A {\n    async fn g(&self) -> Result<(), E> {\n        self.log.durable(a == b).await?;\n        \
                self.n += u32::from(x != y);\n        while self.left.get() && let Some(n) = self.next() {\n            \
                take(n);\n        }\n        Ok(())\n    }\n}\n";
    let (sites, text) = changed(text);
    assert_eq!(sites.len(), 6, "{sites:#?}");
    syn::parse_file(&text).expect("it is Rust still");
}

#[test]
fn tests_constants_and_assertions_are_left_alone() {
    let text = "const A: bool = 1 < 2;\nconst fn c() { d(); }\nfn f() { assert!(a < b); }\n#[cfg(test)]\nmod tests { fn g() { h(); } }\n";
    assert_eq!(changed(text).0.len(), 0);
}

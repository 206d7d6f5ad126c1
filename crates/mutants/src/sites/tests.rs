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

#[test]
fn a_mutant_is_known_again_as_long_as_the_code_of_its_function_is_the_same() {
    let keys = |text: &str| changed(text).0.into_iter().map(|site| site.key).collect::<Vec<_>>();
    let before = keys("fn f() {\n    a();\n    b();\n}\n\nfn g() {\n    a();\n}\n");
    assert!(before.len() == 3 && before[0] != before[1] && before[0] != before[2]);
    let elsewhere =
        keys("/// Text.\nfn h() {}\n\nfn f() {\n    // Why.\n    a();\n\n    b();\n}\n\nfn g() {\n    c();\n}\n");
    assert_eq!(elsewhere[..2], before[..2]);
    assert_ne!(elsewhere[2], before[2]);
    // Two functions of one name and code have keys of their own.
    let twice = keys("impl A {\n    fn f() { a(); }\n}\nimpl B {\n    fn f() { a(); }\n}\n");
    assert_ne!(twice[0], twice[1]);
    // The text of a mutant, by which reasons name it, has no comments either.
    let (sites, _) = changed("fn f() {\n    a(|| {\n        // Why.\n        b()\n    });\n}\n");
    assert_eq!(sites[0].text, "a(|| { b() });");
}

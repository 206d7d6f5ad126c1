//! The table of survivors, each with the reason why no test notices it.

use std::path::Path;
use std::time::Duration;

use crate::hunt::{Asked, Verdict};
use crate::place;
use crate::sites::Site;

/// The reasons' file, from the repository's root.
pub const REASONS: &str = "crates/mutants/reasons.tsv";

/// Why a survivor is let live. A field that is `*` fits everything.
pub struct Reason {
    file: String,
    function: String,
    change: String,
    text: String,
    reason: String,
}

impl Reason {
    pub fn read(root: &Path) -> Result<Vec<Reason>, String> {
        let text = std::fs::read_to_string(root.join(REASONS)).map_err(|error| format!("{REASONS}: {error}"))?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|(at, line)| match line.split('\t').collect::<Vec<_>>()[..] {
                [file, function, change, text, reason] if !reason.is_empty() => Ok(Reason {
                    file: file.into(),
                    function: function.into(),
                    change: change.into(),
                    text: text.into(),
                    reason: reason.into(),
                }),
                _ => Err(format!("{REASONS}:{}: five fields with a tab between each two: {line}", at + 1)),
            })
            .collect()
    }

    fn fits(&self, site: &Site) -> bool {
        let fits = |field: &str, value: &str| field == "*" || field == value;
        fits(&self.file, &site.file)
            && fits(&self.function, &site.function)
            && fits(&self.change, site.change.word())
            && fits(&self.text, &site.text)
    }
}

pub struct Report {
    pub verdicts: Vec<(Site, Verdict)>,
    pub reasons: Vec<Reason>,
    pub budget: Duration,
}

impl Report {
    fn survivors(&self) -> impl Iterator<Item = (&Site, Asked, Option<&str>)> {
        self.verdicts.iter().filter_map(|(site, verdict)| match verdict {
            Verdict::Noticed(_) => None,
            Verdict::Survived(asked) => {
                let reason = self.reasons.iter().find(|reason| reason.fits(site));
                Some((site, *asked, reason.map(|reason| reason.reason.as_str())))
            }
        })
    }

    /// Survivors without a reason.
    pub fn unexplained(&self) -> usize {
        self.survivors().filter(|(_, _, reason)| reason.is_none()).count()
    }

    pub fn sum(&self) -> String {
        let survived = self.survivors().count();
        format!(
            "{} of {} mutants noticed; {survived} survived, {} of them without a reason in {REASONS}",
            self.verdicts.len() - survived,
            self.verdicts.len(),
            self.unexplained()
        )
    }

    /// Reasons that fit no survivor.
    pub fn idle(&self) -> impl Iterator<Item = String> {
        let fits = |reason: &Reason| self.survivors().any(|(site, _, _)| reason.fits(site));
        let idle = self.reasons.iter().filter(move |reason| !fits(reason));
        idle.map(|reason| format!("{} {} {} {}", reason.file, reason.function, reason.change, reason.text))
    }

    /// The survivors as a page.
    pub fn page(&self, all: usize) -> String {
        let survived = self.survivors().count();
        let mut page = format!(
            "# Mutants by machine\n\n`./x mutate --write-docs` writes this page. It leaves out statements and turns conditions\n\
             round, one at a time, in the files of the array that hold agreement, log, recovery, redo, moving\n\
             and rebuild. For each change it runs tests that reach the place, the quickest first and {} s of\n\
             them at most: the array's own, and the histories and seeds of the simulated world.\n\n\
             It asked {} of {all} mutants. Tests noticed {}, and {survived} survived. Of the survivors, {} have\n\
             a reason ([reasons.tsv](../{REASONS})).\n\n\
             | place | function | change | code | tests run, of those that reach it | why none fails |\n\
             | --- | --- | --- | --- | ---: | --- |\n",
            self.budget.as_secs(),
            self.verdicts.len(),
            self.verdicts.len() - survived,
            survived - self.unexplained()
        );
        for (site, asked, reason) in self.survivors() {
            let code = site.text.replace('|', "\\|");
            let row = [&place(site), &site.function, site.change.word(), &format!("`{code}`")].join(" | ");
            page += &format!("| {row} | {} of {} | {} |\n", asked.run, asked.reach, reason.unwrap_or("not known"));
        }
        page
    }
}

use super::*;
use crate::import::Origin;
use stele_lab::live::run::{Load, Pause, PauseWhen};
use stele_lab::workload::{self, Alignment};

/// A configuration with these access specifications, each assigned to two workers with two targets.
fn file(specs: &[(&str, Vec<String>)]) -> String {
    let mut text = String::from(
        "Version 2006.07.27 \n'TEST SETUP ====\n'Test Description\n\tall\n'Run Time\n'\thours      minutes    seconds\n\t0          5          0\n\
         'Ramp Up Time (s)\n\t30\n'Default Disk Workers to Spawn\n\tNUMBER_OF_CPUS\n'Record Results\n\tALL\n'Worker Cycling\n\
         '\tstart      step       step type\n\t1          1          LINEAR\n'Queue Depth Cycling\n\
         '\tstart      end        step       step type\n\t1          32         2          EXPONENTIAL\n'Test Type\n\tNORMAL\n'END test setup\n\
         'RESULTS DISPLAY ====\n'Record Last Update Results,Update Frequency,Update Type\n\tDISABLED,1,WHOLE_TEST\n'END results display\n\
         'ACCESS SPECIFICATIONS ====\n",
    );
    for (name, lines) in specs {
        text += &format!("'Access specification name,default assignment\n\t{name},NONE\n");
        text += "'size,% of size,% reads,% random,delay,burst,align,reply\n";
        lines.iter().for_each(|line| text += &format!("\t{line}\n"));
    }
    text += "'END access specifications\n'MANAGER LIST ====\n'Manager ID, manager name\n\t1,SERVER\n'Manager network address\n\t\n";
    for worker in 1..=2 {
        text += &format!("'Worker\n\tWorker {worker}\n'Worker type\n\tDISK\n'Default target settings for worker\n");
        text += "'Number of outstanding IOs,test connection rate,transactions per connection,use fixed seed,fixed seed value\n\t16,DISABLED,1,DISABLED,0\n";
        text += "'Disk maximum size,starting sector,Data pattern\n\t204800,0,0\n'End default target settings for worker\n'Assigned access specs\n";
        specs.iter().for_each(|(name, _)| text += &format!("\t{name}\n"));
        text += "'End assigned access specs\n'Target assignments\n";
        for target in 1..=2 {
            text += &format!("'Target\n\tPHYSICALDRIVE:{worker}{target}\n'Target type\n\tDISK\n'End target\n");
        }
        text += "'End target assignments\n'End worker\n";
    }
    text + "'End manager\n'END manager list\nVersion 2006.07.27 \n"
}

/// The lines in Iometer's form, aligned to their size.
fn lines(sizes: &[(u64, u8)], read: u8, random: u8) -> Vec<String> {
    sizes.iter().map(|(bytes, share)| format!("{bytes},{share},{read},{random},0,1,{bytes},0")).collect()
}

#[test]
fn all_published_access_specifications_come_back_as_they_were() {
    let published: Vec<_> =
        workload::shipped().into_iter().filter(|spec| spec.read.is_some() && spec.random.is_some()).collect();
    assert!(published.len() > 30);
    let specs: Vec<(&str, Vec<String>)> = published
        .iter()
        .map(|spec| (spec.name.as_str(), lines(&spec.sizes, spec.read.unwrap_or(0), spec.random.unwrap_or(0))))
        .collect();
    let text = file(&specs);
    assert_eq!(Origin::of(&text), Origin::Iometer);
    let found = iometer(&text, false).unwrap();
    assert_eq!(found.len(), published.len());
    for (imported, spec) in found.iter().zip(&published) {
        let cells = imported.job.cells().unwrap();
        let setup = &cells[0].setup;
        assert_eq!(imported.name, spec.name);
        assert_eq!((setup.spec.read, setup.spec.random, &setup.spec.sizes), (spec.read, spec.random, &spec.sizes));
        assert_eq!(setup.alignment, Alignment::Request);
        // 16 for each of two targets of two workers.
        assert_eq!((setup.load, setup.workers), (Load::Outstanding(64), 2));
        assert_eq!((setup.timing.warm_up.0, setup.timing.least.0), (30_000_000_000, 300_000_000_000));
        assert_eq!(imported.job.size.as_deref(), Some("104857600"));
        assert!(
            imported.warnings.iter().any(|warning| warning.contains("PHYSICALDRIVE:11")),
            "{:?}",
            imported.warnings
        );
    }
}

#[test]
fn cycles_of_the_queue_depth_are_an_axis() {
    let text = file(&[("a", lines(&[(4096, 100)], 100, 100))]).replace("\tNORMAL", "\tCYCLE_OUTSTANDING_IOS");
    let cells = iometer(&text, false).unwrap()[0].job.cells().unwrap();
    let loads: Vec<Load> = cells.iter().map(|cell| cell.setup.load).collect();
    assert_eq!(loads, [4, 8, 16, 32, 64, 128].map(Load::Outstanding));
}

#[test]
fn what_would_be_another_workload_is_refused_with_its_line_or_said() {
    for (spec, why) in [
        ("4096,100,100,100,0,1,4096,64", "network workers"),
        ("4096,100,100,100,0,1,8192,0", "an alignment of 8192"),
        ("4096,100,100,100,0,1,4096", "value 8 has to be a whole number"),
        ("4096,90,100,100,0,1,4096,0", "100"),
        ("4096,100,300,100,0,1,4096,0", "more than 100 percent"),
    ] {
        let text = file(&[("a", vec![spec.to_owned()])]);
        let error = iometer(&text, false).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("line "), "{error}");
    }
    for second in ["8192,50,100,100,6,1,8192,0", "8192,50,100,100,5,1,8192,0"] {
        // Another delay, and bursts of several accesses of one size each.
        let burst = if second.contains(",6,") { 1 } else { 8 };
        let first = format!("4096,50,100,100,5,{burst},4096,0");
        let second = second.replace(",5,1,", &format!(",5,{burst},"));
        let error = iometer(&file(&[("a", vec![first, second])]), false).unwrap_err().to_string();
        assert!(error.contains("ms between bursts of") && error.contains("line "), "{error}");
    }
    let text = file(&[("a", vec!["4096,50,100,100,0,1,4096,0".into(), "8192,50,0,100,0,1,8192,0".into()])]);
    assert!(iometer(&text, false).unwrap_err().to_string().contains("accesses of 8192 bytes have other shares"));
    assert_eq!(iometer(&text, true).unwrap()[0].warnings.len(), 2);
    let text =
        file(&[("a", lines(&[(4096, 100)], 100, 100))]).replace("'Test Type", "'Sound on failure\n\tYES\n'Test Type");
    let error = iometer(&text, false).unwrap_err().to_string();
    assert!(error.contains("'sound on failure") && error.contains("line 21"), "{error}");
}

#[test]
fn a_worker_waits_between_bursts_while_what_is_under_way_goes_on() {
    let pause = |line: &str| {
        iometer(&file(&[("a", vec![line.to_owned()])]), false).unwrap()[0].job.cells().unwrap()[0].setup.pause
    };
    let each = stele_ground::Duration::from_millis(5);
    let overlapping = Pause { each, burst: 8, when: PauseWhen::Overlapping };
    assert_eq!(pause("4096,100,100,100,5,8,4096,0"), Some(overlapping));
    assert_eq!(pause("4096,100,100,100,0,8,4096,0"), None, "without a delay there is no burst");
}
